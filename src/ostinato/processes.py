"""Starting and ending our own commands: each prints one JSON line when it is ready, and is ended by its process id.

A child is not left behind whatever ends its parent: its standard input is a pipe that nobody writes to, and when the
pipe breaks it asks itself to end (`follow_parent`).
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any

import msgspec

from ostinato.records import OstinatoError, UnavailableError

GRACE_S = 3.0
"""How long a process has to end by itself after SIGTERM before it is killed."""
CHILD = "OSTINATO_CHILD"
"""Set in the environment of a child of ours."""
ERROR = "ostinato: "
"""How a command begins the line that says why it failed; the line below it, indented, says what to do next."""


class Process:
    """One child of ours, in a process group of its own; its standard error goes to `log`."""

    def __init__(
        self, name: str, arguments: list[str], log_folder: Path, *, threads: int = 1, niceness: int = 0
    ) -> None:
        log_folder.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.log = log_folder / f"{name}.log"
        budget = str(threads)
        environment = os.environ | {
            "OMP_NUM_THREADS": budget,
            "MKL_NUM_THREADS": budget,
            "TOKENIZERS_PARALLELISM": "false",
            "PYTHONUNBUFFERED": "1",
            CHILD: "1",
        }
        command = ["nice", "-n", str(niceness)] if niceness else []
        with self.log.open("ab") as log:
            self._log_from = log.tell()
            self.child = subprocess.Popen(
                [*command, sys.executable, "-m", "ostinato", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
                start_new_session=True,
            )
        if niceness:
            _make_group_nice(self.child.pid, niceness)

    @property
    def stdout(self) -> IO[str]:
        """The child's standard output."""
        assert self.child.stdout is not None
        return self.child.stdout

    def ready(self) -> dict[str, Any]:
        """Wait for the one JSON line that says the process is up. Raises `UnavailableError` with its last words."""
        line = self.stdout.readline()
        try:
            return msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.DecodeError:
            self.end()
            raise self._died("did not start") from None

    def finish(self) -> None:
        """Wait for the end of a command. Raises `UnavailableError` with its last words unless it ended well."""
        code = self.child.wait()
        self._let_go()
        if code != 0:
            raise self._died(f"ended with exit status {code}")

    def check(self) -> None:
        """Raise `UnavailableError` if the process has died."""
        if self.child.poll() is not None:
            raise self._died(f"died with exit status {self.child.returncode}")

    def signal_end(self) -> None:
        """Ask the process to end."""
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)

    def end(self, deadline: float | None = None) -> None:
        """End the process and its group: SIGTERM, then SIGKILL at `deadline` (monotonic seconds). What the process
        left behind in its group is killed too."""
        self.signal_end()
        if self.child.poll() is None:
            # Not reaped while we wait, so that the number of its group cannot become another's before the kill.
            handle = os.pidfd_open(self.child.pid)
            try:
                left = (deadline or time.monotonic() + GRACE_S) - time.monotonic()
                select.select([handle], [], [], max(left, 0.05))
            finally:
                os.close(handle)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()
        self._let_go()

    def _let_go(self) -> None:
        for stream in (self.child.stdin, self.child.stdout):
            if stream is not None:
                stream.close()

    def _died(self, what: str) -> OstinatoError:
        """The child's own error and hint where it gave one, else the last line of its log."""
        with self.log.open("rb") as log:
            log.seek(self._log_from)
            lines = log.read().decode(errors="replace").rstrip().splitlines()
        told = next((i for i in reversed(range(len(lines))) if lines[i].startswith(ERROR)), None)
        if told is None:
            words = lines[-1].strip() if lines else "it said nothing"
            return UnavailableError(f"{self.name} {what}: {words}", hint=f"Next: less {self.log}")
        hint = next((line.strip() for line in lines[told + 1 :] if line.startswith("  ")), f"Next: less {self.log}")
        return UnavailableError(f"{self.name} {what}: {lines[told].removeprefix(ERROR)}", hint=hint)


def _make_group_nice(pid: int, niceness: int) -> None:
    """Where Linux shares time between sessions first (autogroup), a process's own niceness counts only within its
    session, so the session gets it too. Elsewhere there is nothing to set."""
    group = Path(f"/proc/{pid}/autogroup")
    if group.exists():
        with contextlib.suppress(OSError):  # the process may be gone already
            group.write_text(str(niceness))


def end_all(processes: list[Process]) -> None:
    """End several processes at once, within one grace period, the last started first."""
    for process in reversed(processes):
        process.signal_end()
    deadline = time.monotonic() + GRACE_S
    for process in reversed(processes):
        process.end(deadline)


def follow_parent() -> None:
    """In a child of ours: end when the parent is gone, however it went. Elsewhere nothing happens."""
    if os.environ.pop(CHILD, None) is not None:
        threading.Thread(target=_end_with_parent, daemon=True, name="parent").start()


def _end_with_parent() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_S)
    os._exit(1)
