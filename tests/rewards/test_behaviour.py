"""What an agent did, read from the conversation that its client sent."""

import json
from typing import Any

import pytest

from ostinato.records import Turn, TurnTrace
from ostinato.rewards.behaviour import behaviour_of


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"id": "c", "type": "function", "function": {"name": tool, "arguments": json.dumps(arguments)}}


def said(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": "", "tool_calls": list(calls)}


def behaviour(*messages: dict[str, Any]) -> dict[str, float]:
    trace = TurnTrace(0, [1], [5, 6], [-0.5, -1.5])
    turn = Turn("t0", "s1", 0, 0, "", "release", (), "stop", 1.0, 0.0, 0.1, 0.2, True, "", trace)
    return behaviour_of(json.dumps([{"role": "user", "content": "fix it"}, *messages]).encode(), [turn])


def test_a_plain_session() -> None:
    """Two looks, one edit, one look after it; nothing odd."""
    found = behaviour(
        said(call("search", pattern="add")),
        {"role": "tool", "content": "a.py:1"},
        said(call("read_file", path="a.py")),
        said(call("edit_file", path="a.py", old="return a - b", new="return a + b")),
        said(call("read_file", path="a.py")),
    )
    assert found == {
        "lookups": 2.0, "edit_calls": 1.0, "noop_edits": 0.0, "test_edits": 0.0, "check_removals": 0.0,
        "comment_share": 0.0, "parallel_calls": 0.0, "surprise": 1.0,
    }  # fmt: skip


@pytest.mark.parametrize("tool", ["edit_file", "str_replace_based_edit_tool", "Edit", "apply_patch", "write_file"])
def test_edits_are_known_by_many_names(tool: str) -> None:
    """As the common harnesses call them."""
    assert behaviour(said(call(tool, file_path="a.py", old_string="x", new_string="y")))["edit_calls"] == 1


def test_what_looks_like_a_hack_is_counted() -> None:
    """Edits of white space, comments alone, tests without their checks, many calls at once."""
    found = behaviour(
        said(call("Grep", pattern="x"), call("Read", file_path="a.py")),
        said(call("Edit", file_path="a.py", old_string="x = 1", new_string="x  =  1\n")),
        said(call("Edit", file_path="a.py", old_string="y = 2", new_string="# why\n# so\ny = 2\nz = 3")),
        said(call("Edit", file_path="tests/test_a.py", old_string="assert f(1) == 2", new_string="pass")),
    )
    assert (found["noop_edits"], found["test_edits"], found["check_removals"]) == (1, 1, 1)
    assert found["comment_share"] == pytest.approx(2 / 4)
    assert found["parallel_calls"] == 1


def test_odd_conversations_are_read_as_far_as_they_go() -> None:
    """Broken JSON, arguments that are no object, values that are no text."""
    trace_free = behaviour_of(b"{", [])
    assert trace_free["edit_calls"] == 0
    bad = {"id": "c", "function": {"name": "edit_file", "arguments": "[1, 2"}}
    assert behaviour(said(bad))["edit_calls"] == 1
    assert behaviour(said(call("edit_file", path=3, old=None, new=["x"])))["noop_edits"] == 1
