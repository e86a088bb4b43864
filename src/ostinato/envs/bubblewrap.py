"""The command line of bubblewrap, and what the spawner needs besides it."""

import os
import py_compile
import shutil
import sys
from pathlib import Path
from typing import Any

from ostinato.envs import seccomp
from ostinato.envs.bases import OWNER
from ostinato.envs.limits import Limits
from ostinato.records import UnavailableError

STAGE = "/mnt"
"""Where the spawner gathers what it binds; the same as in `spawner.py`, which imports nothing of ours."""
INSTALL = "Install it with `apt-get install bubblewrap`."


def interpreter() -> tuple[str, str]:
    """The prefix and the path of the Python under this one's virtual environment: the one that sandboxes get."""
    prefix = os.path.realpath(sys.base_prefix)
    return prefix, f"{prefix}/bin/python{sys.version_info.major}.{sys.version_info.minor}"


def find() -> str:
    """The path of bwrap. Raises `UnavailableError` where it is not installed."""
    found = shutil.which("bwrap")
    if found is None:
        raise UnavailableError("bubblewrap (bwrap) is not installed, and no sandbox starts without it.", hint=INSTALL)
    return found


def filter_hex() -> str:
    """The seccomp filter, or "" on a machine that we hold no numbers for."""
    try:
        return seccomp.program().hex()
    except KeyError:
        return ""


def config(bases: Path, guest: Path, limits: Limits) -> dict[str, Any]:
    """What `spawner.py` is started with."""
    prefix, python = interpreter()
    env = {
        "PATH": ":".join(dict.fromkeys((f"{prefix}/bin", "/usr/local/bin", "/usr/bin", "/bin"))),
        "HOME": "/tmp",
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return {
        "bases": str(bases.resolve()),
        "guest": str(guest.resolve()),
        "prefix": prefix,
        "owner": OWNER,
        "seccomp": filter_hex(),
        "work_tmpfs": f"size={limits.work_mb}m,nr_inodes={limits.files},mode=755",
        "argv": _argv(find(), prefix, python, limits),
        "env": env,
    }


def _argv(bwrap: str, prefix: str, python: str, limits: Limits) -> list[str]:
    temp = str(limits.temp_mb << 20)
    argv = [bwrap, "--unshare-all", "--unshare-user", "--disable-userns", "--uid", "1000", "--gid", "1000"]
    argv += ["--hostname", "sandbox", "--die-with-parent", "--new-session", "--as-pid-1", "--cap-drop", "ALL"]
    argv += ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        folder = Path("/", name)
        if folder.is_symlink():
            argv += ["--symlink", str(folder.readlink()), str(folder)]
        elif folder.is_dir():
            argv += ["--ro-bind", str(folder), str(folder)]
    for path in ("/etc/alternatives", "/etc/ld.so.cache"):
        argv += ["--ro-bind-try", path, path]
    if prefix != "/usr":
        argv += ["--ro-bind", f"{STAGE}/python", prefix]
    # Read-only, so that no command writes to the memory of the guest.
    argv += ["--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev"]
    for path in ("/tmp", "/dev/shm"):
        argv += ["--size", temp, "--tmpfs", path]
    argv += ["--ro-bind", f"{STAGE}/guest", "/guest/code", "--ro-bind", "@LOWER@", "/guest/base"]
    argv += ["--ro-bind", f"{STAGE}/stage/upper", "/guest/upper", "--bind", f"{STAGE}/root", "/work"]
    argv += ["--remount-ro", "/", "--chdir", "/work"]
    if filter_hex():
        argv += ["--seccomp", "4"]
    return [*argv, "--", python, "-I", "-S", "-B", "/guest/code/guest.pyc"]


def compile_guest(folder: Path) -> None:
    """Put the guest and the search that it uses into `folder` as bytecode."""
    from ostinato import search

    folder.mkdir(parents=True, exist_ok=True)
    here = Path(__file__).parent
    sources = {
        "guest": here / "guest.py",
        "guest_script": here / "guest_script.py",
        "lexical": Path(search.__file__).parent / "lexical.py",
    }
    for name, source in sources.items():
        # Replaced as a whole by py_compile, so that a sandbox that starts meanwhile reads the old or the new one.
        py_compile.compile(
            str(source),
            str(folder / f"{name}.pyc"),
            doraise=True,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
        (folder / f"{name}.pyc").chmod(0o644)
