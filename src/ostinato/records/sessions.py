"""What the gateway records: sessions, turns and their token-exact traces."""

from typing import Literal

from msgspec import Struct

from ostinato.records.arms import Arm
from ostinato.records.engine import FinishReason, VersionSpan

Purpose = Literal["live", "episode"]
"""`live`: a person's use. `episode`: a run of ours on a task (bench), which is never trained on."""


class SessionRow(Struct, frozen=True):
    """One session. `arm` and `experiment_id` are None outside an experiment; times are Unix seconds."""

    session_id: str
    person: str
    purpose: Purpose
    opened_at: float
    last_at: float
    experiment_id: str | None = None
    arm: Arm | None = None
    found_by: Literal["header", "prefix", "new"] = "header"
    closed_at: float | None = None
    sandbox_id: str | None = None


class TurnTrace(Struct, frozen=True):
    """The exact tokens of a turn.

    `prompt_ids` are only the ids that this turn added to its segment before sampling began; `context_len` ids of the
    segment came before them. `ids` and `logprobs` (natural logarithm, of the distribution sampled from) are the
    sampled tokens. `experts` is uint16 [rows, layers, k] for segment positions `experts_start` onward."""

    context_len: int
    prompt_ids: list[int]
    ids: list[int]
    logprobs: list[float]
    experts: bytes = b""
    experts_start: int = 0


class Turn(Struct, frozen=True):
    """One generation in a session. `index` counts turns in the session, `segment` counts unbroken token sequences;
    `segment_reason` says why a new segment began ("" on all but the first turn of one)."""

    turn_id: str
    session_id: str
    index: int
    segment: int
    segment_reason: str
    slot: str
    versions: tuple[VersionSpan, ...]
    finish_reason: FinishReason | None
    temperature: float
    started_at: float
    first_token_at: float | None
    ended_at: float | None
    trainable: bool
    untrainable_reason: str = ""
    trace: TurnTrace | None = None
