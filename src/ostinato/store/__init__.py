"""The ledger. In come sessions, turns with their token traces, feedback, rewards, fates, versions, releases,
experiments, episodes, sandboxes and counts, each durable before the call returns; out go the same as frozen structs,
the accounts, and sessions assembled into exact token segments for training. SQLite (write-ahead log, synchronous
FULL, group commit) in the data folder; traces of closed sessions move into sealed, checksummed objects. Every process
opens its own `Ledger`; the gateway is the owner. May import records only.
"""

from ostinato.store.chains import UNKNOWN_EXPERT
from ostinato.store.identity import ApiKey, ResponseIds, Scope
from ostinato.store.ledger import AsyncWriter, Ledger, Transaction
from ostinato.store.rows import (
    Accounts,
    BenchTask,
    FateRow,
    Incident,
    PersonSession,
    Progress,
    Release,
    SandboxRow,
    Segment,
    SessionResult,
    TrainSession,
)
from ostinato.store.session_writes import FeedbackStatus
from ostinato.store.traces import CorruptTraceError

__all__ = [
    "UNKNOWN_EXPERT",
    "Accounts",
    "ApiKey",
    "AsyncWriter",
    "BenchTask",
    "CorruptTraceError",
    "FateRow",
    "FeedbackStatus",
    "Incident",
    "Ledger",
    "PersonSession",
    "Progress",
    "Release",
    "ResponseIds",
    "SandboxRow",
    "Scope",
    "Segment",
    "SessionResult",
    "TrainSession",
    "Transaction",
]
