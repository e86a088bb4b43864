"""Signals: the numbers that a session's feedback and chain give, and the outcome that they name."""

from collections.abc import Sequence

from msgspec import Struct

from ostinato.records import (
    Abandoned,
    AgentEnded,
    Cancelled,
    Comment,
    Commit,
    EditDecision,
    EditProposed,
    EditReverted,
    EditSurvival,
    EndReason,
    FeedbackEvent,
    FollowUp,
    HunkDecision,
    Latency,
    LaterFix,
    Outcome,
    Payload,
    Rating,
    SessionClosed,
    TaskOutcome,
    Turn,
)
from ostinato.rewards.followups import dissatisfaction

_OF_EDITS = (EditSurvival, EditReverted, EditDecision, HunkDecision, LaterFix)
"""Reports that speak of an edit, also where its client never said that it proposed one."""

KEPT_FROM = 0.95
"""An edit of which this share survives counts as kept; of which one minus this, as reverted."""


class Signals(Struct, frozen=True):
    """What is known of one session.

    edited: an edit was proposed, by its client's word or by a report about it. survival: of the latest report by the
    client's clock (`EditSurvival.rate`, or what a later fix left), else the accepted share of the hunks that the person
    decided on; None without either. dissatisfied: the highest probability over follow-ups, comments, ratings and
    outcomes of tasks, None where nothing was said. asked: the last reply ends with a question mark and nothing was
    edited. committed: the person committed something. tokens: generated. seconds: model and tools together, as the
    client measured them."""

    edited: bool = False
    survival: float | None = None
    reverted: bool = False
    dissatisfied: float | None = None
    abandoned: bool = False
    cancelled: bool = False
    committed: bool = False
    closed: bool = False
    asked: bool = False
    replied: bool = False
    end: EndReason | None = None
    turns: int = 0
    tool_calls: int = 0
    invalid_calls: int = 0
    tokens: int = 0
    seconds: float = 0.0

    def numbers(self) -> dict[str, float]:
        """The signals as numbers, absent ones left out, for the reward record."""
        found = {name: getattr(self, name) for name in self.__struct_fields__ if name != "end"}
        return {name: float(value) for name, value in found.items() if value is not None}


def signals_of(events: Sequence[FeedbackEvent], turns: Sequence[Turn], reply: str) -> Signals:
    """The signals of one session. `reply` is the text of its last turn. Events may come in any order and twice."""
    payloads = [event.payload for event in sorted(events, key=lambda event: event.at)]
    edited = any(item.files if isinstance(item, EditProposed) else isinstance(item, _OF_EDITS) for item in payloads)
    ended = next((item for item in reversed(payloads) if isinstance(item, AgentEnded)), None)
    times = [item.model_s + item.tools_s for item in payloads if isinstance(item, Latency)]
    said = reply.strip()
    return Signals(
        edited=edited,
        survival=_survival(payloads),
        reverted=_taken_back(payloads),
        dissatisfied=_dissatisfied(payloads),
        abandoned=any(isinstance(item, Abandoned) for item in payloads),
        cancelled=any(isinstance(item, Cancelled) for item in payloads),
        committed=any(isinstance(item, Commit) for item in payloads),
        closed=any(isinstance(item, SessionClosed) for item in payloads),
        asked=said.endswith("?") and not edited,
        replied=bool(said),
        end=ended.reason if ended else None,
        turns=ended.turns if ended else len(turns),
        tool_calls=ended.tool_calls if ended else 0,
        invalid_calls=ended.invalid_calls if ended else 0,
        tokens=sum(len(turn.trace.ids) for turn in turns if turn.trace is not None),
        seconds=times[-1] if times else 0.0,
    )


def outcome_of(signals: Signals) -> Outcome:
    """The one outcome of a session: total over all signals.

    Order: what we cannot judge (sandbox or model died); what the person did to the run or the edit; how the run broke
    off; what the person made of a reply without an edit. A commit without an edit of ours means that the person wanted
    one and did it alone."""
    if signals.end == "sandbox_died":
        return Outcome.SANDBOX_DIED
    if signals.end == "model_error":
        return Outcome.MODEL_ERROR
    if signals.cancelled:
        return Outcome.CANCELLED
    if signals.edited:
        return _edit_outcome(signals)
    if signals.end is not None and signals.end in _BROKEN_OFF:
        return _BROKEN_OFF[signals.end]
    if signals.abandoned:
        return Outcome.ABANDONED
    if signals.asked:
        return Outcome.ASKED
    return _reply_outcome(signals)


_BROKEN_OFF: dict[EndReason, Outcome] = {
    "turn_limit": Outcome.TURN_LIMIT,
    "context_full": Outcome.CONTEXT_FULL,
    "time_limit": Outcome.TIME_LIMIT,
    "invalid_calls": Outcome.INVALID_CALLS,
    "empty_answer": Outcome.EMPTY_ANSWER,
}


def _edit_outcome(signals: Signals) -> Outcome:
    if signals.reverted:
        return Outcome.REVERTED
    if signals.abandoned:
        return Outcome.ABANDONED
    if signals.survival is not None:
        if signals.survival >= KEPT_FROM:
            return Outcome.KEPT
        return Outcome.REVERTED if signals.survival <= 1 - KEPT_FROM else Outcome.MENDED
    if signals.dissatisfied is None:
        return Outcome.NO_FEEDBACK
    return Outcome.REVERTED if signals.dissatisfied >= 0.5 else Outcome.KEPT


def _reply_outcome(signals: Signals) -> Outcome:
    if signals.committed or (signals.dissatisfied is not None and signals.dissatisfied >= 0.5):
        return Outcome.NOTHING_DONE
    if signals.end is None and not signals.replied and signals.turns:
        return Outcome.EMPTY_ANSWER
    if signals.dissatisfied is not None or (signals.closed and signals.turns):
        return Outcome.ANSWERED
    return Outcome.NO_FEEDBACK


def _survival(payloads: Sequence[Payload]) -> float | None:
    """See `Signals`. Rates that were measured on another branch than the edit's say nothing of it."""
    found: list[tuple[float, float]] = []
    for item in payloads:
        if isinstance(item, EditSurvival) and (item.survival_rate is not None or not item.did_branch_change):
            found.append((item.delay_s, item.rate))
        elif isinstance(item, LaterFix):
            found.append((item.delay_s, 1 - item.share))
    if found:
        return max(found, key=lambda report: report[0])[1]
    decided = [item for item in payloads if isinstance(item, HunkDecision)]
    lines = [max(item.lines_added + item.lines_removed, 1) for item in decided]
    kept = sum(count for item, count in zip(decided, lines, strict=True) if item.outcome == "accepted")
    if decided:
        return kept / sum(lines)
    whole = [item for item in payloads if isinstance(item, EditDecision)]
    return float(whole[-1].outcome == "accepted") if whole else None


def _taken_back(payloads: Sequence[Payload]) -> bool:
    """Whether the whole edit was reverted, or the last word on it was a rejection."""
    whole = [item for item in payloads if isinstance(item, EditDecision)]
    rejected = bool(whole) and whole[-1].outcome == "rejected"
    return rejected or any(isinstance(item, EditReverted) for item in payloads)


def _dissatisfied(payloads: Sequence[Payload]) -> float | None:
    found = [dissatisfaction(item.text) for item in payloads if isinstance(item, FollowUp | Comment)]
    found += [float(item.value < 0) for item in payloads if isinstance(item, Rating)]
    found += [float(not item.succeeded) for item in payloads if isinstance(item, TaskOutcome)]
    return max(found, default=None)
