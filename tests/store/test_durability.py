"""What was acknowledged survives `kill -9` at any point, and power loss at any point; nothing is there by half."""

import os
import random
import runpy
import secrets
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ostinato.store import Ledger

CHILD = Path(__file__).with_name("torture_child.py")
SHIM = Path(__file__).with_name("durable_shim.c")
KINDS = {"session", "feedback", "begun", "finished", "rewarded", "counted", "sealed"}
Acks = list[list[str]]


class Victims:
    """The process that forks a fresh victim for each round."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def _line(self) -> list[str]:
        assert self._process.stdout is not None
        words = self._process.stdout.readline().split()
        assert words, "the victims' parent ended"
        assert words[0] != "failed", " ".join(words)
        return words

    def play(self, order: str, delay: float) -> Acks:
        """Start a victim, kill it `delay` seconds after it began to open the ledger; what it had acknowledged."""
        assert self._process.stdin is not None
        self._process.stdin.write(order + "\n")
        self._process.stdin.flush()
        first = [self._line(), self._line()]  # "born PID" from the parent and "ready round" from the victim, either way
        pid = next(int(words[1]) for words in first if words[0] == "born")
        killer = threading.Timer(delay, os.kill, (pid, signal.SIGKILL))
        killer.start()
        acks: Acks = []
        while (words := self._line())[0] != "dead":
            acks.append(words)
        killer.join()
        assert int(words[1]) == -signal.SIGKILL, f"the victim ended by itself, with {words[1]}"
        return acks


@contextmanager
def victims(preload: Path | None = None) -> Iterator[Victims]:
    """Start the parent of victims, and end it."""
    extra = {} if preload is None else {"LD_PRELOAD": str(preload)}
    command = [sys.executable, str(CHILD)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(os.environ) | extra
    ) as process:
        yield Victims(process)
        process.communicate()


def losses(folder: Path, acks: Acks) -> list[str]:
    """Everything in the ledger at `folder` that contradicts what was acknowledged, or that is there by half."""
    with Ledger.open(folder) as ledger:
        wrong = [f"sealed: {why}" for why in ledger.verify_traces().values()]
        sessions = [row.session_id for row in ledger.sessions()]
        turns = {turn.turn_id: turn for name in sessions for turn in ledger.turns(name)}
        reports = Counter(event.event_id for name in sessions for event in ledger.feedback(name))
        promised = sum(words[0] == "counted" for words in acks)
        if ledger.counters().get("sessions", 0) < promised:
            wrong.append(f"counted less than {promised}: {ledger.counters()}")
        if not ledger.accounts().balanced:
            wrong.append(f"no balance: {ledger.accounts()}")
    wrong += [f"twice: {name}" for name, times in reports.items() if times > 1]
    trace_of = runpy.run_path(str(CHILD))["trace_of"]
    for name, turn in turns.items():
        if turn.trace != (trace_of(name) if turn.finish_reason == "stop" else None):
            wrong.append(f"wrong or half trace: {name}")
    db = sqlite3.connect(folder / "ledger.sqlite")
    wrong += _halves(db)
    there = {
        "session": set(sessions),
        "begun": set(turns),
        "finished": {name for name, turn in turns.items() if turn.trace is not None},
        "feedback": {str(row[0]) for row in db.execute("SELECT event_id FROM feedback")},
        "rewarded": {str(row[0]) for row in db.execute("SELECT session_id FROM rewards")},
        "sealed": {str(row[0]) for row in db.execute("SELECT object FROM traces")},
    }
    db.close()
    wrong += [f"lost: {words}" for words in acks if words[0] != "counted" and words[-1] not in there[words[0]]]
    return wrong


def _halves(db: sqlite3.Connection) -> list[str]:
    """What SQLite finds wrong, and transactions of which only a part is there."""
    wrong = [f"integrity: {row[0]}" for row in db.execute("PRAGMA integrity_check") if row[0] != "ok"]
    wrong += [f"foreign key: {row}" for row in db.execute("PRAGMA foreign_key_check")]
    pairs = {
        "reward or fate alone": ("SELECT session_id FROM rewards", "SELECT session_id FROM fates"),
        "turn or request alone": ("SELECT turn_id FROM turns", "SELECT turn_id FROM requests"),
    }
    for what, (one, two) in pairs.items():
        wrong += [f"{what}: {row}" for row in set(db.execute(one)) ^ set(db.execute(two))]
    stray = db.execute(
        "SELECT event_id FROM feedback JOIN turns ON turn_id = response_id WHERE feedback.session_id IS NULL"
    )
    return wrong + [f"parked though its turn is stored: {row}" for row in stray]


def torture_by_kill(folder: Path, rounds: int) -> None:
    """Kill a busy writer `rounds` times at random points on one ledger, then look for losses."""
    seed = secrets.randbits(32)
    print(f"seed {seed}")  # noqa: T201  shown by pytest when the test fails
    rng = random.Random(seed)
    acks: Acks = []
    with victims() as crowd:
        for number in range(rounds):
            # A quarter of the kills come while the ledger is being opened and recovers, the others under load.
            delay = rng.uniform(0.0, 0.03) if rng.random() < 0.25 else rng.uniform(0.05, 0.35)
            acks += crowd.play(f"{number} 8 {folder} - careful", delay)
    assert {words[0] for words in acks} == KINDS
    assert losses(folder, acks) == []


def test_kill_at_any_point_loses_nothing(tmp_path: Path) -> None:
    """Forty kills under concurrent load: every acknowledged event is there, none by half, none twice."""
    torture_by_kill(tmp_path / "data", 40)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_two_hundred_kills_lose_nothing(tmp_path: Path) -> None:
    """The same with two hundred kills."""
    torture_by_kill(tmp_path / "data", 200)


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shim that keeps what is durable, compiled."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.fail("the power-loss tests need a C compiler named cc: apt-get install gcc libc6-dev")
    built = tmp_path_factory.mktemp("shim") / "shim.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", built, SHIM, "-ldl", "-lpthread"], check=True)
    return built


def durable_image(shadow: Path, folder: Path) -> None:
    """Build in `folder` what the disk holds after a power loss, out of what the shim kept in `shadow`."""
    names: dict[str, str] = {"": "folder"}
    for line in (shadow / "journal").read_text().splitlines(keepends=True):
        if not line.endswith("\n"):
            break  # the kill came while the shim wrote this line
        kind, path, *rest = line.rstrip("\n").split("\t")
        if kind == "F":
            names[path] = rest[0]
            continue
        listed = {f"{path}/{name}".lstrip("/"): what for name, what in zip(rest[::2], rest[1::2], strict=True)}
        gone = [name for name in names if name and str(Path(name).parent) == (path or ".") and name not in listed]
        for name in gone:
            del names[name]
        names |= listed
    folder.mkdir()
    for name, what in sorted(names.items()):
        target = folder / name
        if what == "folder":
            target.mkdir(exist_ok=True)
        elif target.parent.is_dir():  # a file in a folder that was never synced is lost with it
            kept = shadow / "data" / what
            target.write_bytes(kept.read_bytes() if kept.exists() else b"")


def lose_power(shim: Path, base: Path, rounds: int, mode: str) -> list[str]:
    """Cut the power `rounds` times, each time going on from what the disk held; what is wrong in the end."""
    seed = secrets.randbits(32)
    print(f"seed {seed}")  # noqa: T201  shown by pytest when the test fails
    rng = random.Random(seed)
    acks: Acks = []
    folder = base / "disk-0"
    Ledger.open(folder).close()
    with victims(shim) as crowd:
        for number in range(rounds):
            shadow, after = base / f"shadow-{number}", base / f"disk-{number + 1}"
            (shadow / "data").mkdir(parents=True)
            acks += crowd.play(f"{number} 4 {folder} {shadow} {mode}", rng.uniform(0.03, 0.25))
            durable_image(shadow, after)
            shutil.rmtree(folder)
            shutil.rmtree(shadow)
            folder = after
    assert {words[0] for words in acks} >= KINDS - {"sealed"}
    return losses(folder, acks)


def test_power_loss_loses_nothing(shim: Path, tmp_path: Path) -> None:
    """Every write since the last fsync is dropped, again and again: every acknowledged event is there."""
    assert lose_power(shim, tmp_path, 15, "careful") == []


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_two_hundred_power_losses_lose_nothing(shim: Path, tmp_path: Path) -> None:
    """The same two hundred times."""
    assert lose_power(shim, tmp_path, 200, "careful") == []


def test_the_power_loss_test_would_notice(shim: Path, tmp_path: Path) -> None:
    """With synchronous commits switched off, the same test finds lost events."""
    wrong = lose_power(shim, tmp_path, 4, "careless")
    assert [line for line in wrong if line.startswith("lost: ")] != []
