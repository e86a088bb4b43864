"""Moving the write-ahead log into the main file: done by the owning instance only, and never beside a writer.

SQLite before 3.51.3 has a rare race between a checkpoint and a writer that restarts the log (https://sqlite.org/wal.html,
"the WAL-reset bug"). A second connection holds the write lock meanwhile, so that no writer exists.
"""

import contextlib
import sqlite3
from pathlib import Path

from ostinato.store.connections import connect

_EVERY_S = 2.0


class Checkpointer:
    """Checkpoints through `db` at most every two seconds, when the log has changed."""

    def __init__(self, path: Path, db: sqlite3.Connection) -> None:
        self._db = db
        self._log = path.with_name(path.name + "-wal")
        self._guard = connect(path)
        self._guard.execute("PRAGMA busy_timeout = 0")
        self._next = 0.0
        self._seen = 0

    def tick(self, now: float) -> None:
        """Checkpoint if it is time. When another process writes at this moment, the next tick tries again."""
        if now < self._next or not self._log.exists():
            return
        changed = self._log.stat().st_mtime_ns
        if changed == self._seen:
            return
        with contextlib.suppress(sqlite3.OperationalError):
            self._guard.execute("BEGIN IMMEDIATE")
            try:
                self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            finally:
                self._guard.execute("ROLLBACK")
            self._seen = changed
            self._next = now + _EVERY_S

    def close(self) -> None:
        """End the guarding connection."""
        self._guard.close()
