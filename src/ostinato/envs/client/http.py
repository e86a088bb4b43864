"""The typed client over HTTP."""

from collections.abc import Mapping, Sequence
from io import BytesIO
from types import TracebackType
from typing import Self, TypeVar

import aiohttp
import msgspec

from ostinato.envs.client.wire import (
    EXEC_TIMEOUT,
    BaseReply,
    BaseRequest,
    Changes,
    EnvStats,
    ErrorReply,
    ExecRequest,
    ReadRequest,
    SandboxDiedError,
    SearchRequest,
    TextReply,
    WriteRequest,
)
from ostinato.records import (
    BadInputError,
    ConflictError,
    ExecResult,
    ForkRequest,
    MissingError,
    OstinatoError,
    SandboxInfo,
    UnavailableError,
)

T = TypeVar("T")
_ERRORS: dict[int, type[OstinatoError]] = {
    400: BadInputError,
    404: MissingError,
    409: ConflictError,
    410: SandboxDiedError,
    503: UnavailableError,
}
_SLACK = 30.0
"""Seconds that a reply may take beyond the command's own time: both cores may be busy."""


class EnvClient:
    """Talks to one environment server. Use it as an async context, or call `close()`.

    Every method raises `UnavailableError` when the server does not answer, and never tries again by itself: a command
    may have run."""

    def __init__(self, url: str) -> None:
        """`url` is the server's root, for example `http://127.0.0.1:8003`."""
        self.url = url.rstrip("/")
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. Sandboxes stay as they are."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def import_base(self, files: Mapping[str, str]) -> str:
        """Store files (path -> text) as a base and give its id; the same files have the same id."""
        reply = await self.request("POST", "/bases", BaseReply, BaseRequest(files=dict(files)))
        return reply.base

    async def bases(self) -> list[str]:
        """The ids of all bases, sorted."""
        return await self.request("GET", "/bases", list[str])

    async def fork(
        self, base: str, *, files: Mapping[str, str | None] | None = None, purpose: str = "live"
    ) -> "Sandbox":
        """A new sandbox from a base, with `files` written into it first (None deletes). Raises `MissingError` for an
        unknown base."""
        body = ForkRequest(base=base, purpose=purpose, files=dict(files or {}))
        return Sandbox(self, await self.request("POST", "/sandboxes", SandboxInfo, body))

    async def sandboxes(self) -> list[SandboxInfo]:
        """All live sandboxes."""
        return await self.request("GET", "/sandboxes", list[SandboxInfo])

    async def stats(self) -> EnvStats:
        """Counts since the server started."""
        return await self.request("GET", "/stats", EnvStats)

    async def request(
        self, method: str, path: str, reply: type[T], body: msgspec.Struct | None = None, seconds: float = 0.0
    ) -> T:
        """One HTTP request; `seconds` is the time that the work itself may take."""
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        # As a stream, since aiohttp warns of large bodies given as bytes.
        data = None if body is None else BytesIO(msgspec.json.encode(body))
        limit = aiohttp.ClientTimeout(total=seconds + _SLACK)
        try:
            async with self._session.request(method, self.url + path, data=data, timeout=limit) as answer:
                payload = await answer.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise UnavailableError(
                f"The environment server at {self.url} does not answer ({type(error).__name__}: {error}).",
                hint="Start it with `ostinato envs`.",
            ) from error
        if answer.status >= 400:
            raise _error(answer.status, payload)
        return msgspec.json.decode(payload, type=reply)


class Sandbox:
    """One sandbox on the server; see `Workspace` for what each method promises. As an async context it is destroyed at
    the end."""

    def __init__(self, client: EnvClient, info: SandboxInfo) -> None:
        self._client = client
        self._info = info

    @property
    def sandbox_id(self) -> str:
        """The id under which the server and the ledger know it."""
        return self._info.sandbox_id

    @property
    def base(self) -> str:
        """The base that it was forked from."""
        return self._info.base

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.destroy()

    async def exec(self, argv: Sequence[str], timeout: float = EXEC_TIMEOUT) -> ExecResult:
        """Run a command in the work tree; everything that it started is killed when it ends."""
        return await self._post("exec", ExecResult, ExecRequest(argv=list(argv), timeout=timeout), timeout)

    async def read(self, path: str) -> str:
        """The text of a file."""
        return (await self._post("read", TextReply, ReadRequest(path=path))).text

    async def write(self, files: Mapping[str, str | None]) -> None:
        """Write whole files, making folders as needed; None deletes a file."""
        await self._post("write", dict[str, bool], WriteRequest(files=dict(files)))

    async def search(self, pattern: str) -> str:
        """The reply of the search tool: up to 8 lines `path:LINE: text`, or `no match`."""
        return (await self._post("search", TextReply, SearchRequest(pattern=pattern))).text

    async def list(self) -> list[str]:
        """The paths of all regular files, sorted."""
        return await self._client.request("GET", f"/sandboxes/{self.sandbox_id}/files", list[str])

    async def diff(self) -> Changes:
        """What differs from the base."""
        return await self._post("diff", Changes)

    async def destroy(self) -> None:
        """End it and everything that runs in it. Doing so again changes nothing."""
        try:
            await self._client.request("DELETE", f"/sandboxes/{self.sandbox_id}", dict[str, bool])
        except SandboxDiedError:
            return

    async def _post(self, verb: str, reply: type[T], body: msgspec.Struct | None = None, seconds: float = 0.0) -> T:
        return await self._client.request("POST", f"/sandboxes/{self.sandbox_id}/{verb}", reply, body, seconds)


def _error(status: int, payload: bytes) -> OstinatoError:
    """The house's error for an answer; the server's own words where it sent them."""
    try:
        body = msgspec.json.decode(payload, type=ErrorReply).error
    except msgspec.DecodeError:
        return UnavailableError(f"The environment server answered {status}: {payload[:200]!r}.")
    return _ERRORS.get(status, OstinatoError)(body.message, hint=body.hint, param=body.param)
