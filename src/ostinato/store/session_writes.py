"""Writes of the gateway: sessions, turns, feedback. Each is durable when the call returns."""

import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal, TypeVar

import msgspec

from ostinato.records import ConflictError, FeedbackEvent, MissingError, SessionRow, Turn
from ostinato.store.traces import pack

T = TypeVar("T")
FeedbackStatus = Literal["stored", "duplicate", "parked"]

_json = msgspec.json.encode


class Writer(ABC):
    """Where a write goes: a transaction of its own (the ledger) or one that is already open (`Transaction`)."""

    @abstractmethod
    def _run(self, write: Callable[[sqlite3.Connection], T]) -> T: ...


def add_to_counter(db: sqlite3.Connection, name: str, by: int) -> None:
    """Raise a counter inside an open transaction."""
    db.execute(
        "INSERT INTO counters VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = counters.value + excluded.value",
        (name, by),
    )


def need_session(db: sqlite3.Connection, session_id: str) -> None:
    """Raise `MissingError` for a session that the ledger does not know."""
    if db.execute("SELECT 1 FROM sessions WHERE session_id = ?", (session_id,)).fetchone() is None:
        raise MissingError(f"The ledger has no session {session_id!r}.", hint="List them: ostinato status")


class SessionWrites(Writer):
    """Sessions, turns and feedback."""

    def open_session(self, session: SessionRow) -> None:
        """Record a session. A session id that is known already stays as it is."""
        row = msgspec.structs.astuple(session)
        self._run(
            lambda db: db.execute(
                "INSERT INTO sessions (session_id, person, purpose, opened_at, last_at, experiment_id, arm, found_by,"
                " closed_at, sandbox_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (session_id) DO NOTHING",
                row,
            )
        )

    def touch_session(self, session_id: str, at: float, *, sandbox_id: str | None = None) -> None:
        """Note that a session was alive at `at` (turns do this by themselves), and its sandbox if one is given."""

        def write(db: sqlite3.Connection) -> None:
            need_session(db, session_id)
            db.execute(
                "UPDATE sessions SET last_at = max(last_at, ?), sandbox_id = coalesce(?, sandbox_id)"
                " WHERE session_id = ?",
                (at, sandbox_id, session_id),
            )

        self._run(write)

    def close_session(self, session_id: str, at: float) -> None:
        """No more will come of this session. The first closing time stays."""

        def write(db: sqlite3.Connection) -> None:
            need_session(db, session_id)
            db.execute("UPDATE sessions SET closed_at = coalesce(closed_at, ?) WHERE session_id = ?", (at, session_id))

        self._run(write)

    def begin_turn(self, turn: Turn, request_json: bytes) -> None:
        """Record a turn at its start. `request_json` is the request's JSON array of chat messages (OpenAI form).

        Feedback that came early for this turn is joined to it. Raises `MissingError` for an unknown session and
        `ConflictError` when the turn, or the session's turn with this index, exists already."""
        versions = _json(turn.versions).decode()

        def write(db: sqlite3.Connection) -> None:
            need_session(db, turn.session_id)
            try:
                db.execute(
                    "INSERT INTO turns VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        *(turn.turn_id, turn.session_id, turn.index, turn.segment, turn.segment_reason, turn.slot),
                        *(versions, turn.finish_reason, turn.temperature, turn.started_at, turn.first_token_at),
                        *(None, int(turn.trainable), turn.untrainable_reason),
                    ),
                )
            except sqlite3.IntegrityError:
                raise ConflictError(
                    f"Turn {turn.turn_id!r} (index {turn.index} of session {turn.session_id!r}) was begun already.",
                    hint="Give every turn a fresh response id and the next index.",
                ) from None
            db.execute("INSERT INTO requests VALUES (?, ?)", (turn.turn_id, request_json))
            db.execute(
                "UPDATE sessions SET last_at = max(last_at, ?) WHERE session_id = ?", (turn.started_at, turn.session_id)
            )
            _claim(db, turn.turn_id, turn.session_id)

        self._run(write)

    def finish_turn(self, turn: Turn) -> None:
        """Record how a turn ended, with its trace. `turn.ended_at` must be set; only the fields that can change
        after the start are written (segment, slot, versions, times, reasons).

        Raises `MissingError` when it was not begun and `ConflictError` when it has ended already."""
        packed = None if turn.trace is None else pack(turn.turn_id, turn.trace)
        assert turn.ended_at is not None, "a finished turn has an end"
        values = (
            *(turn.segment, turn.segment_reason, turn.slot, _json(turn.versions).decode(), turn.finish_reason),
            *(turn.first_token_at, turn.ended_at, int(turn.trainable), turn.untrainable_reason),
            *(turn.turn_id, turn.session_id),
        )

        def write(db: sqlite3.Connection) -> None:
            changed = db.execute(
                "UPDATE turns SET segment = ?, segment_reason = ?, slot = ?, versions = ?, finish_reason = ?,"
                " first_token_at = ?, ended_at = ?, trainable = ?, untrainable_reason = ?"
                " WHERE turn_id = ? AND session_id = ? AND ended_at IS NULL",
                values,
            ).rowcount
            if not changed:
                raise _not_open(db, turn.turn_id)
            if packed is not None:
                db.execute(
                    "INSERT INTO traces (turn_id, session_id, sha256, body, size) VALUES (?, ?, ?, ?, ?)",
                    (packed.turn_id, turn.session_id, packed.sha256, packed.body, len(packed.body)),
                )
            db.execute(
                "UPDATE sessions SET last_at = max(last_at, ?) WHERE session_id = ?", (turn.ended_at, turn.session_id)
            )

        self._run(write)

    def add_feedback(self, event: FeedbackEvent, session_id: str | None) -> FeedbackStatus:
        """Record a report once. `session_id` None means that the caller does not know the response: it is joined to
        the session of a stored turn with that id, else parked until such a turn begins.

        The same event id again is "duplicate" and changes nothing; one with another payload is also counted as
        "feedback.conflicting"."""
        payload = _json(event.payload).decode()
        kind = str(msgspec.to_builtins(event.payload)["kind"])
        received_at = time.time()

        def write(db: sqlite3.Connection) -> FeedbackStatus:
            owner = session_id
            if owner is None:
                found = db.execute("SELECT session_id FROM turns WHERE turn_id = ?", (event.response_id,)).fetchone()
                owner = None if found is None else str(found[0])
            else:
                need_session(db, owner)
            added = db.execute(
                "INSERT INTO feedback VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (event_id) DO NOTHING",
                (event.event_id, event.response_id, owner, kind, event.at, received_at, payload),
            ).rowcount
            if added:
                return "parked" if owner is None else "stored"
            held = db.execute(
                "SELECT payload, response_id FROM feedback WHERE event_id = ?", (event.event_id,)
            ).fetchone()
            if held != (payload, event.response_id):
                add_to_counter(db, "feedback.conflicting", 1)
            return "duplicate"

        return self._run(write)

    def claim_parked(self, response_id: str, session_id: str) -> int:
        """Join parked feedback for a response to its session; how many reports were joined. (`begin_turn` does it.)"""

        def write(db: sqlite3.Connection) -> int:
            need_session(db, session_id)
            return _claim(db, response_id, session_id)

        return self._run(write)

    def cut_unfinished_turns(self, at: float) -> int:
        """End turns whose gateway died before they did: not trainable, and counted. For the owner at its start."""

        def write(db: sqlite3.Connection) -> int:
            cut = db.execute(
                "UPDATE turns SET ended_at = ?, finish_reason = 'cancelled', trainable = 0,"
                " untrainable_reason = 'the gateway ended before the turn did' WHERE ended_at IS NULL",
                (at,),
            ).rowcount
            if cut:
                add_to_counter(db, "turns.cut_by_restart", cut)
            return cut

        return self._run(write)


def _claim(db: sqlite3.Connection, response_id: str, session_id: str) -> int:
    return db.execute(
        "UPDATE feedback SET session_id = ? WHERE response_id = ? AND session_id IS NULL", (session_id, response_id)
    ).rowcount


def _not_open(db: sqlite3.Connection, turn_id: str) -> MissingError | ConflictError:
    row = db.execute("SELECT session_id, ended_at FROM turns WHERE turn_id = ?", (turn_id,)).fetchone()
    if row is None:
        return MissingError(f"The ledger has no turn {turn_id!r}.", hint="Begin a turn before it ends: begin_turn")
    return ConflictError(
        f"Turn {turn_id!r} of session {row[0]!r} cannot end now (it ended at {row[1]}).",
        hint="A turn ends once, in the session in which it began.",
    )
