"""The environment server's HTTP app: sandboxes and bases by JSON. Errors in OpenAI's shape."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ostinato.envs.client import (
    BaseReply,
    BaseRequest,
    EnvStats,
    ErrorBody,
    ErrorReply,
    ExecRequest,
    ReadRequest,
    SandboxDiedError,
    SearchRequest,
    TextReply,
    WriteRequest,
)
from ostinato.envs.journal import SandboxJournal
from ostinato.envs.supervisor import Guest, Supervisor
from ostinato.records import BadInputError, ForkRequest, MissingError, OstinatoError, SandboxInfo

T = TypeVar("T")
Handler = Callable[[Request], Awaitable[Response]]
MAX_BODY = 32 * 2**20
_SWEEP_S = 5.0


class Server:
    """The live sandboxes, their accounts, and the HTTP handlers."""

    def __init__(self, supervisor: Supervisor, journal: SandboxJournal | None, idle_s: float) -> None:
        self.supervisor = supervisor
        self._journal = journal
        self._idle_s = idle_s
        self._guests: dict[str, Guest] = {}
        self._gone: dict[str, str] = {}
        self._created = 0
        self._starting = 0
        self._ended: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        supervisor.on_end = self._died

    def app(self) -> Starlette:
        """The routes."""
        one = "/sandboxes/{id}"
        table: list[tuple[str, str, Handler]] = [
            ("POST", "/sandboxes", self._fork),
            ("GET", "/sandboxes", self._list),
            ("DELETE", one, self._destroy),
            ("POST", f"{one}/exec", self._exec),
            ("POST", f"{one}/read", self._read),
            ("POST", f"{one}/write", self._write),
            ("POST", f"{one}/search", self._search),
            ("POST", f"{one}/diff", self._diff),
            ("GET", f"{one}/files", self._files),
            ("POST", "/bases", self._import_base),
            ("GET", "/bases", self._bases),
            ("GET", "/stats", self._stats),
            ("GET", "/healthz", self._healthz),
        ]
        routes = [Route(path, self._guarded(handler), methods=[method]) for method, path, handler in table]
        return Starlette(routes=routes, lifespan=self._lifespan)

    async def _fork(self, request: Request) -> Response:
        wanted = await _body(request, ForkRequest)
        self._starting += 1
        try:
            return await self._forked(wanted)
        finally:
            self._starting -= 1

    async def _forked(self, wanted: ForkRequest) -> Response:
        guest = await self.supervisor.fork(wanted.base, wanted.files)
        info = SandboxInfo(guest.sandbox_id, guest.base)
        if self._journal is not None:
            try:
                await self._journal.created(info, wanted.purpose)
            except BaseException:
                self.supervisor.end(guest)
                raise
        self._guests[info.sandbox_id] = guest
        self._created += 1
        return _reply(info)

    async def _list(self, _request: Request) -> Response:
        return _reply([SandboxInfo(guest.sandbox_id, guest.base) for guest in self._guests.values()])

    async def _destroy(self, request: Request) -> Response:
        await self._end(self._guest(request), "asked")
        return _reply({"ok": True})

    async def _exec(self, request: Request) -> Response:
        wanted = await _body(request, ExecRequest)
        return _reply(await self._guest(request).exec(wanted.argv, wanted.timeout, self.supervisor.limits))

    async def _read(self, request: Request) -> Response:
        wanted = await _body(request, ReadRequest)
        return _reply(TextReply(await self._guest(request).read(wanted.path)))

    async def _write(self, request: Request) -> Response:
        wanted = await _body(request, WriteRequest)
        await self._guest(request).write(wanted.files)
        return _reply({"ok": True})

    async def _search(self, request: Request) -> Response:
        wanted = await _body(request, SearchRequest)
        return _reply(TextReply(await self._guest(request).search(wanted.pattern)))

    async def _diff(self, request: Request) -> Response:
        return _reply(await self._guest(request).diff())

    async def _files(self, request: Request) -> Response:
        return _reply(await self._guest(request).list())

    async def _import_base(self, request: Request) -> Response:
        wanted = await _body(request, BaseRequest)
        return _reply(BaseReply(self.supervisor.bases.import_files(wanted.files)))

    async def _bases(self, _request: Request) -> Response:
        return _reply(self.supervisor.bases.ids())

    async def _stats(self, _request: Request) -> Response:
        return _reply(
            EnvStats(self._created, len(self._guests), dict(self._ended), dict(self._failures), self._starting)
        )

    async def _healthz(self, _request: Request) -> Response:
        return _reply({"ok": True})

    def _guest(self, request: Request) -> Guest:
        """The live sandbox that the path names."""
        name = request.path_params["id"]
        guest = self._guests.get(name)
        if guest is not None:
            return guest
        if name in self._gone:
            raise SandboxDiedError(f"Sandbox {name} is gone ({self._gone[name]}).", hint="Fork a new one.")
        raise MissingError(f"There is no sandbox {name!r}.", hint="Fork one (POST /sandboxes).", param="id")

    async def _end(self, guest: Guest, reason: str) -> None:
        """Kill a sandbox and account for it, once."""
        if self._guests.pop(guest.sandbox_id, None) is None:
            return
        self._gone[guest.sandbox_id] = reason
        self._ended[reason] += 1
        self.supervisor.end(guest)
        if self._journal is not None:
            await self._journal.destroyed(guest.sandbox_id, reason)

    def _died(self, sandbox_id: str) -> None:
        """The supervisor saw a sandbox end that nobody asked to end."""
        if (guest := self._guests.get(sandbox_id)) is not None:
            task = asyncio.get_running_loop().create_task(self._end(guest, "died"))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _sweep(self) -> None:
        """End sandboxes that nobody uses any more."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(_SWEEP_S, self._idle_s / 2))
            for guest in list(self._guests.values()):
                if not guest.busy and loop.time() - guest.used_at > self._idle_s:
                    await self._end(guest, "idle")

    @contextlib.asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        sweeper = asyncio.get_running_loop().create_task(self._sweep())
        try:
            yield
        finally:
            sweeper.cancel()
            for guest in list(self._guests.values()):
                await self._end(guest, "shutdown")
            self.supervisor.close()

    def _guarded(self, handler: Handler) -> Handler:
        """Turn the house's errors into answers, and count them."""

        async def guarded(request: Request) -> Response:
            try:
                return await handler(request)
            except OstinatoError as error:
                self._failures[error.kind] += 1
                if isinstance(error, SandboxDiedError) and (
                    guest := self._guests.get(request.path_params.get("id", ""))
                ):
                    await self._end(guest, "died")
                body = ErrorReply(ErrorBody(error.message, error.kind, error.param, error.hint))
                return _reply(body, error.status)

        return guarded


async def _body(request: Request, kind: type[T]) -> T:
    """The decoded body. Raises `BadInputError` for what is too large, not JSON, or not of this shape."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > MAX_BODY:
            raise BadInputError(f"The request's body is larger than {MAX_BODY >> 20} MiB.", hint="Send less at once.")
        parts.append(part)
    try:
        return msgspec.json.decode(b"".join(parts), type=kind)
    except msgspec.DecodeError as error:
        raise BadInputError(f"The request's body cannot be read: {error}.") from error


def _reply(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
