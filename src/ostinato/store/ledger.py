"""The ledger: what happened, durable when acknowledged. One object for each process; safe to use from any thread."""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from ostinato.store.committer import GroupCommitter
from ostinato.store.connections import LEDGER_NAME, InstanceLock, connect, migrate, migrations
from ostinato.store.learning_writes import LearningWrites
from ostinato.store.reads import Reads
from ostinato.store.session_writes import SessionWrites
from ostinato.store.trace_reads import TraceReads
from ostinato.store.traces import TraceStore

T = TypeVar("T")


class Transaction(SessionWrites, LearningWrites):
    """All writes of the ledger, inside one transaction that is open: they become durable together or not at all."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def _run(self, write: Callable[[sqlite3.Connection], T]) -> T:
        return write(self._db)


class Ledger(SessionWrites, LearningWrites, TraceReads, Reads):
    """The ledger of one data folder, in SQLite. Make it with `Ledger.open`.

    Every write method is a transaction of its own, durable on return, and shares its fsync with other threads' writes.
    `commit` makes several writes one transaction; `AsyncWriter` is the same for asyncio."""

    def __init__(self, folder: Path, traces: TraceStore, lock: InstanceLock | None) -> None:
        path = folder / LEDGER_NAME
        Reads.__init__(self, connect(path, reader=True))
        self.folder = folder
        self.committer = GroupCommitter(path, checkpoints=lock is not None)
        self._traces = traces
        self._lock = lock

    @classmethod
    def open(cls, folder: Path, *, owner: bool = False, traces_url: str = "") -> "Ledger":
        """Open the ledger in `folder`, making or migrating it as needed. Sealed traces go to `folder`/traces, or to
        the object store at `traces_url`.

        The `owner` (the gateway) holds the folder's instance lock, checkpoints the log, and ends turns that an earlier
        owner left open. Raises `ConflictError` naming the process that owns the folder, or for a newer schema."""
        folder = folder.absolute()
        folder.mkdir(parents=True, exist_ok=True)
        lock = InstanceLock(folder) if owner else None
        try:
            migrate(folder / LEDGER_NAME, migrations())
            ledger = cls(folder, TraceStore(folder / "traces", traces_url), lock)
        except BaseException:
            if lock is not None:
                lock.release()
            raise
        if owner:
            ledger.cut_unfinished_turns(time.time())
        return ledger

    def close(self) -> None:
        """Commit what waits and let go of the files. A second call does nothing."""
        self.committer.close()
        with self._reading:
            self._reader.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def commit(self, write: Callable[[Transaction], T]) -> T:
        """Run several writes as one transaction: `write` gets a `Transaction` and calls its write methods. It runs on
        the committing thread, so it must not call the ledger itself."""
        return self._run(lambda db: write(Transaction(db)))

    def _run(self, write: Callable[[sqlite3.Connection], T]) -> T:
        return self.committer.run(write)

    def seal_traces(self, session_ids: Iterable[str]) -> str | None:
        """Move the traces of these sessions into one sealed segment object and return its key (None: nothing to move).

        Sessions that are neither closed nor have a fate are left alone. The object is durable before the ledger
        points to it, so a crash leaves the traces in the ledger, and at worst an object that nothing points to."""
        packed = self._sealable(session_ids)
        if not packed:
            return None
        key = self._fresh_key()
        places = self._traces.seal(key, packed)

        def point(db: sqlite3.Connection) -> None:
            db.executemany(
                "UPDATE traces SET body = NULL, object = ?, start = ? WHERE turn_id = ? AND body IS NOT NULL",
                [(key, place.start, place.turn_id) for place in places],
            )

        self._run(point)
        return key

    def verify_traces(self) -> dict[str, str]:
        """Read every sealed object whole; what is wrong with each damaged one, by key."""
        return self._verify_objects()


class AsyncWriter:
    """Writes for asyncio callers: `await writer.submit(lambda tx: tx.begin_turn(turn, body))`."""

    def __init__(self, ledger: Ledger) -> None:
        self._committer = ledger.committer

    def submit(self, write: Callable[[Transaction], T]) -> "asyncio.Future[T]":
        """Run `write` in the next transaction; the future is done when it is durable. Raises what `write` raises."""
        return self._committer.submit(lambda db: write(Transaction(db)))
