"""Does isolation work on this machine, and if not, why and what to type next."""

import asyncio
import errno
import tempfile
from pathlib import Path

from msgspec import Struct

from ostinato.envs import bubblewrap
from ostinato.envs.limits import Limits
from ostinato.envs.supervisor import Supervisor
from ostinato.records import OstinatoError, UnavailableError

_SWITCHES = (
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
    ),
    ("/proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"),
    ("/proc/sys/user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=10000"),
)
"""A kernel setting, the value at which it forbids user namespaces, and the command that allows them."""


class Isolation(Struct, frozen=True):
    """What a probe found. `problem` is "" where a sandbox really ran; `notes` are weaknesses that do not stop us."""

    works: bool
    problem: str = ""
    hint: str = ""
    notes: tuple[str, ...] = ()


def namespace_hint(number: int) -> str:
    """The next thing to do when the kernel refused a namespace with this error number."""
    for path, forbidding, command in _SWITCHES:
        setting = Path(path)
        if setting.exists() and setting.read_text().strip() == forbidding:
            return f"{path} forbids user namespaces to ordinary users. As root: `{command}`."
    if number in (errno.EPERM, errno.EACCES):
        return (
            "The kernel or the container around us forbids namespaces. In Docker: `--security-opt seccomp=unconfined`."
        )
    if number in (errno.ENOSPC, errno.EUSERS):
        return "Too many namespaces are open. As root: `sysctl -w user.max_user_namespaces=10000`."
    return "Run `ostinato doctor`."


async def probe_isolation() -> Isolation:
    """Start one sandbox, run a command in it, and say what happened."""
    notes = () if bubblewrap.filter_hex() else ("no seccomp filter is known for this machine's architecture",)
    with tempfile.TemporaryDirectory(prefix="ostinato-probe-") as folder:
        supervisor = Supervisor(Path(folder), Limits())
        try:
            guest = await supervisor.fork(supervisor.bases.import_files({"hello": "world"}), {})
            result = await guest.exec(["python3", "-S", "-c", "print(open('hello').read())"], 30.0, supervisor.limits)
            if result.output != "world\n":
                words = f"A command in a sandbox gave {result.exit_code}: {result.output.strip()}"
                raise UnavailableError(words)
        except OstinatoError as error:
            return Isolation(False, error.message, error.hint, notes)
        finally:
            supervisor.close()
    return Isolation(True, notes=notes)


def explain() -> str:
    """The probe's finding in one line for people."""
    found = asyncio.run(probe_isolation())
    if found.works:
        return "; ".join(("Sandboxes work.", *found.notes))
    return f"{found.problem} {found.hint}".strip()
