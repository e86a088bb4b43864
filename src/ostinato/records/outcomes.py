"""How sessions end (outcome), what they are worth (reward), and what becomes of them (fate)."""

from enum import StrEnum

from msgspec import Struct


class Outcome(StrEnum):
    """The named ways in which a session can end. Every session gets exactly one; none is silently free of reward."""

    KEPT = "kept"
    MENDED = "mended"
    REVERTED = "reverted"
    ANSWERED = "answered"
    ASKED = "asked"
    NOTHING_DONE = "nothing_done"
    ABANDONED = "abandoned"
    CANCELLED = "cancelled"
    INVALID_CALLS = "invalid_calls"
    TURN_LIMIT = "turn_limit"
    TIME_LIMIT = "time_limit"
    CONTEXT_FULL = "context_full"
    EMPTY_ANSWER = "empty_answer"
    SANDBOX_DIED = "sandbox_died"
    MODEL_ERROR = "model_error"
    NO_FEEDBACK = "no_feedback"


class Fate(StrEnum):
    """What became of a session or episode. Sessions = open + the sum over fates, always."""

    TRAINED = "trained"
    HELD_OUT = "held_out"
    FILTERED = "filtered"
    EXPIRED = "expired"
    QUARANTINED = "quarantined"
    OPTED_OUT = "opted_out"
    ERASED = "erased"


class RewardRecord(Struct, frozen=True):
    """The scalar given to a session's chain, with its parts. `reward` is None where `exclusion` names why there is
    none. `signals` are the numbers it was computed from, `reports` how many feedback events they were read from; `rule`
    names the code and settings that computed it."""

    session_id: str
    outcome: Outcome
    reward: float | None
    parts: dict[str, float]
    signals: dict[str, float]
    rule: str
    at: float
    exclusion: str = ""
    reports: int | None = None
