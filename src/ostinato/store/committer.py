"""Group commit: one thread gathers the writes that wait and makes them durable with one transaction and one fsync.

While one commit waits for the disk, the next batch gathers by itself, so no timer is needed: a lone writer is never
delayed, and many writers share the price of the fsync.
"""

import asyncio
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from ostinato.records import UnavailableError
from ostinato.store.checkpoints import Checkpointer
from ostinato.store.connections import connect

T = TypeVar("T")
Write = Callable[[sqlite3.Connection], T]

_BATCH = 512
_MOST_WAITING = 20_000
_IDLE_S = 1.0


class _Job:
    """One write and who waits for it: a thread (`loop` None) or an asyncio loop."""

    __slots__ = ("error", "future", "loop", "result", "write")

    def __init__(self, write: Write[Any], loop: asyncio.AbstractEventLoop | None) -> None:
        self.write = write
        self.loop = loop
        self.future: Any = Future() if loop is None else loop.create_future()
        self.result: Any = None
        self.error: BaseException | None = None

    def settle(self) -> None:
        if self.future.done():  # the waiter was cancelled; what it wrote stays written
            return
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)


class GroupCommitter:
    """The one writing connection of this process. `writes` and `commits` count what was made durable."""

    def __init__(self, path: Path, *, checkpoints: bool) -> None:
        self.writes = 0
        self.commits = 0
        self._path = path
        self._db = connect(path)
        self._checkpointer = Checkpointer(path, self._db) if checkpoints else None
        self._waiting: deque[_Job] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._serve, name="ledger-committer", daemon=True)
        self._thread.start()

    def run(self, write: Write[T]) -> T:
        """Run `write` in the next transaction and return its result once it is durable.

        Raises whatever `write` raises (its own changes are undone, its neighbours' stay), or `UnavailableError` when
        the disk or another process does not let the transaction through."""
        assert threading.current_thread() is not self._thread, "a write inside a transaction goes to the transaction"
        result: T = self._put(_Job(write, None)).future.result()
        return result

    def submit(self, write: Write[T]) -> "asyncio.Future[T]":
        """The same for asyncio: call it on the loop's own thread and await what it returns."""
        future: asyncio.Future[T] = self._put(_Job(write, asyncio.get_running_loop())).future
        return future

    def close(self) -> None:
        """Commit what waits, then end."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _put(self, job: _Job) -> _Job:
        with self._changed:
            if self._closing:
                raise UnavailableError(f"The ledger {self._path} is closed.", hint="Open it again.")
            if len(self._waiting) >= _MOST_WAITING:
                raise UnavailableError(
                    f"The ledger {self._path} has {len(self._waiting)} writes waiting for the disk.",
                    hint="Try again in a second; if it stays, look at the disk: df -h; iostat 1",
                )
            self._waiting.append(job)
            self._changed.notify()
        return job

    def _serve(self) -> None:
        while True:
            with self._changed:
                if not self._waiting and not self._closing:
                    self._changed.wait(_IDLE_S)
                batch = [self._waiting.popleft() for _ in range(min(_BATCH, len(self._waiting)))]
                done = self._closing and not batch
            if batch:
                self._commit(batch)
            if self._checkpointer is not None:
                self._checkpointer.tick(time.monotonic())
            if done:
                break
        if self._checkpointer is not None:
            self._checkpointer.close()
        self._db.close()

    def _commit(self, batch: list[_Job]) -> None:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            for job in batch:
                self._apply(job)
            self._db.execute("COMMIT")
            self.commits += 1
            self.writes += sum(job.error is None for job in batch)
        except BaseException as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            refusal = UnavailableError(
                f"The ledger {self._path} could not be written: {error}.",
                hint="Free space or end the process that holds it, then try again: df -h; fuser -v " + str(self._path),
            )
            for job in batch:
                job.error = job.error or refusal
        _settle_all(batch)

    def _apply(self, job: _Job) -> None:
        """One write inside the transaction. A failed one is undone alone; a failing disk ends the transaction."""
        self._db.execute("SAVEPOINT one")
        try:
            job.result = job.write(self._db)
        except sqlite3.OperationalError:
            raise
        except BaseException as error:
            job.error = error
            self._db.execute("ROLLBACK TO one")
        self._db.execute("RELEASE one")


def _settle_all(batch: list[_Job]) -> None:
    """Wake the waiters; each asyncio loop is woken once for a batch, not once for a write."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
    for job in batch:
        if job.loop is None:
            job.settle()
        else:
            by_loop.setdefault(job.loop, []).append(job)
    for loop, jobs in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle_here, jobs)
        except RuntimeError:  # the loop is closed, so nobody waits any more; the writes are durable
            continue


def _settle_here(jobs: list[_Job]) -> None:
    for job in jobs:
        job.settle()
