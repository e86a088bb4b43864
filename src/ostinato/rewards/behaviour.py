"""What the agent did in a session, as numbers for the monitors: read from the conversation that its client sent, so
that it works for every client and every model's format.

Tools are told apart by their names, as the common harnesses call them (`grep`, `read_file`, `str_replace`, `bash`).
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from ostinato.records import Turn

_EDIT = re.compile(r"edit|replace|write|patch|insert|create|apply|modify", re.IGNORECASE)
_LOOK = re.compile(r"search|grep|glob|find|list|read|view|cat|open|fetch|^ls$", re.IGNORECASE)
_TEST_FILE = re.compile(r"(?:^|/)(?:tests?|__tests__|spec)(?:/|$)|(?:^|/)test_[^/]*$|_test\.\w+$|\.(?:test|spec)\.\w+$")
_COMMENT = re.compile(r"^\s*(?:#|//|/\*|\*|--|;|<!--)")
_CHECK = re.compile(r"\b(?:assert\w*|expect|def test\w*|it|describe|#\[test\])\b")
_OLD = ("old", "old_str", "old_string", "old_text", "search")
_NEW = ("new", "new_str", "new_string", "new_text", "replace", "content", "file_text", "insert_text")
_PATH = ("path", "file_path", "filePath", "filename", "file")


class Edit(Struct, frozen=True):
    """One call of an editing tool: the text that goes and the text that comes."""

    path: str
    old: str
    new: str

    @property
    def is_empty(self) -> bool:
        """Whether it changes nothing but white space."""
        return self.old.split() == self.new.split()

    @property
    def in_tests(self) -> bool:
        """Whether it is of a file of tests."""
        return _TEST_FILE.search(self.path) is not None

    @property
    def removes_checks(self) -> bool:
        """Whether fewer checks are in a file of tests after it."""
        return self.in_tests and len(_CHECK.findall(self.new)) < len(_CHECK.findall(self.old))

    def added(self) -> list[str]:
        """The lines that it adds, blank ones left out."""
        before = {" ".join(line.split()) for line in ("", *self.old.splitlines())}
        return [line for line in self.new.splitlines() if " ".join(line.split()) not in before]


class _Function(Struct):
    name: str = ""
    arguments: Any = ""


class _Call(Struct):
    function: _Function = msgspec.field(default_factory=_Function)


class _Message(Struct):
    role: str = ""
    tool_calls: list[_Call] | None = None


_messages = msgspec.json.Decoder(list[_Message])


def behaviour_of(messages: bytes, turns: Sequence[Turn]) -> dict[str, float]:
    """The numbers of one session. `messages`: the JSON array of the session's last request, which holds all earlier
    ones.

    lookups: reads and searches before the first edit. edit_calls, noop_edits, test_edits, check_removals: calls of
    editing tools, and those that change nothing, change tests, or take checks away. comment_share: of the lines that
    were added, those that are comments. parallel_calls: answers with several calls at once. surprise: mean negative
    log-probability of the sampled tokens, in nats: an estimate of the policy's entropy."""
    rows = _decoded(messages)
    calls = [call.function for row in rows for call in row.tool_calls or []]
    edits = [edit for call in calls if (edit := _edit_of(call)) is not None]
    first = next((n for n, call in enumerate(calls) if _EDIT.search(call.name)), len(calls))
    added = [line for edit in edits for line in edit.added()]
    chances = [value for turn in turns if turn.trace is not None for value in turn.trace.logprobs]
    return {
        "lookups": float(sum(_looks(call.name) for call in calls[:first])),
        "edit_calls": float(len(edits)),
        "noop_edits": float(sum(edit.is_empty for edit in edits)),
        "test_edits": float(sum(edit.in_tests for edit in edits)),
        "check_removals": float(sum(edit.removes_checks for edit in edits)),
        "comment_share": sum(_COMMENT.match(line) is not None for line in added) / max(len(added), 1),
        "parallel_calls": float(sum(len(row.tool_calls or []) > 1 for row in rows)),
        "surprise": -sum(chances) / max(len(chances), 1),
    }


def _decoded(messages: bytes) -> list[_Message]:
    try:
        return _messages.decode(messages)
    except msgspec.MsgspecError:
        return []


def _looks(name: str) -> bool:
    return _LOOK.search(name) is not None and _EDIT.search(name) is None


def _edit_of(call: _Function) -> Edit | None:
    if not _EDIT.search(call.name):
        return None
    given = dict(_texts(call.arguments))
    path, old, new = (next((given[name] for name in names if name in given), "") for names in (_PATH, _OLD, _NEW))
    return Edit(path, old, new)


def _texts(arguments: Any) -> Iterator[tuple[str, str]]:
    """The arguments that are texts. Clients send them as a JSON object in a string."""
    if isinstance(arguments, str):
        try:
            arguments = msgspec.json.decode(arguments)
        except msgspec.MsgspecError:
            return
    if isinstance(arguments, dict):
        for name, value in arguments.items():
            if isinstance(value, str):
                yield str(name), value
