"""The texts of the tools."""

import pytest

from ostinato.agent import FilesWorkspace, apply_edit, call_tool, invalid_reason
from ostinato.records import ToolCall

NO_SHELL = "error: invalid call: no tool named 'shell'; there are search, read_file, edit_file, run_tests"
FILES = {"a.py": "x = 1\ny = x\n", "b.py": "x = 2\n"}


def workspace() -> FilesWorkspace:
    return FilesWorkspace(FILES, lambda files: "passed\n" if files["a.py"].startswith("x = 3") else "failed: x\n")


@pytest.mark.parametrize(
    ("old", "new", "reply", "text"),
    [
        ("x = 1", "x = 3", "ok", "x = 3\ny = x\n"),
        ("z", "q", "error: old text not found", None),
        ("", "q", "error: old text not found", None),
        ("x", "q", "error: old text found 2 times", None),
        ("x = 1", "x = 1", "error: nothing changes", None),
    ],
)
def test_edit_replies(old: str, new: str, reply: str, text: str | None) -> None:
    """An edit needs a text that occurs exactly once, and must change it."""
    outcome = apply_edit(FILES["a.py"], old, new)
    assert (outcome.reply, outcome.text) == (reply, text)


@pytest.mark.parametrize(
    ("name", "arguments", "reply"),
    [
        ("search", {"pattern": "x ="}, "a.py:1: x = 1\nb.py:1: x = 2"),
        ("search", {"pattern": "nowhere"}, "no match"),
        ("read_file", {"path": "b.py"}, "x = 2\n"),
        ("read_file", {"path": "c.py"}, "error: no such file c.py"),
        ("edit_file", {"path": "c.py", "old": "a", "new": "b"}, "error: no such file c.py"),
        ("edit_file", {"path": "a.py", "old": "x = 1", "new": "x = 3"}, "ok"),
        ("run_tests", {}, "failed: x"),
        ("shell", {"cmd": "ls"}, NO_SHELL),
        ("read_file", {}, "error: invalid call: read_file lacks path"),
        ("search", {"pattern": "x", "extra1": "y"}, "error: invalid call: search does not take extra1"),
        ("search", {"pattern": 3}, "error: invalid call: search: pattern must be text"),
    ],
)  # fmt: skip
async def test_replies(name: str, arguments: dict[str, object], reply: str) -> None:
    """Each tool's reply, word for word."""
    assert await call_tool(workspace(), ToolCall("c", name, arguments)) == reply


async def test_an_edit_is_seen_by_the_tests() -> None:
    """Tools act on one workspace."""
    place = workspace()
    await call_tool(place, ToolCall("1", "edit_file", {"path": "a.py", "old": "x = 1", "new": "x = 3"}))
    assert await call_tool(place, ToolCall("2", "run_tests", {})) == "passed"


async def test_unreadable_arguments_are_an_invalid_call() -> None:
    """The reason that the arguments could not be read reaches the model."""
    text = await call_tool(workspace(), ToolCall("1", "run_tests", {}), "arguments are not JSON: torn")
    assert text == "error: invalid call: arguments are not JSON: torn"
    assert invalid_reason(ToolCall("1", "run_tests", {})) == ""
