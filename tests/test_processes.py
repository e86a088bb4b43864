"""Children: started, watched, ended with all that they started, and their own words in our errors."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ostinato.processes import GRACE_S, Process, end_all
from ostinato.records import UnavailableError

STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
print('{"ready": true, "grandchild": %d}' % child.pid, flush=True)
time.sleep(300)
"""
GENTLE = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
print('{"ready": true, "grandchild": %d}' % child.pid, flush=True)
time.sleep(300)
"""
CRASHING = "import sys; sys.stderr.write('a word\\n'); raise RuntimeError('the disk is on fire')"
REFUSING = """
import sys
sys.stderr.write("a warning\\nostinato: Port 80 cannot be used.\\n  Take a free one: --port 0\\n")
sys.exit(1)
"""
PARENT = """
import sys, time
from pathlib import Path
from ostinato.processes import Process
process = Process("envs", ["envs", "--data", sys.argv[1]], Path(sys.argv[1]) / "logs")
process.ready()
print(process.child.pid, flush=True)
time.sleep(300)
"""
Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Start a script in the place of a command of ours; it is gone when the test ends."""
    started: list[Process] = []

    def run(script: str, name: str = "part") -> Process:
        folder = tmp_path / f"code-{len(started)}"
        folder.mkdir()
        (folder / "ostinato.py").write_text(script)
        monkeypatch.setenv("PYTHONPATH", str(folder))
        process = Process(name, [], tmp_path / "logs")
        started.append(process)
        return process

    yield run
    for process in started:
        process.end(time.monotonic())


def gone(pid: int) -> bool:
    """Whether a process is there no more, or only as a zombie that its parent has not met."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")")[-1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_gone(pid: int) -> None:
    """The kernel takes a moment to end what was killed."""
    deadline = time.monotonic() + 30
    while not gone(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert gone(pid)


def test_a_stubborn_child_and_its_children_are_killed(start: Start) -> None:
    """One that ignores SIGTERM is given its grace, once for all together, and is killed with its whole group."""
    processes = [start(STUBBORN, "one"), start(STUBBORN, "two"), start(GENTLE, "three")]
    grandchildren = [int(process.ready()["grandchild"]) for process in processes]
    began = time.monotonic()
    end_all(processes)
    assert GRACE_S <= time.monotonic() - began < 2 * GRACE_S, "one grace for all"
    for process, grandchild in zip(processes, grandchildren, strict=True):
        assert process.child.returncode is not None
        wait_gone(grandchild)
    assert [process.child.returncode for process in processes] == [-signal.SIGKILL, -signal.SIGKILL, -signal.SIGTERM]


def test_ending_twice_does_nothing(start: Start) -> None:
    """Nor does ending what has ended by itself."""
    process = start("print('{}')")
    process.ready()
    process.child.wait()
    process.end()
    process.end()


def test_a_refusal_at_the_start_is_shown_plainly(start: Start) -> None:
    """The child's own error and its own hint, not a traceback and not the words of an earlier start."""
    with pytest.raises(UnavailableError) as caught:
        start(REFUSING, "gateway").ready()
    assert caught.value.message == "gateway did not start: Port 80 cannot be used."
    assert caught.value.hint == "Take a free one: --port 0"
    with pytest.raises(UnavailableError) as caught:
        start("", "gateway").ready()
    assert caught.value.message == "gateway did not start: it said nothing"


def test_a_crash_at_the_start_is_one_line(start: Start) -> None:
    """The last line of the traceback, and where the rest is."""
    process = start(CRASHING, "engine")
    with pytest.raises(UnavailableError) as caught:
        process.ready()
    assert caught.value.message == "engine did not start: RuntimeError: the disk is on fire"
    assert caught.value.hint == f"Next: less {process.log}"


def test_a_death_later_is_told(start: Start) -> None:
    """By name and exit status, with the last words."""
    process = start("import sys, time; print('bye', file=sys.stderr); print('{}', flush=True); time.sleep(300)", "envs")
    assert process.ready() == {}
    process.check()
    process.child.kill()
    process.child.wait()
    with pytest.raises(UnavailableError, match=r"envs died with exit status -9: bye"):
        process.check()


def test_a_command_is_run_to_its_end(start: Start) -> None:
    """`finish` waits, and raises the words of one that failed."""
    process = start("print('{}')")
    assert process.stdout.read() == "{}\n"
    process.finish()
    with pytest.raises(UnavailableError, match=r"part ended with exit status 1: Port 80"):
        start(REFUSING).finish()


def test_a_child_ends_with_its_parent(tmp_path: Path) -> None:
    """After kill -9 of the parent nothing is left behind that would hold a folder or a port."""
    command = [sys.executable, "-c", PARENT, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert not gone(child)
        os.kill(parent.pid, signal.SIGKILL)
    wait_gone(child)


def test_a_nice_child_is_nice_as_a_session(tmp_path: Path) -> None:
    """Linux shares time between sessions before it looks at processes: both give way."""
    child = Process("doctor", ["doctor"], tmp_path, niceness=7)
    try:
        mine = os.getpriority(os.PRIO_PROCESS, 0)
        assert os.getpriority(os.PRIO_PROCESS, child.child.pid) in (mine, min(mine + 7, 19))  # `nice` may not have run
        group = Path(f"/proc/{child.child.pid}/autogroup")
        if group.exists():
            assert group.read_text().split()[-1] == "7"
    finally:
        child.end()
