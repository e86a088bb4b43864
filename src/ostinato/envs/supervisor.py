"""Starts, addresses and ends sandboxes: the bubblewrap backend. Raises the house's errors."""

import asyncio
import contextlib
import json
import marshal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from ostinato.envs import bubblewrap
from ostinato.envs.bases import BaseStore, check_paths
from ostinato.envs.client import Changes, SandboxDiedError
from ostinato.envs.limits import Limits
from ostinato.records import BadInputError, ConflictError, ExecResult, MissingError, UnavailableError, new_id

T = TypeVar("T")
MAX_FRAME = 32 * 2**20
_GRACE = 30.0
"""Seconds beyond a command's own time-out after which a silent guest counts as dead."""
_REFUSALS: dict[str, type[BadInputError | MissingError | ConflictError]] = {
    "bad": BadInputError,
    "missing": MissingError,
    "full": ConflictError,
}


class _Text(Struct, frozen=True):
    text: str


class _Refused(Struct, frozen=True):
    refused: str = ""
    message: str = ""
    value: msgspec.Raw = msgspec.Raw(b"null")


class Guest:
    """One live sandbox: requests go in one at a time."""

    def __init__(self, sandbox_id: str, base: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.sandbox_id = sandbox_id
        self.base = base
        self.used_at = asyncio.get_running_loop().time()
        self._reader = reader
        self._writer = writer
        self._turn = asyncio.Lock()

    async def exec(self, argv: Sequence[str], timeout: float, limits: Limits) -> ExecResult:
        """Run a command; see `Workspace.exec`."""
        if not argv or any("\0" in part for part in argv):
            raise BadInputError("`argv` needs a command, and no part of it may hold a NUL.", param="argv")
        if not 0 < timeout <= limits.exec_s:
            raise BadInputError(f"`timeout` is {timeout}; it must lie in (0, {limits.exec_s:g}].", param="timeout")
        return await self._ask("exec", (list(argv), timeout, limits.output_kb << 10), ExecResult, timeout)

    async def read(self, path: str) -> str:
        """The text of a file."""
        check_paths({path: None})
        return (await self._ask("read", (path,), _Text)).text

    async def write(self, files: Mapping[str, str | None]) -> None:
        """Write whole files; None deletes one."""
        check_paths(files)
        await self._ask("write", (dict(files),), dict[str, bool])

    async def search(self, pattern: str) -> str:
        """The search tool's reply."""
        return (await self._ask("search", (pattern,), _Text)).text

    async def list(self) -> list[str]:
        """The paths of all regular files."""
        return await self._ask("list", (), list[str])

    async def diff(self) -> Changes:
        """What differs from the base."""
        return await self._ask("diff", (), Changes)

    async def hello(self, limits: Limits) -> None:
        """The first exchange: the guest takes its limits and answers when it is ready."""
        try:
            async with asyncio.timeout(limits.start_s):
                self._send(limits.rlimits())
                await self._receive()
        except TimeoutError as error:
            raise UnavailableError(f"Sandbox {self.sandbox_id} did not start within {limits.start_s:g} s.") from error

    @property
    def busy(self) -> bool:
        """Is a request under way?"""
        return self._turn.locked()

    def hang_up(self) -> None:
        """Close the connection; whoever waits for an answer gets `SandboxDiedError`."""
        self._writer.close()
        self._reader.feed_eof()

    def _died(self) -> SandboxDiedError:
        return SandboxDiedError(f"Sandbox {self.sandbox_id} is gone.", hint="Fork a new one.")

    def _send(self, message: Any) -> None:
        payload = marshal.dumps(message)
        self._writer.write(len(payload).to_bytes(4, "big") + payload)

    async def _receive(self) -> bytes:
        """One frame. What is not one, at the start, is the words of whatever failed before the guest ran."""
        try:
            head = await self._reader.readexactly(4)
            size = int.from_bytes(head, "big")
            if size <= MAX_FRAME:
                return await self._reader.readexactly(size)
            words = head + await self._reader.read(4096)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise self._died() from error
        raise UnavailableError(
            f"A sandbox does not start: {words.decode(errors='replace').strip()}", hint="Run `ostinato doctor`."
        )

    async def _ask(self, verb: str, arguments: tuple[object, ...], reply: type[T], seconds: float = 0.0) -> T:
        async with self._turn:
            try:
                async with asyncio.timeout(seconds + _GRACE):
                    self._send((verb, arguments))
                    payload = await self._receive()
            except TimeoutError as error:
                self.hang_up()
                raise self._died() from error
            except asyncio.CancelledError:
                # The answer would be taken for the next request's.
                self.hang_up()
                raise
        self.used_at = asyncio.get_running_loop().time()
        try:
            answer = msgspec.json.decode(payload, type=_Refused)
            if answer.refused:
                raise _REFUSALS[answer.refused](answer.message)
            return msgspec.json.decode(answer.value, type=reply)
        except (msgspec.DecodeError, KeyError) as error:
            self.hang_up()
            raise self._died() from error


class Supervisor:
    """All sandboxes of one server. `on_end` is called with the id of each sandbox that ends unasked."""

    def __init__(self, root: Path, limits: Limits) -> None:
        self.bases = BaseStore(root / "bases")
        self.limits = limits
        self._root = root
        self.on_end: Callable[[str], None] = _ignore
        self._live: dict[str, Guest] = {}
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._settled: asyncio.Future[None] | None = None

    async def fork(self, base: str, files: Mapping[str, str | None]) -> Guest:
        """A new sandbox. Raises `MissingError` for an unknown base, `UnavailableError` if none can be started."""
        self.bases.tree(base)
        check_paths(files)
        control = await self._spawner()
        ours, theirs = socket.socketpair()
        sandbox_id = new_id("sb-")
        with theirs:
            message = json.dumps({"start": sandbox_id, "base": base}).encode()
            socket.send_fds(control, [message], [theirs.fileno()])
        ours.setblocking(False)
        reader, writer = await asyncio.open_unix_connection(sock=ours, limit=1 << 20)
        guest = self._live[sandbox_id] = Guest(sandbox_id, base, reader, writer)
        try:
            await guest.hello(self.limits)
            if files:
                await guest.write(files)
        except SandboxDiedError as error:
            self.end(guest)
            raise UnavailableError(
                f"Sandbox {sandbox_id} ended while it started.", hint="Run `ostinato doctor`."
            ) from error
        except BaseException:
            self.end(guest)
            raise
        return guest

    def end(self, guest: Guest) -> None:
        """Kill a sandbox with all that runs in it."""
        guest.hang_up()
        if guest.sandbox_id in self._live and self._control is not None:
            del self._live[guest.sandbox_id]
            with contextlib.suppress(OSError):
                self._control.send(json.dumps({"kill": guest.sandbox_id}).encode())

    def close(self) -> None:
        """End the spawner, and with it every sandbox."""
        if self._control is not None:
            self._lost()

    async def _spawner(self) -> socket.socket:
        """The spawner's control socket; starts it where there is none."""
        if self._control is None:
            self._start()
        assert self._settled is not None and self._control is not None
        try:
            await asyncio.shield(self._settled)
        except UnavailableError:
            self.close()
            raise
        return self._control

    def _start(self) -> None:
        folder = self._root / "guest"
        bubblewrap.compile_guest(folder)
        config = bubblewrap.config(self.bases.root, folder, self.limits)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        script = str(Path(__file__).with_name("spawner.py"))
        with theirs:
            argv = [bubblewrap.interpreter()[1], "-I", "-S", "-B", script, str(theirs.fileno()), json.dumps(config)]
            self._process = subprocess.Popen(argv, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL)
        ours.setblocking(False)
        loop = asyncio.get_running_loop()
        self._control = ours
        self._settled = loop.create_future()
        loop.add_reader(ours.fileno(), self._hear)

    def _hear(self) -> None:
        """One message of the spawner."""
        assert self._control is not None and self._settled is not None
        try:
            data = self._control.recv(4096)
        except ConnectionError:
            data = b""
        if not data:
            self._lost()
            return
        message = json.loads(data)
        if "failed" in message and not self._settled.done():
            self._settled.set_exception(_cannot_settle(message["failed"], message["errno"]))
        elif "settled" in message and not self._settled.done():
            self._settled.set_result(None)
        elif "ended" in message and message["ended"] in self._live:
            # Not hung up here: its last words may still wait to be read.
            del self._live[message["ended"]]
            self.on_end(message["ended"])

    def _lost(self) -> None:
        """The spawner is gone, so every sandbox is."""
        assert self._control is not None and self._process is not None and self._settled is not None
        asyncio.get_running_loop().remove_reader(self._control.fileno())
        self._control.close()
        self._control = None
        self._process.kill()
        self._process.wait()
        if not self._settled.done():
            self._settled.set_exception(
                UnavailableError("The process that starts sandboxes ended.", hint="Run `ostinato doctor`.")
            )
        self._settled.exception()
        ended, self._live = self._live, {}
        for guest in ended.values():
            guest.hang_up()
            self.on_end(guest.sandbox_id)


def _ignore(_sandbox_id: str) -> None:
    """Nobody asked to hear of the end of sandboxes."""


def _cannot_settle(words: str, number: int) -> UnavailableError:
    """Why namespaces cannot be made, with the next command."""
    from ostinato.envs.probe import namespace_hint

    return UnavailableError(f"No isolation on this machine: {words}.", hint=namespace_hint(number))
