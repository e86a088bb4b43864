"""The process inside a sandbox: the sandbox's first process (pid 1), which does all work on its files.

It reads requests from the socket at fd 3 and answers each before it reads the next. A frame is 4 bytes of length, most
significant first, and that many bytes: of `marshal` towards the guest (the server is trusted), of JSON from it (the
guest is not). Standard library alone and few imports, since its start is most of what a sandbox costs; it is shipped
into the sandbox as bytecode.

As pid 1 it cannot be signalled from within, and `kill(-1)` in it ends every other process of the sandbox. It does so
after every command, so nothing that one command started can meddle with the next.
"""

# What is imported before PRISTINE would hide from it, and pathlib would be half of the cost of a start.
# ruff: noqa: E402, PTH103, PTH108, PTH110, PTH112, PTH114, PTH120, PTH123
import sys

PRISTINE = frozenset(sys.modules)  # what a bare interpreter holds: taken before anything else is imported

import marshal
import os
import resource
import select
import stat
import time

TYPE_CHECKING = False  # typing and collections would cost more to import than all the rest
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

SOCKET = 3
WORK, BASE, UPPER, CODE = "/work", "/guest/base", "/guest/upper", "/guest/code"

sys.path.append(CODE)
from guest_script import run_script, script_at  # type: ignore[import-not-found]

SKIPPED = ("__pycache__", ".git")
MAX_TEXT = 4 * 2**20
"""Bytes of the largest file that is read, and of all text in one diff."""
MAX_SEARCHED = 2**20
ESCAPES = {code: f"\\u{code:04x}" for code in range(32)} | {34: '\\"', 92: "\\\\"}


class Refusal(Exception):  # noqa: N818 - an answer, not a fault of ours
    """A request that cannot be met; `kind` says which of the house's errors it becomes."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(kind, message)
        self.kind = kind
        self.message = message


def to_json(value: "Any") -> str:
    """JSON text of what replies are made of. The json module costs as much to import as all the rest together."""
    if isinstance(value, str):
        return f'"{value.translate(ESCAPES)}"'
    if isinstance(value, dict):
        return "{" + ",".join(f"{to_json(key)}:{to_json(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(to_json, value)) + "]"
    if value is None or value is True or value is False:
        return {None: "null", True: "true", False: "false"}[value]
    return repr(value)


def receive_bytes(count: int) -> bytes:
    """Exactly `count` bytes; the sandbox ends with the connection."""
    parts = []
    while count:
        part = os.read(SOCKET, min(count, 1 << 20))
        if not part:
            os._exit(0)
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def receive() -> "Any":
    """One request of the server."""
    return marshal.loads(receive_bytes(int.from_bytes(receive_bytes(4), "big")))


def send(reply: "Any") -> None:
    """One frame to the server."""
    payload = to_json(reply).encode("utf-8", "replace")
    view = memoryview(len(payload).to_bytes(4, "big") + payload)
    while view:
        view = view[os.write(SOCKET, view) :]


def place(path: str) -> str:
    """The absolute path of a path in the work tree, links resolved; refuses what lies outside."""
    if not path or "\0" in path or path.startswith("/") or ".." in path.split("/"):
        raise Refusal("bad", f"{path!r} is not a path inside the work tree.")
    parent, name = os.path.split(os.path.normpath(f"{WORK}/{path}"))
    real = os.path.realpath(parent)
    if real != WORK and not real.startswith(f"{WORK}/"):
        raise Refusal("bad", f"{path!r} leads out of the work tree by a symbolic link.")
    return f"{real}/{name}"


def slurp(full: str, limit: int) -> bytes | None:
    """The content of a regular file of at most `limit` bytes, links not followed; None for anything else."""
    try:
        seen = os.lstat(full)
        if not stat.S_ISREG(seen.st_mode) or seen.st_size > limit:
            return None
        with open(full, "rb") as file:
            return file.read()
    except OSError:
        return None


def read(path: str) -> "dict[str, Any]":
    """The text of one file. A link to another file of the work tree is followed."""
    full = os.path.realpath(place(path))
    if not full.startswith(f"{WORK}/"):
        raise Refusal("bad", f"{path!r} leads out of the work tree by a symbolic link.")
    if not os.path.exists(full):
        raise Refusal("missing", f"There is no file {path!r}.")
    content = slurp(full, MAX_TEXT)
    if content is None:
        raise Refusal("bad", f"{path!r} is not a readable file of at most {MAX_TEXT >> 20} MiB.")
    try:
        return {"text": content.decode()}
    except UnicodeDecodeError:
        raise Refusal("bad", f"{path!r} is not UTF-8 text.") from None


def write(files: dict[str, str | None]) -> "dict[str, Any]":
    """Write whole files; every path is judged before the first is written."""
    places = [(path, place(path), text) for path, text in files.items()]
    for path, full, text in places:
        try:
            write_one(full, text)
        except FileNotFoundError:
            raise Refusal("missing", f"There is no file {path!r} to delete.") from None
        except OSError as error:
            raise Refusal("full" if error.errno in (28, 27, 122) else "bad", f"{path!r}: {error.strerror}.") from None
    return {"ok": True}


def write_one(full: str, text: str | None) -> None:
    """Write or delete one file. Whatever is not a regular file (a link, a fifo) is replaced, never written through."""
    if text is None:
        os.unlink(full)
        return
    if os.path.lexists(full) and not stat.S_ISREG(os.lstat(full).st_mode):
        os.unlink(full)
    os.makedirs(os.path.dirname(full), exist_ok=True)
    with open(full, "w", encoding="utf-8", newline="") as file:
        file.write(text)


def walk(root: str) -> "Iterator[str]":
    """Paths below `root`, relative to it, of everything but folders; caches and git's own files are left out."""
    stack = [""]
    while stack:
        prefix = stack.pop()
        try:
            entries = list(os.scandir(f"{root}/{prefix}"))
        except OSError:
            continue
        for entry in entries:
            if entry.name in SKIPPED or entry.name.endswith(".pyc"):
                continue
            if entry.is_dir(follow_symlinks=False):
                stack.append(f"{prefix}{entry.name}/")
            else:
                yield prefix + entry.name


