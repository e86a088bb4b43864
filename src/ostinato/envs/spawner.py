"""The one process that starts sandboxes. Standard library alone: it runs as a script, single-threaded, for as long as
the server lives, because bubblewrap's --die-with-parent ends a sandbox when the thread that started it ends.

At start it makes a mount namespace and a user namespace of its own: as root it first gives root up for an id that owns
nothing but bases, so that limits on processes hold and an escape meets an ordinary user. Then, for each message
`{"start": ID, "base": B}` with a socket attached, it forks; the child mounts an overlay of the base under a
size-limited tmpfs in a mount namespace of its own, and becomes bubblewrap, which becomes the guest. `{"kill": ID}` ends
one. `{"ended": ID, "status": N}` tells the server that one is over. When the control socket closes, all are over.

Usage: python3 -I -S spawner.py CONTROL_FD CONFIG_JSON
"""

# A lean process without pathlib, since every sandbox starts as its copy.
# ruff: noqa: PTH102, PTH123
import ctypes
import json
import os
import select
import signal
import socket
import sys
from typing import Any

NEWNS, NEWUSER = 0x00020000, 0x10000000
MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 4096, 16384, 1 << 18
PR_SET_DUMPABLE = 4
STAGE = "/mnt"
"""Covered by a tmpfs in the spawner's own mount namespace; the host's /mnt is untouched."""
LIBC = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> None:
    """Raise the OS error of a failed libc call."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    """mount(2)."""
    call = (source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode() or None)
    check(LIBC.mount(*call), f"mount {kind or 'bind'} on {target}")


def unshare(flags: int, what: str) -> None:
    """unshare(2)."""
    check(LIBC.unshare(flags), f"unshare ({what} namespace)")


def map_root(uid: int, gid: int) -> None:
    """Be root of the fresh user namespace, and nobody else."""
    for name, line in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(line)


def stage(config: dict[str, Any]) -> None:
    """Bind what sandboxes need below `STAGE`, where the unprivileged id can reach it whatever the modes above it."""
    binds = {"bases": config["bases"], "guest": config["guest"]}
    if config["prefix"] != "/usr":
        binds["python"] = config["prefix"]
    sources = {name: os.open(path, os.O_PATH) for name, path in binds.items()}
    mount("tmpfs", STAGE, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=755")
    for name in ("stage", "root", *sources):
        os.mkdir(f"{STAGE}/{name}")
    for name, handle in sources.items():
        mount(f"/proc/self/fd/{handle}", f"{STAGE}/{name}", "", MS_BIND | MS_REC)
        os.close(handle)


def settle(config: dict[str, Any]) -> None:
    """Enter the namespaces from which every sandbox starts."""
    if os.geteuid() == 0:
        owner = config["owner"]
        unshare(NEWNS, "mount")
        mount("none", "/", "", MS_REC | MS_PRIVATE)
        stage(config)
        os.setgroups([])
        os.setresgid(owner, owner, owner)
        os.setresuid(owner, owner, owner)
        # Changing ids cleared it, and without it /proc/self/uid_map belongs to root.
        check(LIBC.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0), "prctl")
        unshare(NEWUSER, "user")
        map_root(owner, owner)
    else:
        uid, gid = os.geteuid(), os.getegid()
        unshare(NEWUSER | NEWNS, "user")
        map_root(uid, gid)
        mount("none", "/", "", MS_REC | MS_PRIVATE)
        stage(config)


def become_sandbox(config: dict[str, Any], base: str, guest: socket.socket) -> None:
    """In the forked child: mount the work tree and become bubblewrap. The socket is its fd 3 and, until the guest runs,
    its standard error, so that words of a failed start reach the server."""
    fd = guest.fileno()
    if fd != 3:
        os.dup2(fd, 3)
    os.set_inheritable(3, True)
    null = os.open("/dev/null", os.O_RDWR)
    for number, source in ((0, null), (1, null), (2, 3)):
        os.dup2(source, number)
    reader, writer = os.pipe()
    os.write(writer, bytes.fromhex(config["seccomp"]))
    os.close(writer)
    os.dup2(reader, 4)
    unshare(NEWNS, "mount")
    mount("tmpfs", f"{STAGE}/stage", "tmpfs", MS_NOSUID | MS_NODEV, config["work_tmpfs"])
    os.mkdir(f"{STAGE}/stage/upper")
    os.mkdir(f"{STAGE}/stage/work")
    lower = f"{STAGE}/bases/{base}/tree"
    layers = f"lowerdir={lower},upperdir={STAGE}/stage/upper,workdir={STAGE}/stage/work,userxattr"
    mount("overlay", f"{STAGE}/root", "overlay", MS_NOSUID | MS_NODEV, layers)
    argv = [part.replace("@LOWER@", lower) for part in config["argv"]]
    os.execve(argv[0], argv, config["env"])


class Spawner:
    """The loop over the control socket and the children."""

    def __init__(self, control: socket.socket, config: dict[str, Any]) -> None:
        self.control = control
        self.config = config
        self.pids: dict[str, int] = {}
        self.names: dict[int, str] = {}

    def start(self, name: str, base: str, guest: socket.socket) -> None:
        """Fork one sandbox."""
        pid = os.fork()
        if pid == 0:
            try:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                become_sandbox(self.config, base, guest)
            except BaseException as error:
                os.write(3, f"The sandbox could not be set up: {error}".encode())
            finally:
                os._exit(1)
        self.pids[name] = pid
        self.names[pid] = name

    def kill(self, name: str) -> None:
        """End one sandbox; one that has ended already needs nothing."""
        if name in self.pids:
            os.kill(self.pids[name], signal.SIGKILL)

    def reap(self) -> None:
        """Tell the server which sandboxes are over."""
        while self.names:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            name = self.names.pop(pid)
            del self.pids[name]
            self.tell({"ended": name, "status": os.waitstatus_to_exitcode(status)})

    def tell(self, message: dict[str, Any]) -> None:
        """Send one message to the server."""
        self.control.send(json.dumps(message).encode())

    def serve(self) -> None:
        """Until the server closes the control socket."""
        wake_reader, wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        poll.register(wake_reader, select.POLLIN)
        self.tell({"settled": True})
        while True:
            ready = dict(poll.poll())
            if wake_reader in ready:
                os.read(wake_reader, 4096)
                self.reap()
            if self.control.fileno() in ready:
                data, fds, _, _ = socket.recv_fds(self.control, 4096, 1)
                if not data:
                    return
                self.obey(json.loads(data), fds)

    def obey(self, message: dict[str, Any], fds: list[int]) -> None:
        """Carry out one message of the server."""
        if "kill" in message:
            self.kill(message["kill"])
            return
        with socket.socket(fileno=fds[0]) as guest:
            self.start(message["start"], message["base"], guest)


def main() -> None:
    """Settle, then serve; a failure to settle is told to the server as it is."""
    control = socket.socket(fileno=int(sys.argv[1]))
    config = json.loads(sys.argv[2])
    # Ctrl-C goes to the whole terminal group; the server ends us by closing the socket.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    spawner = Spawner(control, config)
    try:
        settle(config)
    except OSError as error:
        spawner.tell({"failed": str(error), "errno": error.errno})
        return
    try:
        spawner.serve()
    except BrokenPipeError:
        return


if __name__ == "__main__":
    main()
