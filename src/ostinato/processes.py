"""Starting and ending our own commands: each prints one JSON line when it is ready, and is ended by its process id."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

import msgspec

from ostinato.records import OstinatoError, UnavailableError

GRACE_S = 3.0
"""How long a process has to end by itself after SIGTERM before it is killed."""


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
        }
        command = ["nice", "-n", str(niceness)] if niceness else []
        with self.log.open("a") as log:
            self.child = subprocess.Popen(
                [*command, sys.executable, "-m", "ostinato", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
                start_new_session=True,
            )

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
        self.stdout.close()
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
        """End the process and its group: SIGTERM, then SIGKILL at `deadline` (monotonic seconds)."""
        self.signal_end()
        left = (deadline or time.monotonic() + GRACE_S) - time.monotonic()
        try:
            self.child.wait(max(left, 0.05))
        except subprocess.TimeoutExpired:
            os.killpg(self.child.pid, signal.SIGKILL)
            self.child.wait()
        if self.child.stdout is not None:
            self.child.stdout.close()

    def _died(self, what: str) -> OstinatoError:
        words = self.log.read_text().strip().splitlines()[-6:] if self.log.exists() else []
        return UnavailableError(f"{self.name} {what}: {' / '.join(words)}", hint=f"Next: less {self.log}")


def end_all(processes: list[Process]) -> None:
    """End several processes at once, within one grace period, the last started first."""
    for process in reversed(processes):
        process.signal_end()
    deadline = time.monotonic() + GRACE_S
    for process in reversed(processes):
        process.end(deadline)
