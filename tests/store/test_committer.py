"""Group commit: writers share transactions, and each learns its own fate."""

import asyncio
import sqlite3
import threading
from pathlib import Path

import pytest

from ostinato.records import Fate, MissingError, SessionRow, UnavailableError
from ostinato.store import AsyncWriter, Ledger, Transaction


def test_concurrent_writers_share_commits(ledger: Ledger) -> None:
    """Thirty-two threads need far fewer transactions than writes, and every write is there."""
    commits, writes = ledger.committer.commits, ledger.committer.writes

    def work() -> None:
        for _ in range(25):
            ledger.count("shared")

    threads = [threading.Thread(target=work) for _ in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ledger.counters()["shared"] == 800
    assert ledger.committer.writes - writes == 800
    assert ledger.committer.commits - commits <= 400


async def test_async_writers_share_commits(ledger: Ledger) -> None:
    """The same for asyncio: what is submitted together is committed together."""
    writer = AsyncWriter(ledger)
    commits = ledger.committer.commits
    await asyncio.gather(*(writer.submit(lambda tx: tx.count("shared")) for _ in range(500)))
    assert ledger.counters()["shared"] == 500
    assert ledger.committer.commits - commits <= 50


async def test_async_errors_and_cancelled_waiters(ledger: Ledger) -> None:
    """A failing write raises at its own caller; a caller that stopped waiting harms nobody."""
    writer = AsyncWriter(ledger)
    gone = writer.submit(lambda tx: tx.count("gone"))
    gone.cancel()
    with pytest.raises(MissingError, match="'nobody'"):
        await writer.submit(lambda tx: tx.close_session("nobody", 1.0))
    await writer.submit(lambda tx: tx.count("after"))
    assert ledger.counters() == {"after": 1, "gone": 1}


def test_a_failed_write_is_undone_alone(ledger: Ledger) -> None:
    """Several writes in one transaction: when the last fails, the first are undone, and other writers' stay."""

    def bad(tx: Transaction) -> None:
        tx.count("half")
        tx.put_fate("s1", Fate.TRAINED, "used")
        raise ValueError("no")

    start = threading.Barrier(2)

    def good() -> None:
        start.wait()
        for _ in range(50):
            ledger.count("good")

    other = threading.Thread(target=good)
    other.start()
    start.wait()
    for _ in range(50):
        with pytest.raises(ValueError, match="no"):
            ledger.commit(bad)
    other.join()
    assert ledger.counters() == {"good": 50}
    assert ledger.fate("s1") is None


def test_a_transaction_that_writes_to_the_ledger_fails_at_once(ledger: Ledger) -> None:
    """Writing through the ledger inside a transaction would wait for itself; it is an error instead."""
    with pytest.raises(AssertionError, match="goes to the transaction"):
        ledger.commit(lambda _: ledger.count("inner"))
    assert ledger.counters() == {}


def test_a_full_disk_refuses_and_recovers(ledger: Ledger) -> None:
    """When SQLite finds no space, writers get an error in words, nothing is torn, and writing works again after."""
    db = ledger.committer._db
    pages = db.execute("PRAGMA page_count").fetchone()[0]
    db.execute(f"PRAGMA max_page_count = {pages}")
    row = SessionRow("big", "p" * 200_000, "live", 1.0, 1.0)
    with pytest.raises(UnavailableError, match=r"could not be written: database or disk is full.*df -h"):
        ledger.open_session(row)
    assert ledger.session("big") is None
    db.execute("PRAGMA max_page_count = 1000000")
    ledger.open_session(row)
    assert ledger.session("big") == row


def test_a_writer_elsewhere_is_waited_for(ledger: Ledger) -> None:
    """Another process's transaction delays a write, and does not fail it."""
    other = sqlite3.connect(ledger.folder / "ledger.sqlite", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    release = threading.Timer(0.3, lambda: other.execute("ROLLBACK"))
    release.start()
    ledger.count("waited")
    release.join()
    other.close()
    assert ledger.counters() == {"waited": 1}


def test_a_closed_ledger_says_so(tmp_path: Path) -> None:
    """Closing twice is harmless; writing afterwards is refused."""
    ledger = Ledger.open(tmp_path)
    ledger.close()
    ledger.close()
    with pytest.raises(UnavailableError, match="is closed"):
        ledger.count("late")


def test_waiting_writes_are_bounded(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the disk does not keep up, callers are refused instead of filling the memory."""
    monkeypatch.setattr("ostinato.store.committer._MOST_WAITING", 3)
    hold, held = threading.Event(), threading.Event()

    def slow(_: Transaction) -> None:
        held.set()
        hold.wait(60)

    threads = [threading.Thread(target=ledger.commit, args=(slow,))]
    threads[0].start()
    held.wait(60)
    threads += [threading.Thread(target=ledger.count, args=("queued",)) for _ in range(3)]
    for thread in threads[1:]:
        thread.start()
    while len(ledger.committer._waiting) < 3:
        threading.Event().wait(0.01)
    with pytest.raises(UnavailableError, match="3 writes waiting"):
        ledger.count("one too many")
    hold.set()
    for thread in threads:
        thread.join()
    assert ledger.counters() == {"queued": 3}
