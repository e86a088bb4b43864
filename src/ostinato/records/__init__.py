"""The nouns of the house: frozen typed structs, the protocols at the seams, the errors, and the small pure rules that
several rooms share. Nothing comes in; every other room may import from here. This room imports no other room.
"""

from ostinato.records.arms import CANDIDATE, CONTROL, Arm, arm_of, in_held_out_group
from ostinato.records.chat import Message, Sampling, ToolCall, ToolSpec
from ostinato.records.engine import (
    Engine,
    FinishReason,
    GenerateChunk,
    GenerateRequest,
    Generation,
    SlotStatus,
    VersionSpan,
)
from ostinato.records.errors import (
    BadInputError,
    ConflictError,
    ContextFullError,
    MissingError,
    OstinatoError,
    UnavailableError,
)
from ostinato.records.experiments import Experiment, Look, Verdict
from ostinato.records.feedback import (
    Abandoned,
    AgentEnded,
    Cancelled,
    Commit,
    EditHunk,
    EditProposed,
    EditReverted,
    EditSurvival,
    EndReason,
    FeedbackEvent,
    FollowUp,
    Latency,
    Payload,
    Rating,
    SessionClosed,
)
from ostinato.records.ids import new_id
from ostinato.records.outcomes import Fate, Outcome, RewardRecord
from ostinato.records.sandbox import ExecResult, ForkRequest, SandboxInfo
from ostinato.records.sessions import Purpose, SessionRow, Turn, TurnTrace
from ostinato.records.tasks import EpisodeResult, Task
from ostinato.records.versions import Version, stays_float32

__all__ = [
    "CANDIDATE",
    "CONTROL",
    "Abandoned",
    "AgentEnded",
    "Arm",
    "BadInputError",
    "Cancelled",
    "Commit",
    "ConflictError",
    "ContextFullError",
    "EditHunk",
    "EditProposed",
    "EditReverted",
    "EditSurvival",
    "EndReason",
    "Engine",
    "EpisodeResult",
    "ExecResult",
    "Experiment",
    "Fate",
    "FeedbackEvent",
    "FinishReason",
    "FollowUp",
    "ForkRequest",
    "GenerateChunk",
    "GenerateRequest",
    "Generation",
    "Latency",
    "Look",
    "Message",
    "MissingError",
    "OstinatoError",
    "Outcome",
    "Payload",
    "Purpose",
    "Rating",
    "RewardRecord",
    "Sampling",
    "SandboxInfo",
    "SessionClosed",
    "SessionRow",
    "SlotStatus",
    "Task",
    "ToolCall",
    "ToolSpec",
    "Turn",
    "TurnTrace",
    "UnavailableError",
    "Verdict",
    "Version",
    "VersionSpan",
    "arm_of",
    "in_held_out_group",
    "new_id",
    "stays_float32",
]
