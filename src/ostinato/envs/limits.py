"""What one sandbox may use."""

from msgspec import Struct


class Limits(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of one sandbox. Sizes are MiB.

    Memory is limited for each process (`memory_mb`) and by the count of processes, not in sum: that needs a control
    group, which an ordinary user rarely has."""

    work_mb: int = 64
    """Of the work tree's changes, in memory."""
    temp_mb: int = 16
    """Of /tmp, and again of /dev/shm."""
    files: int = 20_000
    """How many files the work tree's changes may hold."""
    processes: int = 64
    memory_mb: int = 1024
    open_files: int = 256
    output_kb: int = 64
    """Of a command's output, kept from its start."""
    start_s: float = 30.0
    """Seconds until a sandbox that does not start counts as failed."""
    exec_s: float = 600.0
    """The longest time-out that a caller may ask for."""

    def rlimits(self) -> dict[str, int]:
        """The resource limits that the guest sets, by the names of Python's `resource` module; bytes."""
        return {
            "RLIMIT_NPROC": self.processes,
            "RLIMIT_AS": self.memory_mb << 20,
            "RLIMIT_FSIZE": self.work_mb << 20,
            "RLIMIT_NOFILE": self.open_files,
            "RLIMIT_CORE": 0,
        }
