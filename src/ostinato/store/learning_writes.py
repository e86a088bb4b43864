"""Writes of the parts that learn: rewards, fates, versions, experiments, episodes, sandboxes, counters."""

import sqlite3
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from ostinato.records import (
    BadInputError,
    ConflictError,
    EpisodeResult,
    Experiment,
    Fate,
    Look,
    MissingError,
    RewardRecord,
    SandboxInfo,
    Task,
    Version,
)
from ostinato.store.identity import Scope, new_secret, secret_hash
from ostinato.store.session_writes import Writer, add_to_counter, need_session

# A person may take a session back after any other end of it.
_TAKEN_BACK = (Fate.OPTED_OUT, Fate.ERASED)


def _doc(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def give_fate(db: sqlite3.Connection, session_id: str, fate: Fate, reason: str, version: str) -> None:
    """Give a session its end inside an open transaction; see `LearningWrites.put_fate`."""
    need_session(db, session_id)
    held = db.execute("SELECT fate FROM fates WHERE session_id = ?", (session_id,)).fetchone()
    if held is not None and held[0] == fate.value:
        return
    if held is not None and fate not in _TAKEN_BACK:
        raise ConflictError(
            f"Session {session_id!r} has the fate {held[0]!r} already; it cannot become {fate.value!r}.",
            hint="A session has one fate. See it: ostinato status",
        )
    db.execute(
        "INSERT INTO fates VALUES (?, ?, ?, ?, ?) ON CONFLICT (session_id) DO UPDATE SET"
        " fate = excluded.fate, reason = excluded.reason, version = excluded.version, at = excluded.at",
        (session_id, fate.value, reason, version, time.time()),
    )


def add_incident(
    db: sqlite3.Connection,
    kind: str,
    message: str,
    at: float,
    session_id: str | None,
    *,
    version: str = "",
    rule: str = "",
    sessions: Sequence[str] = (),
) -> None:
    """Record an incident inside an open transaction."""
    db.execute(
        "INSERT INTO incidents (kind, message, session_id, at, version, rule, sessions) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (kind, message, session_id, at, version, rule, _doc(list(sessions))),
    )


class LearningWrites(Writer):
    """Everything that is not a session, a turn or feedback."""

    def put_reward(self, record: RewardRecord) -> None:
        """Add a reward. Earlier ones of the session stay as history; the latest one counts."""

        def write(db: sqlite3.Connection) -> None:
            need_session(db, record.session_id)
            db.execute(
                "INSERT INTO rewards (session_id, outcome, reward, record, at) VALUES (?, ?, ?, ?, ?)",
                (record.session_id, record.outcome.value, record.reward, _doc(record), record.at),
            )

        self._run(write)

    def put_fate(self, session_id: str, fate: Fate, reason: str, version: str = "") -> None:
        """Give a session its end. The same fate again changes nothing; another one is refused with `ConflictError`,
        except that a person may opt out or be erased afterwards."""

        self._run(lambda db: give_fate(db, session_id, fate, reason, version))

    def put_version(self, version: Version) -> None:
        """Record a published version; again changes nothing (a version is named by its content)."""
        self._run(
            lambda db: db.execute(
                "INSERT INTO versions VALUES (?, ?, ?) ON CONFLICT (version) DO NOTHING",
                (version.version, version.created_at, _doc(version)),
            )
        )

    def put_release(self, version: str, at: float, experiment_id: str | None = None) -> None:
        """Record a promotion: `version` is the release from `at` on."""
        self._run(
            lambda db: db.execute(
                "INSERT INTO releases (version, at, experiment_id) VALUES (?, ?, ?)", (version, at, experiment_id)
            )
        )

    def put_experiment(self, experiment: Experiment) -> None:
        """Record an experiment or its new state. Raises `ConflictError` while another one is running."""

        def write(db: sqlite3.Connection) -> None:
            try:
                db.execute(
                    "INSERT INTO experiments VALUES (?, ?, ?, ?, ?) ON CONFLICT (experiment_id) DO UPDATE SET"
                    " cycle = excluded.cycle, verdict = excluded.verdict, started_at = excluded.started_at,"
                    " record = excluded.record",
                    (
                        *(experiment.experiment_id, experiment.cycle, experiment.verdict, experiment.started_at),
                        _doc(experiment),
                    ),
                )
            except sqlite3.IntegrityError:
                raise ConflictError(
                    f"Experiment {experiment.experiment_id!r} cannot run: another one is running.",
                    hint="Decide that one first. See it: ostinato status",
                ) from None

        self._run(write)

    def put_look(self, look: Look) -> None:
        """Record a look at an experiment."""
        self._run(
            lambda db: db.execute(
                "INSERT INTO looks (experiment_id, metric, at, record) VALUES (?, ?, ?, ?)",
                (look.experiment_id, look.metric, look.at, _doc(look)),
            )
        )

    def put_episode(self, run_id: str, result: EpisodeResult) -> None:
        """Record what came of one run of the agent on a task, as part of the bench run `run_id`."""
        self._run(
            lambda db: db.execute(
                "INSERT INTO episodes (run_id, version, task_id, session_id, record) VALUES (?, ?, ?, ?, ?)",
                (run_id, result.version, result.task_id, result.session_id, _doc(result)),
            )
        )

    def put_bench_task(
        self, task: Task, *, accepted: bool, reason: str = "", source_session: str | None = None
    ) -> None:
        """Record a task proposed for the bench and whether it was taken; the same task id again replaces it."""
        if not accepted and not reason:
            raise BadInputError(f"Bench task {task.task_id!r} is refused without a reason.", hint="Give a reason.")
        self._run(
            lambda db: db.execute(
                "INSERT INTO bench_tasks VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (task_id) DO UPDATE SET"
                " source_session = excluded.source_session, accepted = excluded.accepted, reason = excluded.reason,"
                " at = excluded.at, task = excluded.task",
                (task.task_id, source_session, int(accepted), reason, time.time(), _doc(task)),
            )
        )

    def put_sandbox(self, sandbox: SandboxInfo, purpose: str, at: float) -> None:
        """Record that a sandbox was made."""
        self._run(
            lambda db: db.execute(
                "INSERT INTO sandboxes VALUES (?, ?, ?, ?, NULL) ON CONFLICT (sandbox_id) DO NOTHING",
                (sandbox.sandbox_id, sandbox.base, purpose, at),
            )
        )

    def end_sandbox(self, sandbox_id: str, at: float) -> None:
        """Record that a sandbox is gone. The first time stays."""
        self._run(
            lambda db: db.execute(
                "UPDATE sandboxes SET destroyed_at = coalesce(destroyed_at, ?) WHERE sandbox_id = ?", (at, sandbox_id)
            )
        )

    def count(self, name: str, by: int = 1) -> None:
        """Raise a counter: anything dropped, refused or not attributed leaves a number."""
        self._run(lambda db: add_to_counter(db, name, by))

    def put_incident(
        self,
        kind: str,
        message: str,
        at: float,
        session_id: str | None = None,
        *,
        version: str = "",
        rule: str = "",
        sessions: Sequence[str] = (),
    ) -> None:
        """Open an incident; see `rows.Incident`."""
        self._run(
            lambda db: add_incident(db, kind, message, at, session_id, version=version, rule=rule, sessions=sessions)
        )

    def close_incident(self, incident_id: int, because: str, at: float) -> None:
        """Close an open incident. Raises `MissingError` where there is none of that number."""

        def write(db: sqlite3.Connection) -> None:
            changed = db.execute(
                "UPDATE incidents SET closed_at = ?, closed_because = ? WHERE incident_id = ? AND closed_at IS NULL",
                (at, because, incident_id),
            )
            if changed.rowcount == 0:
                raise MissingError(
                    f"There is no open incident {incident_id}.", hint="Those that are open: ostinato incidents"
                )

        self._run(write)

    def put_progress(self, name: str, value: Any) -> None:
        """Replace what the part `name` says about itself; `value` is anything that JSON holds."""
        self._run(
            lambda db: db.execute(
                "INSERT INTO progress VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE SET"
                " at = excluded.at, value = excluded.value",
                (name, time.time(), _doc(value)),
            )
        )

    def create_key(self, name: str, scopes: frozenset[Scope]) -> str:
        """Make an API key and return its secret, which cannot be read again. Raises `ConflictError` for a used name."""
        secret = new_secret()

        def write(db: sqlite3.Connection) -> None:
            try:
                db.execute(
                    "INSERT INTO api_keys VALUES (?, ?, ?, ?, NULL)",
                    (secret_hash(secret), name, _doc(sorted(scopes)), time.time()),
                )
            except sqlite3.IntegrityError:
                raise ConflictError(f"A key named {name!r} exists.", hint="Choose another name.") from None

        self._run(write)
        return secret

    def revoke_key(self, name: str) -> bool:
        """End a key; False when no live key has this name."""
        return self._run(
            lambda db: (
                db.execute(
                    "UPDATE api_keys SET revoked_at = ? WHERE name = ? AND revoked_at IS NULL", (time.time(), name)
                ).rowcount
                == 1
            )
        )
