"""Tasks: a request with a start state and checks; and what came of one run on one."""

from msgspec import Struct

from ostinato.records.outcomes import Outcome


class Task(Struct, frozen=True):
    """A request with a start state and hidden checks (a Harbor folder in memory).

    `base` is the environment base id that the workspace is forked from, or "" with `files` given whole (path -> text).
    `tests` are hidden: they enter a fresh fork only after the agent ended. `reference` holds the whole text of the
    files that solve it; empty where no edit is wanted. `wants_edit` False means that any edit is a fault and that the
    reply must contain `answer`."""

    task_id: str
    request: str
    files: dict[str, str] = {}
    base: str = ""
    tests: dict[str, str] = {}
    test_command: tuple[str, ...] = ("python3", "-B", "run_tests.py")
    reference: dict[str, str] = {}
    wants_edit: bool = True
    answer: str = ""
    kind: str = ""
    tags: dict[str, str] = {}


class EpisodeResult(Struct, frozen=True):
    """One run of the agent on a task. `error` names the boundary at which a failed episode failed ("" if it ran)."""

    task_id: str
    version: str
    session_id: str
    solved: bool
    edited: bool
    outcome: Outcome
    turns: int
    tool_calls: int
    invalid_calls: int
    tokens: int
    seconds: float
    error: str = ""