def shown(path: str) -> str:
    """A file name as text that JSON can carry."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def list_files() -> list[str]:
    """The paths of all regular files."""
    return [shown(path) for path in sorted(walk(WORK)) if stat.S_ISREG(os.lstat(f"{WORK}/{path}").st_mode)]


def search(pattern: str) -> "dict[str, Any]":
    """The search tool's reply over all text files."""
    from lexical import search_files  # type: ignore[import-not-found]

    found = []
    for path in walk(WORK):
        content = slurp(f"{WORK}/{path}", MAX_SEARCHED)
        if content is not None:
            found.append((shown(path), content.decode("utf-8", "replace")))
    return {"text": search_files(found, pattern)}


def touched() -> set[str]:
    """Paths that may differ from the base: what the overlay's upper layer holds, and, below each folder that it hides
    or replaces, what the base has there. The cost does not depend on the size of the base."""
    paths = set(walk(UPPER))
    hidden = [path for path in paths if os.path.isdir(f"{BASE}/{path}")]
    stack = [""]
    while stack:
        prefix = stack.pop()
        for entry in os.scandir(f"{UPPER}/{prefix}"):
            if entry.is_dir(follow_symlinks=False) and entry.name not in SKIPPED:
                path = prefix + entry.name
                stack.append(f"{path}/")
                if not os.path.isdir(f"{BASE}/{path}"):
                    paths.add(path)
                elif is_opaque(f"{UPPER}/{path}"):
                    hidden.append(path)
    for path in hidden:
        paths.update(f"{path}/{name}" for name in walk(f"{BASE}/{path}"))
    return paths


def is_opaque(folder: str) -> bool:
    """Does this folder of the upper layer replace, rather than extend, the base's?"""
    try:
        return os.getxattr(folder, "user.overlay.opaque") == b"y"
    except OSError:
        return False


