"""Migrations, the instance lock, and opening by several at once."""

import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ostinato.records import ConflictError, MissingError, SessionRow
from ostinato.store import Ledger
from ostinato.store.connections import LEDGER_NAME, migrate, migrations


def test_schema_steps_are_numbered_from_one_without_gaps() -> None:
    """Migration files are 1, 2, 3 and so on."""
    numbers = [number for number, _ in migrations()]
    assert numbers == list(range(1, len(numbers) + 1))


def test_a_newer_schema_is_refused_in_words(tmp_path: Path) -> None:
    """A ledger of a later release is left alone, and the error says what to do."""
    Ledger.open(tmp_path).close()
    with sqlite3.connect(tmp_path / "ledger.sqlite") as db:
        db.execute("PRAGMA user_version = 999")
    db.close()
    with pytest.raises(ConflictError, match=r"schema 999.*pip install --upgrade"):
        Ledger.open(tmp_path)


def test_an_upgrade_keeps_rows_and_leaves_a_copy(tmp_path: Path) -> None:
    """A later step runs on a ledger with data, after a backup of it."""
    with Ledger.open(tmp_path) as ledger:
        ledger.count("before", 3)
    step = (len(migrations()) + 1, "ALTER TABLE counters ADD COLUMN note TEXT;")
    path = tmp_path / "ledger.sqlite"
    migrate(path, [*migrations(), step])
    db = sqlite3.connect(path)
    assert db.execute("SELECT name, value, note FROM counters").fetchall() == [("before", 3, None)]
    db.close()
    copy = sqlite3.connect(tmp_path / f"ledger.schema-{len(migrations())}.sqlite")
    assert copy.execute("SELECT name, value FROM counters").fetchall() == [("before", 3)]
    copy.close()


def test_a_failing_step_changes_nothing(tmp_path: Path) -> None:
    """A step is one transaction: its first statement is undone when its second fails."""
    Ledger.open(tmp_path).close()
    path = tmp_path / "ledger.sqlite"
    bad = (len(migrations()) + 1, "CREATE TABLE half (a TEXT); INSERT INTO nowhere VALUES (1);")
    with pytest.raises(sqlite3.OperationalError, match="nowhere"):
        migrate(path, [*migrations(), bad])
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA user_version").fetchone() == (len(migrations()),)
    assert db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'half'").fetchone() == (0,)
    db.close()


def test_many_can_open_a_new_folder_at_once(tmp_path: Path) -> None:
    """The schema is made once; everyone can write afterwards."""
    failures: list[BaseException] = []

    def use(number: int) -> None:
        try:
            with Ledger.open(tmp_path) as ledger:
                ledger.count(f"thread-{number}")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with Ledger.open(tmp_path) as ledger:
        assert len(ledger.counters()) == 8


def test_a_second_owner_is_refused_by_pid(tmp_path: Path) -> None:
    """The error names the process that holds the folder; others may still open it without owning it."""
    with Ledger.open(tmp_path, owner=True) as owner:
        with pytest.raises(ConflictError, match=f"in use by process {os.getpid()}"):
            Ledger.open(tmp_path, owner=True)
        with Ledger.open(tmp_path) as guest:
            guest.count("by_guest")
        assert owner.counters() == {"by_guest": 1}
    Ledger.open(tmp_path, owner=True).close()


def test_another_process_sees_the_lock(tmp_path: Path) -> None:
    """The lock holds between processes, and its end frees it."""
    code = (
        "import sys; from pathlib import Path; from ostinato.store import Ledger\n"
        "try: Ledger.open(Path(sys.argv[1]), owner=True)\n"
        "except Exception as error: print(type(error).__name__, error)\n"
        "else: print('mine')"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with Ledger.open(tmp_path, owner=True):
        held = subprocess.run(command, capture_output=True, text=True, check=True)
    free = subprocess.run(command, capture_output=True, text=True, check=True)
    assert held.stdout.startswith("ConflictError") and str(os.getpid()) in held.stdout
    assert free.stdout == "mine\n"


def test_only_the_owner_moves_the_log(tmp_path: Path) -> None:
    """The owner copies the log into the main file by itself; a guest never does."""
    main = tmp_path / "ledger.sqlite"
    with Ledger.open(tmp_path) as holder:  # keeps the log alive while others come and go
        before = main.stat().st_size
        with Ledger.open(tmp_path) as guest:
            for number in range(300):
                guest.open_session(SessionRow(f"s{number}", "p" * 500, "live", 1.0, 1.0))
        assert main.stat().st_size == before
        with Ledger.open(tmp_path, owner=True) as owner:
            owner.count("wake")
            waited = threading.Event()
            for _ in range(600):
                if main.stat().st_size > before:
                    break
                waited.wait(0.05)
            assert main.stat().st_size > before
        assert len(holder.sessions()) == 300


def test_a_ledger_of_the_first_schema_is_brought_up(tmp_path: Path) -> None:
    """Its incidents are open and about no version; a copy of the old file stays."""
    migrate(tmp_path / LEDGER_NAME, migrations()[:1])
    db = sqlite3.connect(tmp_path / LEDGER_NAME)
    with db:
        db.execute("INSERT INTO incidents (kind, message, session_id, at) VALUES ('old', 'said', NULL, 1.0)")
    db.close()
    with Ledger.open(tmp_path) as ledger:
        (incident,) = ledger.incidents(only_open=True)
        assert (incident.kind, incident.version, incident.sessions) == ("old", "", ())
        ledger.close_incident(incident.incident_id, "seen", 2.0)
        assert ledger.incidents(only_open=True) == []
        with pytest.raises(MissingError, match="no open incident 1"):
            ledger.close_incident(1, "again", 3.0)
    assert (tmp_path / "ledger.schema-1.sqlite").exists()
