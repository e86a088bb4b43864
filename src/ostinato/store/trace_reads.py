"""Reads that follow turns to their traces, in the ledger or in sealed objects; and sessions made ready for training."""

import sqlite3
import time
from collections.abc import Iterable
from typing import Any

import msgspec

from ostinato.records import BadInputError, Fate, OstinatoError, RewardRecord, Turn, TurnTrace, VersionSpan, new_id
from ostinato.store.chains import assemble, request_text
from ostinato.store.learning_writes import add_incident, give_fate
from ostinato.store.reads import TRAINABLE, Reads
from ostinato.store.rows import TrainSession
from ostinato.store.session_writes import Writer, add_to_counter
from ostinato.store.traces import CorruptTraceError, Packed, Place, TraceStore, unpack

_TURN = (
    "SELECT turn_id, session_id, turn_index, segment, segment_reason, slot, versions, finish_reason, temperature,"
    " started_at, first_token_at, ended_at, trainable, untrainable_reason FROM turns"
)
_spans = msgspec.json.Decoder(tuple[VersionSpan, ...])
_reward = msgspec.json.Decoder(RewardRecord)


class TraceReads(Writer, Reads):
    """Turns with their traces."""

    _traces: TraceStore

    def turns(self, session_id: str, traces: bool = True) -> list[Turn]:
        """A session's turns in order of index, with their traces unless `traces` is False.

        Raises `CorruptTraceError` naming the damaged file."""
        with self._snapshot() as db:
            rows = db.execute(f"{_TURN} WHERE session_id = ? ORDER BY turn_index", (session_id,)).fetchall()
            held = (
                db.execute(
                    "SELECT turn_id, sha256, body, object, start, size FROM traces WHERE session_id = ?", (session_id,)
                ).fetchall()
                if traces
                else []
            )
        found = self._unpack(held)
        return [_turn(row, found.get(row[0])) for row in rows]

    def _unpack(self, held: list[tuple[Any, ...]]) -> dict[str, TurnTrace]:
        result: dict[str, TurnTrace] = {}
        sealed: dict[str, list[Place]] = {}
        for turn_id, sha256, body, key, start, size in held:
            if body is None:
                sealed.setdefault(key, []).append(Place(turn_id, start, size, sha256))
            else:
                result[turn_id] = unpack(body, sha256, f"the ledger, turn {turn_id}")
        for key, places in sealed.items():
            traces = self._traces.read(key, places)
            result.update((place.turn_id, trace) for place, trace in zip(places, traces, strict=True))
        return result

    def training_sessions(self, limit: int, experts_shape: tuple[int, int] = (0, 0)) -> list[TrainSession]:
        """Up to `limit` live sessions that can be trained on, those rewarded last coming first: their latest reward
        is a number, they have no fate, and all their turns are exact. `experts_shape` is the model's (layers of
        experts, experts chosen by a token); (0, 0) for a dense model.

        A session whose turns do not join exactly gets the fate "filtered" with the reason, one with a damaged trace
        "quarantined" (and an incident); both are counted and left out."""
        rows = self._query(
            f"SELECT s.session_id, s.person, s.arm, s.opened_at, r.record {TRAINABLE} ORDER BY r.reward_id DESC"
        )
        found: list[TrainSession] = []
        for row in rows:
            if len(found) >= limit:
                break
            try:
                found.append(self._train_session(row, experts_shape))
            except BadInputError as error:
                self._refuse(row[0], Fate.FILTERED, "training.misfit", error)
            except CorruptTraceError as error:
                self._refuse(row[0], Fate.QUARANTINED, "training.damaged_trace", error)
        return found

    def _train_session(self, row: tuple[Any, ...], experts_shape: tuple[int, int]) -> TrainSession:
        session_id, person, arm, opened_at, doc = row
        turns = self.turns(session_id)
        chain = assemble(turns, experts_shape)
        record = _reward.decode(doc)
        assert record.reward is not None, "the query asks for it"
        return TrainSession(
            session_id=session_id,
            person=person,
            arm=arm,
            opened_at=opened_at,
            request=request_text(self.request(turns[0].turn_id)),
            outcome=record.outcome,
            reward=record.reward,
            parts=record.parts,
            signals=record.signals,
            segments=chain.segments,
            versions=chain.versions,
        )

    def _refuse(self, session_id: str, fate: Fate, counter: str, error: OstinatoError) -> None:
        """The fate, the count and the incident come into being together."""

        def write(db: sqlite3.Connection) -> None:
            add_to_counter(db, counter, 1)
            give_fate(db, session_id, fate, error.message, "")
            if fate is Fate.QUARANTINED:
                add_incident(db, "damaged_trace", error.message, time.time(), session_id)

        self._run(write)

    def unsealed_sessions(self, limit: int) -> list[str]:
        """Up to `limit` sessions that are closed or have a fate and whose traces still lie in the ledger."""
        rows = self._query(
            "SELECT DISTINCT t.session_id FROM traces t JOIN sessions s ON s.session_id = t.session_id"
            " WHERE t.body IS NOT NULL AND (s.closed_at IS NOT NULL"
            " OR EXISTS (SELECT 1 FROM fates f WHERE f.session_id = s.session_id)) LIMIT ?",
            (limit,),
        )
        return [str(session_id) for (session_id,) in rows]

    def _sealable(self, session_ids: Iterable[str]) -> list[Packed]:
        packed: list[Packed] = []
        for session_id in session_ids:
            rows = self._query(
                "SELECT t.turn_id, t.body, t.sha256 FROM traces t JOIN sessions s ON s.session_id = t.session_id"
                " JOIN turns u ON u.turn_id = t.turn_id"
                " WHERE t.session_id = ? AND t.body IS NOT NULL AND (s.closed_at IS NOT NULL"
                " OR EXISTS (SELECT 1 FROM fates f WHERE f.session_id = s.session_id)) ORDER BY u.turn_index",
                (session_id,),
            )
            packed += [Packed(*row) for row in rows]
        return packed

    def _fresh_key(self) -> str:
        return f"segments/{new_id()}.seg"

    def _verify_objects(self) -> dict[str, str]:
        damaged: dict[str, str] = {}
        for (key,) in self._query("SELECT DISTINCT object FROM traces WHERE object IS NOT NULL"):
            try:
                self._traces.verify(key)
            except CorruptTraceError as error:
                damaged[key] = error.message
        return damaged


def _turn(row: tuple[Any, ...], trace: TurnTrace | None) -> Turn:
    before, versions, between, trainable, reason = row[:6], row[6], row[7:12], row[12], row[13]
    values = (*before, _spans.decode(versions), *between, bool(trainable), reason, trace)
    return Turn(*values)