def is_leaf(full: str) -> bool:
    """Is there anything but a folder?"""
    return os.path.islink(full) or (os.path.exists(full) and not os.path.isdir(full))


def diff() -> "dict[str, Any]":
    """What differs from the base. The upper layer only says where to look; the answer compares what a reader sees."""
    files: dict[str, str | None] = {}
    unreadable: list[str] = []
    room = MAX_TEXT
    for path in sorted(touched()):
        full, base = f"{WORK}/{path}", f"{BASE}/{path}"
        was_file = is_leaf(base)
        if not is_leaf(full):
            if was_file:
                files[shown(path)] = None
            continue
        content = slurp(full, room)
        if content is not None and was_file and content == slurp(base, MAX_TEXT):
            continue
        try:
            path.encode()
            text = None if content is None else content.decode()
        except UnicodeError:
            text = None
        if text is None:
            unreadable.append(shown(path))
        else:
            files[path] = text
            room -= len(text)
    return {"files": files, "unreadable": unreadable}


def launch(argv: list[str], output: int) -> None:
    """In the forked child: become the command."""
    null = os.open("/dev/null", os.O_RDONLY)
    for number, source in ((0, null), (1, output), (2, output)):
        os.dup2(source, number)
    os.closerange(SOCKET, os.sysconf("SC_OPEN_MAX"))
    os.setsid()
    os.chdir(WORK)
    if at := script_at(argv, WORK):
        run_script(f"{WORK}/{argv[at]}", argv[at:], PRISTINE, CODE)
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def sweep() -> None:
    """End every other process of the sandbox and wait for all of them."""
    while True:
        try:  # noqa: SIM105 - contextlib would be one more import at every start
            os.kill(-1, 9)
        except ProcessLookupError:
            pass
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def run(argv: list[str], timeout: float, limit: int) -> "dict[str, Any]":
    """Run one command, and end all that it started."""
    begun = time.monotonic()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        launch(argv, writer)
    os.close(writer)
    ended = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    poll.register(ended, select.POLLIN)
    output = bytearray()
    total = 0
    exit_code: int | None = None
    deadline = begun + timeout
    while exit_code is None and (left := deadline - time.monotonic()) > 0:
        for number, _ in poll.poll(left * 1000):
            if number == ended:
                exit_code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            elif part := os.read(reader, 65536):
                total += len(part)
                output += part[: limit - len(output)]
            else:
                poll.unregister(reader)
    sweep()
    while part := os.read(reader, 65536):
        total += len(part)
        output += part[: limit - len(output)]
    os.close(reader)
    os.close(ended)
    code = 137 if exit_code is None else exit_code if exit_code >= 0 else 128 - exit_code
    return {
        "exit_code": code,
        "output": output.decode("utf-8", "replace"),
        "timed_out": exit_code is None,
        "truncated": total > len(output),
        "seconds": round(time.monotonic() - begun, 6),
    }


VERBS: "dict[str, Callable[..., Any]]" = {"exec": run, "read": read, "write": write, "list": list_files}
VERBS |= {"search": search, "diff": diff}


def limit_resources(limits: dict[str, int]) -> None:
    """Lower the limits for ourselves and all that we start. Only now, since the kernel also holds a limit on processes
    that was set before a user namespace was made against the processes of all sandboxes together."""
    for name, value in limits.items():
        resource.setrlimit(getattr(resource, name), (value, value))


def main() -> None:
    """Answer requests until the server hangs up."""
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 2)
    os.set_inheritable(SOCKET, False)
    limit_resources(receive())
    send({"ok": True})
    while True:
        verb, arguments = receive()
        try:
            send({"value": VERBS[verb](*arguments)})
        except Refusal as refusal:
            send({"refused": refusal.kind, "message": refusal.message})
        except OSError as error:
            send({"refused": "full", "message": f"{verb}: {error.strerror}."})


if __name__ == "__main__":
    main()
