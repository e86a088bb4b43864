"""The tools as the model sees them: their schemas, and the exact text of each result.

The texts are pure functions, so that every workspace (a sandbox, or a dictionary of files) answers alike.
"""

from typing import Any

from msgspec import Struct

from ostinato.records import ToolCall, ToolSpec

OUTPUT_LIMIT = 400
"""Characters of a test run's output that the model sees."""


def _spec(name: str, description: str, **args: str) -> ToolSpec:
    properties = {key: {"type": "string", "description": text} for key, text in args.items()}
    parameters = {"type": "object", "properties": properties, "required": list(args), "additionalProperties": False}
    return ToolSpec(name=name, description=description, parameters=parameters)


TOOLS: tuple[ToolSpec, ...] = (
    _spec("search", "Find lines that contain a text.", pattern="the text to look for"),
    _spec("read_file", "Read one file.", path="path from the repository's root"),
    _spec(
        "edit_file",
        "Replace a text that occurs exactly once in a file.",
        path="path from the repository's root",
        old="the text to replace",
        new="the text to put there",
    ),
    _spec("run_tests", "Run the repository's tests."),
)


class EditOutcome(Struct, frozen=True):
    """What an edit came to: the reply for the model, and the file's new text where it changed."""

    reply: str
    text: str | None = None


def missing_file(path: str) -> str:
    """The reply for a path that does not exist."""
    return f"error: no such file {path}"


def apply_edit(text: str, old: str, new: str) -> EditOutcome:
    """Replace `old`, which must occur exactly once in `text`, by `new`."""
    count = text.count(old) if old else 0
    if count == 0:
        return EditOutcome("error: old text not found")
    if count > 1:
        return EditOutcome(f"error: old text found {count} times")
    if old == new:
        return EditOutcome("error: nothing changes")
    return EditOutcome("ok", text.replace(old, new))


def test_reply(output: str) -> str:
    """The reply for a test run, from what the test command printed."""
    return output.strip()[:OUTPUT_LIMIT] or "no output"


def invalid_reason(call: ToolCall) -> str:
    """Why `call` cannot be carried out, or "" if it can: unknown tool; missing, extra or non-text argument."""
    spec = next((tool for tool in TOOLS if tool.name == call.name), None)
    if spec is None:
        return f"no tool named {call.name!r}; there are {', '.join(tool.name for tool in TOOLS)}"
    wanted: list[str] = spec.parameters["required"]
    given: dict[str, Any] = call.arguments
    missing = [name for name in wanted if name not in given]
    extra = [name for name in given if name not in wanted]
    if missing:
        return f"{call.name} lacks {', '.join(missing)}"
    if extra:
        return f"{call.name} does not take {', '.join(extra)}"
    wrong = [name for name, value in given.items() if not isinstance(value, str)]
    return f"{call.name}: {', '.join(wrong)} must be text" if wrong else ""


def invalid_reply(reason: str) -> str:
    """The reply for a call that cannot be carried out."""
    return f"error: invalid call: {reason}"
