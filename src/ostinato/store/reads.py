"""Questions to the ledger that need no traces. Readers see what is committed and never block the writer."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from ostinato.records import (
    EpisodeResult,
    Experiment,
    Fate,
    FeedbackEvent,
    Look,
    MissingError,
    Outcome,
    Payload,
    Purpose,
    RewardRecord,
    SessionRow,
    Version,
    VersionSpan,
)
from ostinato.store.identity import ApiKey, Scope, secret_hash
from ostinato.store.rows import (
    Accounts,
    BenchTask,
    FateRow,
    Incident,
    PersonSession,
    Progress,
    Release,
    SandboxRow,
    SessionResult,
)

_SESSION = (
    "SELECT s.session_id, s.person, s.purpose, s.opened_at, s.last_at, s.experiment_id, s.arm, s.found_by,"
    " s.closed_at, s.sandbox_id FROM sessions s"
)
LATEST_REWARD = "r.reward_id = (SELECT max(reward_id) FROM rewards WHERE session_id = s.session_id)"
TRAINABLE = (
    f"FROM sessions s JOIN rewards r ON r.session_id = s.session_id AND {LATEST_REWARD}"
    " WHERE s.purpose = 'live' AND r.reward IS NOT NULL"
    " AND NOT EXISTS (SELECT 1 FROM fates f WHERE f.session_id = s.session_id)"
    " AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.session_id = s.session_id"
    " AND (t.trainable = 0 OR t.ended_at IS NULL))"
)
_payload = msgspec.json.Decoder(Payload)
_reward = msgspec.json.Decoder(RewardRecord)
_spans = msgspec.json.Decoder(tuple[VersionSpan, ...])
_version = msgspec.json.Decoder(Version)
_experiment = msgspec.json.Decoder(Experiment)
_look = msgspec.json.Decoder(Look)
_episode = msgspec.json.Decoder(EpisodeResult)


class Reads:
    """Reads over one connection, one at a time."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._reader = db
        self._reading = threading.Lock()

    def _query(self, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        with self._reading:
            return self._reader.execute(sql, values).fetchall()

    @contextmanager
    def _snapshot(self) -> Iterator[sqlite3.Connection]:
        """Several queries that see one state."""
        with self._reading:
            self._reader.execute("BEGIN")
            try:
                yield self._reader
            finally:
                self._reader.execute("COMMIT")

    def session(self, session_id: str) -> SessionRow | None:
        """One session, or None."""
        rows = self._query(f"{_SESSION} WHERE s.session_id = ?", (session_id,))
        return SessionRow(*rows[0]) if rows else None

    def sessions(self, purpose: Purpose | None = None) -> list[SessionRow]:
        """All sessions, oldest first."""
        rows = self._query(f"{_SESSION} WHERE ? IS NULL OR s.purpose = ? ORDER BY s.opened_at", (purpose, purpose))
        return [SessionRow(*row) for row in rows]

    def open_sessions(self) -> list[SessionRow]:
        """Sessions that were not closed and have no fate, oldest first."""
        rows = self._query(
            f"{_SESSION} WHERE s.closed_at IS NULL AND NOT EXISTS"
            " (SELECT 1 FROM fates f WHERE f.session_id = s.session_id) ORDER BY s.opened_at"
        )
        return [SessionRow(*row) for row in rows]

    def sessions_without_fate(self, purpose: Purpose = "live") -> list[SessionRow]:
        """Sessions whose end is not decided, closed or not, oldest first."""
        rows = self._query(
            f"{_SESSION} WHERE s.purpose = ? AND NOT EXISTS"
            " (SELECT 1 FROM fates f WHERE f.session_id = s.session_id) ORDER BY s.opened_at",
            (purpose,),
        )
        return [SessionRow(*row) for row in rows]

    def turn_session(self, turn_id: str) -> str | None:
        """The session of a turn (a response id), or None for a turn that is not stored."""
        rows = self._query("SELECT session_id FROM turns WHERE turn_id = ?", (turn_id,))
        return str(rows[0][0]) if rows else None

    def request(self, turn_id: str) -> bytes:
        """The JSON array of messages that a turn answered. Raises `MissingError`."""
        rows = self._query("SELECT messages FROM requests WHERE turn_id = ?", (turn_id,))
        if not rows:
            raise MissingError(f"The ledger has no turn {turn_id!r}.", hint="List sessions: ostinato status")
        return bytes(rows[0][0])

    def feedback(self, session_id: str) -> list[FeedbackEvent]:
        """A session's reports, in the order of the client's clock."""
        rows = self._query(
            "SELECT event_id, response_id, at, payload FROM feedback WHERE session_id = ? ORDER BY at, event_id",
            (session_id,),
        )
        return [FeedbackEvent(event, response, at, _payload.decode(doc)) for event, response, at, doc in rows]

    def parked_feedback(self) -> int:
        """How many reports wait for their turn now. Each is kept until its turn begins, however long that is."""
        return int(self._query("SELECT count(*) FROM feedback WHERE session_id IS NULL")[0][0])

    def rewards(self, session_id: str) -> list[RewardRecord]:
        """Every reward that a session was given, oldest first; the last one counts."""
        rows = self._query("SELECT record FROM rewards WHERE session_id = ? ORDER BY reward_id", (session_id,))
        return [_reward.decode(doc) for (doc,) in rows]

    def rewarded_before_feedback(self) -> set[str]:
        """Live sessions without a fate that have more reports than their latest reward was computed from."""
        rows = self._query(
            f"SELECT s.session_id FROM sessions s JOIN rewards r ON {LATEST_REWARD} WHERE s.purpose = 'live'"
            " AND NOT EXISTS (SELECT 1 FROM fates f WHERE f.session_id = s.session_id)"
            " AND (SELECT count(*) FROM feedback b WHERE b.session_id = s.session_id) > r.record ->> '$.reports'"
        )
        return {str(session_id) for (session_id,) in rows}

    def latest_rewards(self, purpose: Purpose = "live") -> dict[str, RewardRecord]:
        """The reward that counts, by session id."""
        rows = self._query(
            f"SELECT r.record FROM sessions s JOIN rewards r ON {LATEST_REWARD} WHERE s.purpose = ?", (purpose,)
        )
        return {record.session_id: record for record in (_reward.decode(doc) for (doc,) in rows)}

    def fate(self, session_id: str) -> FateRow | None:
        """What became of a session, or None while it is open."""
        rows = self._query(
            "SELECT session_id, fate, reason, version, at FROM fates WHERE session_id = ?", (session_id,)
        )
        return FateRow(*rows[0]) if rows else None

    def fates(self, fate: Fate | None = None) -> list[FateRow]:
        """All fates given so far (of one kind), in order of time."""
        rows = self._query(
            "SELECT session_id, fate, reason, version, at FROM fates WHERE ? IS NULL OR fate = ? ORDER BY at",
            (fate, fate),
        )
        return [FateRow(*row) for row in rows]

    def opted_out(self, session_id: str) -> bool:
        """Whether nothing of a session may be kept."""
        rows = self._query("SELECT 1 FROM fates WHERE session_id = ? AND fate = ?", (session_id, Fate.OPTED_OUT))
        return bool(rows)

    def accounts(self, purpose: Purpose = "live") -> Accounts:
        """The balance: sessions, open ones, and each fate, counted apart in one snapshot."""
        with self._snapshot() as db:
            total = db.execute("SELECT count(*) FROM sessions WHERE purpose = ?", (purpose,)).fetchone()[0]
            unfinished = db.execute(
                "SELECT count(*) FROM sessions s LEFT JOIN fates f ON f.session_id = s.session_id"
                " WHERE s.purpose = ? AND f.session_id IS NULL",
                (purpose,),
            ).fetchone()[0]
            ended = db.execute(
                "SELECT f.fate, count(*) FROM fates f JOIN sessions s ON s.session_id = f.session_id"
                " WHERE s.purpose = ? GROUP BY f.fate",
                (purpose,),
            ).fetchall()
        fates = {fate.value: 0 for fate in Fate} | {str(name): int(number) for name, number in ended}
        return Accounts(purpose=purpose, sessions=int(total), open=int(unfinished), fates=fates)

    def versions(self) -> list[Version]:
        """Published versions, oldest first."""
        return [_version.decode(doc) for (doc,) in self._query("SELECT record FROM versions ORDER BY created_at")]

    def current_release(self) -> Release | None:
        """The version that people are served outside the candidate's arm; None before the first release."""
        rows = self._query("SELECT version, at, experiment_id FROM releases ORDER BY release_id DESC LIMIT 1")
        return Release(*rows[0]) if rows else None

    def releases(self) -> list[Release]:
        """Every promotion, oldest first."""
        rows = self._query("SELECT version, at, experiment_id FROM releases ORDER BY release_id")
        return [Release(*row) for row in rows]

    def running_experiment(self) -> Experiment | None:
        """The experiment that people are in now, or None."""
        rows = self._query("SELECT record FROM experiments WHERE verdict = 'running'")
        return _experiment.decode(rows[0][0]) if rows else None

    def experiments(self) -> list[Experiment]:
        """All experiments, oldest first."""
        rows = self._query("SELECT record FROM experiments ORDER BY started_at, experiment_id")
        return [_experiment.decode(doc) for (doc,) in rows]

    def looks(self, experiment_id: str | None = None) -> list[Look]:
        """The looks at one experiment, or at all of them, in order."""
        rows = self._query(
            "SELECT record FROM looks WHERE ? IS NULL OR experiment_id = ? ORDER BY look_id",
            (experiment_id, experiment_id),
        )
        return [_look.decode(doc) for (doc,) in rows]

    def person_sessions(self, experiment_id: str) -> list[PersonSession]:
        """The live sessions of an experiment with their latest rewards, for statistics; those without one too."""
        rows = self._query(
            "SELECT s.person, s.arm, s.session_id, s.opened_at, r.record FROM sessions s"
            f" LEFT JOIN rewards r ON r.session_id = s.session_id AND {LATEST_REWARD}"
            " WHERE s.experiment_id = ? AND s.purpose = 'live' AND s.arm IS NOT NULL ORDER BY s.opened_at",
            (experiment_id,),
        )
        found = []
        for person, arm, session_id, opened_at, doc in rows:
            record = None if doc is None else _reward.decode(doc)
            outcome: Outcome | None = None if record is None else record.outcome
            reward = None if record is None else record.reward
            signals = {} if record is None else record.signals
            found.append(PersonSession(person, arm, session_id, opened_at, outcome, reward, signals))
        return found

    def results(self) -> list[SessionResult]:
        """Every live session that has a reward record, in order of opening, with the version that served it."""
        rows = self._query(
            "SELECT s.session_id, s.person, s.opened_at, s.experiment_id, s.arm, t.versions, r.record FROM sessions s"
            f" JOIN rewards r ON r.session_id = s.session_id AND {LATEST_REWARD}"
            " JOIN turns t ON t.session_id = s.session_id AND t.turn_index = 0"
            " WHERE s.purpose = 'live' ORDER BY s.opened_at, s.session_id"
        )
        found = []
        for session_id, person, opened_at, experiment_id, arm, spans, doc in rows:
            record, drawn = _reward.decode(doc), _spans.decode(spans)
            version = drawn[0].version if drawn else ""
            known = (session_id, person, opened_at, experiment_id, arm, version)
            found.append(SessionResult(*known, record.outcome, record.reward, record.signals))
        return found

    def trainable_count(self) -> int:
        """How many live sessions have a reward, no fate yet, and exact turns alone: what the next training can take."""
        return int(self._query(f"SELECT count(*) {TRAINABLE}")[0][0])

    def sandbox_count(self) -> int:
        """How many sandboxes were ever made."""
        return int(self._query("SELECT count(*) FROM sandboxes")[0][0])

    def episodes(self, run_id: str | None = None, version: str | None = None) -> list[EpisodeResult]:
        """Results of bench runs, of one run, one version, or both, in order."""
        rows = self._query(
            "SELECT record FROM episodes WHERE (? IS NULL OR run_id = ?) AND (? IS NULL OR version = ?)"
            " ORDER BY episode_id",
            (run_id, run_id, version, version),
        )
        return [_episode.decode(doc) for (doc,) in rows]

    def bench_tasks(self, accepted: bool | None = None) -> list[BenchTask]:
        """Tasks proposed for the bench, in order of time."""
        rows = self._query(
            "SELECT task, source_session, accepted, reason, at FROM bench_tasks WHERE ? IS NULL OR accepted = ?"
            " ORDER BY at, task_id",
            (accepted, accepted),
        )
        return [
            msgspec.convert(
                {"task": msgspec.json.decode(doc), "source_session": source, "accepted": bool(taken), "reason": reason}
                | {"at": at},
                BenchTask,
            )
            for doc, source, taken, reason, at in rows
        ]

    def sandboxes(self) -> list[SandboxRow]:
        """Every sandbox ever made, oldest first."""
        rows = self._query(
            "SELECT sandbox_id, base, purpose, created_at, destroyed_at FROM sandboxes ORDER BY created_at"
        )
        return [SandboxRow(*row) for row in rows]

    def counters(self) -> dict[str, int]:
        """All counters by name."""
        return {str(name): int(value) for name, value in self._query("SELECT name, value FROM counters ORDER BY name")}

    def incidents(self, *, only_open: bool = False) -> list[Incident]:
        """What people should know about, oldest first."""
        rows = self._query(
            "SELECT incident_id, kind, message, session_id, at, version, rule, closed_at, closed_because, sessions"
            " FROM incidents WHERE closed_at IS NULL OR NOT ? ORDER BY incident_id",
            (only_open,),
        )
        return [Incident(*(*row[:9], tuple(msgspec.json.decode(row[9])))) for row in rows]

    def progress(self) -> dict[str, Progress]:
        """What each part last said about itself."""
        rows = self._query("SELECT name, at, value FROM progress ORDER BY name")
        return {str(name): Progress(at, msgspec.json.decode(doc)) for name, at, doc in rows}

    def has_keys(self) -> bool:
        """Whether any API key was ever made; without one a loopback gateway is open to its one person."""
        return bool(self._query("SELECT 1 FROM api_keys LIMIT 1"))

    def check_key(self, secret: str) -> ApiKey | None:
        """The key with this secret, or None when there is none or it was revoked. The lookup is by hash, so its time
        says nothing about the secret."""
        rows = self._query(
            "SELECT name, scopes, created_at FROM api_keys WHERE secret_sha256 = ? AND revoked_at IS NULL",
            (secret_hash(secret),),
        )
        if not rows:
            return None
        name, scopes, created_at = rows[0]
        return ApiKey(name, msgspec.json.decode(scopes, type=frozenset[Scope]), created_at)
