"""What experiments and the bench compare: one session's numbers, from its reward record alone."""

from collections.abc import Mapping
from typing import Protocol

from ostinato.records import Outcome
from ostinato.rewards.compose import EXCLUDED

_EDIT_OUTCOMES = {Outcome.KEPT: 1.0, Outcome.REVERTED: 0.0}


class Scored(Protocol):
    """A session with its named end and signals: a reward record, or a row of the ledger that holds one."""

    @property
    def outcome(self) -> Outcome | None: ...

    @property
    def signals(self) -> Mapping[str, float]: ...


def live_metrics(record: Scored) -> dict[str, float | None]:
    """`persistence`: share of the edit that survived, 0 where an edit was wanted and none is left, None where none was
    wanted as far as feedback shows. `dissatisfied`: 1 or 0, abandonment included. `tokens` and `tool_calls`: effort.
    `edited`, `asked`, `invalid_calls`: for monitors. All None for a session without feedback or that we broke."""
    signals, outcome = record.signals, record.outcome
    names = ("persistence", "dissatisfied", "tokens", "tool_calls", "edited", "asked", "invalid_calls")
    if outcome is None or outcome in EXCLUDED:
        return dict.fromkeys(names)
    edited = bool(signals.get("edited"))
    unhappy = signals.get("dissatisfied", 0.0) >= 0.5 or bool(signals.get("abandoned") or signals.get("cancelled"))
    if outcome == Outcome.MENDED:
        persistence: float | None = signals["survival"]
    elif edited:
        persistence = _EDIT_OUTCOMES.get(outcome, 0.0)
    else:
        persistence = None if outcome == Outcome.ANSWERED else 0.0
    effort = {name: signals.get(name, 0.0) for name in names[2:]}
    return {"persistence": persistence, "dissatisfied": float(unhappy), **effort}
