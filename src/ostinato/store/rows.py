"""What the ledger hands out beside the records: small frozen structs, one for each question that other rooms ask."""

from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from ostinato.records import Arm, Outcome, Purpose, Task


class Accounts(Struct, frozen=True):
    """The balance of one purpose: every session is open (it has no fate yet) or has exactly one fate. `fates` names
    every fate, also those with none. The figures are counted apart, so `balanced` is a real check."""

    purpose: Purpose
    sessions: int
    open: int
    fates: dict[str, int]

    @property
    def balanced(self) -> bool:
        """Whether sessions = open + the sum over fates."""
        return self.sessions == self.open + sum(self.fates.values())


class FateRow(Struct, frozen=True):
    """What became of a session; `version` is what was trained with it ("" where none was)."""

    session_id: str
    fate: str
    reason: str
    version: str
    at: float


class Release(Struct, frozen=True):
    """A promotion: from `at` on, `version` is the release. `experiment_id` is None for the first one."""

    version: str
    at: float
    experiment_id: str | None


class PersonSession(Struct, frozen=True):
    """One live session of an experiment with its latest reward record; `outcome` is None while it has none."""

    person: str
    arm: Arm
    session_id: str
    opened_at: float
    outcome: Outcome | None
    reward: float | None
    signals: dict[str, float]


class SessionResult(Struct, frozen=True):
    """One live session that has its reward. `version` drew its first token; `arm` is None outside experiments."""

    session_id: str
    person: str
    opened_at: float
    experiment_id: str | None
    arm: Arm | None
    version: str
    outcome: Outcome
    reward: float | None
    signals: dict[str, float]


class BenchTask(Struct, frozen=True):
    """A task proposed for the bench, and whether it was taken; `reason` says why not."""

    task: Task
    source_session: str | None
    accepted: bool
    reason: str
    at: float


class SandboxRow(Struct, frozen=True):
    """One sandbox that was ever made; `destroyed_at` is None while it lives."""

    sandbox_id: str
    base: str
    purpose: str
    created_at: float
    destroyed_at: float | None


class Incident(Struct, frozen=True):
    """Something that a person should know about. `version` is the one that it is about and `rule` the reward rule then
    ("" where it is about neither), `sessions` show it. Open while `closed_at` is None."""

    incident_id: int
    kind: str
    message: str
    session_id: str | None
    at: float
    version: str = ""
    rule: str = ""
    closed_at: float | None = None
    closed_because: str = ""
    sessions: tuple[str, ...] = ()


class Progress(Struct, frozen=True):
    """The latest word of a long-running part about itself."""

    at: float
    value: Any


class Segment(Struct, frozen=True, eq=False):
    """One unbroken token sequence of T tokens, exactly as it was served.

    ids int32 [T]; sampled bool [T] (True where the model drew the token); logprobs float32 [T] (natural logarithm
    under the distribution sampled from; 0 where not sampled); experts uint16 [T, layers, k], 65535 where the choice
    is not known (never run, or a dense model); version_index int32 [T], an index into the session's `versions`, -1
    where not sampled."""

    ids: npt.NDArray[np.int32]
    sampled: npt.NDArray[np.bool_]
    logprobs: npt.NDArray[np.float32]
    experts: npt.NDArray[np.uint16]
    version_index: npt.NDArray[np.int32]


class TrainSession(Struct, frozen=True, eq=False):
    """A session that can be trained on: its chain of segments and its reward. `versions` are all versions that drew
    tokens in it, in order of first appearance. `arm` is None outside experiments."""

    session_id: str
    person: str
    arm: Arm | None
    opened_at: float
    request: str
    outcome: Outcome
    reward: float
    parts: dict[str, float]
    signals: dict[str, float]
    segments: tuple[Segment, ...]
    versions: tuple[str, ...]
