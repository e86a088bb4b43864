"""What clients report. One envelope, one typed payload for each kind; unknown fields are refused by name.

The names follow VS Code's edit-survival telemetry where it has one (`survival_rate_four_gram` and the like).
"""

from typing import Literal

from msgspec import Struct

EndReason = Literal[
    "done",
    "turn_limit",
    "time_limit",
    "context_full",
    "invalid_calls",
    "empty_answer",
    "sandbox_died",
    "model_error",
]


class _Payload(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    pass


class EditHunk(Struct, frozen=True, forbid_unknown_fields=True):
    """One block of lines that an edit changed: its file, its first line right after the edit (from 1), and `name`, a
    hash of its path and content by which later reports speak of it. survival: the share of it that is there, 0 to 1."""

    path: str
    line: int
    name: str
    survival: float = 1.0


class EditProposed(_Payload, frozen=True, tag="edit.proposed"):
    """The agent changed files: their paths, how many lines were added and removed and, where known, the hunks."""

    files: list[str]
    lines_added: int
    lines_removed: int
    hunks: list[EditHunk] = []


class EditSurvival(_Payload, frozen=True, tag="edit.survival"):
    """How much of the proposed edit is still in the files `delay_s` seconds (of the client's clock) later, 0 to 1.

    survival_rate: by tokens, hunk by hunk, moved and renamed lines found again; None from clients that do not measure
    it. horizon: what the report is for ("2 min", "commit"). did_branch_change: another branch is checked out than the
    edit is on."""

    delay_s: float
    survival_rate_four_gram: float
    survival_rate_no_revert: float
    survival_rate: float | None = None
    horizon: str = ""
    did_branch_change: bool = False
    hunks: list[EditHunk] = []

    @property
    def rate(self) -> float:
        """The best measure of what survived: `survival_rate`, else the smaller of the two scores (an edit that was
        rewritten or moved back is not there)."""
        if self.survival_rate is not None:
            return self.survival_rate
        return min(self.survival_rate_four_gram, self.survival_rate_no_revert)


class EditReverted(_Payload, frozen=True, tag="edit.reverted"):
    """The person took the whole edit back."""

    delay_s: float = 0.0


class EditDecision(_Payload, frozen=True, tag="edit.decision"):
    """The person accepted or rejected the whole edit in the client's own view of it."""

    outcome: Literal["accepted", "rejected"]


class HunkDecision(_Payload, frozen=True, tag="edit.hunk"):
    """The person accepted or rejected one block of an edit, which adds and removes so many lines."""

    outcome: Literal["accepted", "rejected"]
    lines_added: int = 0
    lines_removed: int = 0
    path: str = ""


class LaterFix(_Payload, frozen=True, tag="edit.fixed"):
    """Somebody repaired the edit `delay_s` seconds later: `share` of it had to change, 0 to 1. sha: the commit."""

    delay_s: float
    share: float
    sha: str = ""


class TaskOutcome(_Payload, frozen=True, tag="task.outcome"):
    """What came of a task that ran in the background: whether it did what was asked, by the client's own check."""

    succeeded: bool
    detail: str = ""


class Comment(_Payload, frozen=True, tag="comment"):
    """What a person wrote about an answer, as plain text, beside the conversation."""

    text: str


class FollowUp(_Payload, frozen=True, tag="followup"):
    """The person's next message, as plain text."""

    text: str


class Abandoned(_Payload, frozen=True, tag="abandoned"):
    """The person left without keeping anything."""


class Cancelled(_Payload, frozen=True, tag="cancelled"):
    """The person stopped the agent while it ran."""


class Rating(_Payload, frozen=True, tag="rating"):
    """An explicit rating: 1 is good, -1 is bad."""

    value: Literal[-1, 1]


class Latency(_Payload, frozen=True, tag="latency"):
    """Wall-clock seconds of a session, split into model, tools, and waiting for the person."""

    model_s: float
    tools_s: float
    person_s: float = 0.0


class AgentEnded(_Payload, frozen=True, tag="agent.ended"):
    """How the agent's run ended, and its counts of calls."""

    reason: EndReason
    turns: int
    tool_calls: int
    invalid_calls: int
    sandbox_id: str = ""


class Commit(_Payload, frozen=True, tag="commit"):
    """What the person committed in the end: the start state (`base`, an environment base id), the request, the whole
    text of changed files, the tests they ran, and the id of the git commit. This is what bench tasks are made of."""

    base: str
    request: str
    files: dict[str, str]
    tests: dict[str, str]
    test_command: tuple[str, ...]
    sha: str = ""


class SessionClosed(_Payload, frozen=True, tag="session.closed"):
    """The client will report nothing more about this session."""


Payload = (
    EditProposed
    | EditSurvival
    | EditReverted
    | EditDecision
    | HunkDecision
    | LaterFix
    | TaskOutcome
    | Comment
    | FollowUp
    | Abandoned
    | Cancelled
    | Rating
    | Latency
    | AgentEnded
    | Commit
    | SessionClosed
)


class FeedbackEvent(Struct, frozen=True, forbid_unknown_fields=True):
    """One report about one response. `event_id` makes it idempotent: the same id again changes nothing. `at` is the
    time on the client's clock in Unix seconds (the demo's clock runs 60 times faster; only differences count)."""

    event_id: str
    response_id: str
    at: float
    payload: Payload
