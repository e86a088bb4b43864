"""Opening the SQLite file: settings, numbered migrations, and the lock of the owning instance."""

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

from ostinato.records import ConflictError

BUSY_MS = 30_000
LEDGER_NAME = "ledger.sqlite"
_JOURNAL_LIMIT_BYTES = 64 << 20


def connect(path: Path, *, reader: bool = False) -> sqlite3.Connection:
    """A connection in autocommit mode, set up for durability; usable from any thread under the caller's own lock.

    Automatic checkpoints are off in every process: the owner alone runs them (see `checkpoints`)."""
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=BUSY_MS / 1000)
    db.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA foreign_keys = ON")
    db.execute("PRAGMA wal_autocheckpoint = 0")
    db.execute(f"PRAGMA journal_size_limit = {_JOURNAL_LIMIT_BYTES}")
    if reader:
        db.execute("PRAGMA query_only = ON")
    return db


def migrations() -> list[tuple[int, str]]:
    """The numbered migrations as (number, SQL), ascending."""
    found = [entry for entry in files("ostinato.store").joinpath("schema").iterdir() if entry.name.endswith(".sql")]
    return sorted((int(entry.name.split("_")[0]), entry.read_text("utf-8")) for entry in found)


def migrate(path: Path, steps: list[tuple[int, str]]) -> None:
    """Bring the file at `path` to the newest schema, each step in one transaction; safe to call from many processes.

    Raises `ConflictError` when the file was written by a newer release."""
    newest = steps[-1][0]
    with _held(path.with_name("open.lock")):
        db = connect(path)
        try:
            current = int(db.execute("PRAGMA user_version").fetchone()[0])
            if current > newest:
                raise ConflictError(
                    f"{path} has ledger schema {current}; this release of ostinato knows schemas up to {newest}.",
                    hint="Install the release that wrote it, or newer: pip install --upgrade ostinato",
                )
            if 0 < current < newest:
                _back_up(db, path.with_name(f"{path.stem}.schema-{current}.sqlite"))
            for number, sql in steps:
                if number > current:
                    _apply(db, number, sql)
        finally:
            db.close()
        fsync_folder(path.parent)


def _apply(db: sqlite3.Connection, number: int, sql: str) -> None:
    try:
        db.executescript(f"BEGIN IMMEDIATE;\n{sql}\nPRAGMA user_version = {number};\nCOMMIT;")
    except sqlite3.Error:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _back_up(db: sqlite3.Connection, target: Path) -> None:
    copy = sqlite3.connect(target)
    try:
        db.backup(copy)
    finally:
        copy.close()


def fsync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _held(path: Path) -> Iterator[None]:
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


class InstanceLock:
    """Keeps a second instance off a data folder. The kernel drops the lock with the process, however it ends."""

    def __init__(self, folder: Path) -> None:
        path = folder / "instance.lock"
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(handle, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(handle)
            raise ConflictError(
                f"The data folder {folder} is in use by process {holder}.",
                hint=f"Stop it first (kill {holder}), or give another folder with --data.",
            ) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        self._handle = handle

    def release(self) -> None:
        """Let the next instance in."""
        os.close(self._handle)
