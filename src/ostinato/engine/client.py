"""The engine from the other end of the wire. No torch here."""

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any

import aiohttp
import msgspec

from ostinato.engine.joining import join_chunks
from ostinato.engine.slots import Loaded, LoadRequest
from ostinato.records import (
    BadInputError,
    ConflictError,
    GenerateChunk,
    GenerateRequest,
    Generation,
    MissingError,
    OstinatoError,
    SlotStatus,
    UnavailableError,
)

_encoder = msgspec.json.Encoder()
_chunk_decoder = msgspec.json.Decoder(GenerateChunk)
_ERRORS: dict[int, type[OstinatoError]] = {400: BadInputError, 404: MissingError, 409: ConflictError}
_HINT = "Look at the engine's log, or start it again."
_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=300)


class EngineClient:
    """Implements `records.Engine` over HTTP. Give a session to share its connections; otherwise the client makes its
    own within the running loop, and `close()` (or `async with`) ends it."""

    def __init__(self, url: str, session: aiohttp.ClientSession | None = None) -> None:
        self.url = url.rstrip("/")
        self._session = session
        self._own = session is None

    async def __aenter__(self) -> "EngineClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections, unless the session was given."""
        if self._own and self._session is not None:
            await self._session.close()
            self._session = None

    async def generate(self, request: GenerateRequest) -> AsyncIterator[GenerateChunk]:
        """Stream one generation; leaving the loop early (`aclose()`) cancels it in the engine. Raises
        `UnavailableError` when the engine cannot be reached or the stream breaks off, and what the engine refused."""
        headers = {"Accept": "application/x-ndjson", "Content-Type": "application/json"}
        last: GenerateChunk | None = None
        try:
            async with self._open().post(
                f"{self.url}/generate", data=_encoder.encode(request), headers=headers, timeout=_TIMEOUT
            ) as response:
                if response.status != 200:
                    raise _refusal(response.status, await response.read())
                async for line in _lines(response):
                    chunk = _chunk_decoder.decode(line)
                    if chunk.finish_reason is None:
                        yield chunk
                    else:
                        # Given out after the end of the response, so that the connection can be used again.
                        last = chunk
        except (aiohttp.ClientError, TimeoutError, ConnectionError, msgspec.DecodeError) as error:
            raise UnavailableError(f"The engine at {self.url} failed: {error!r}.", hint=_HINT) from error
        if last is None:
            raise UnavailableError(f"The engine at {self.url} broke off midway.", hint=_HINT)
        yield last

    async def generate_all(self, request: GenerateRequest) -> Generation:
        """The whole generation at once."""
        return join_chunks([chunk async for chunk in self.generate(request)])

    async def slots(self) -> list[SlotStatus]:
        """The slots and the version that each holds."""
        return msgspec.json.decode(await self._call("GET", "/slots"), type=list[SlotStatus])

    async def load(self, slot: str, version: str) -> Loaded:
        """Load a version into a slot, in flight where it holds another."""
        body = _encoder.encode(LoadRequest(version))
        return msgspec.json.decode(await self._call("PUT", f"/slots/{slot}", body), type=Loaded)

    async def drop(self, slot: str) -> None:
        """Empty a slot. What runs on it finishes."""
        await self._call("DELETE", f"/slots/{slot}")

    async def stats(self) -> dict[str, int]:
        """The engine's counts."""
        return msgspec.json.decode(await self._call("GET", "/stats"), type=dict[str, int])

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        return self._session

    async def _call(self, method: str, path: str, body: bytes | None = None) -> bytes:
        headers = {"Content-Type": "application/json"}
        try:
            async with self._open().request(
                method, self.url + path, data=body, headers=headers, timeout=_TIMEOUT
            ) as response:
                content = await response.read()
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            raise UnavailableError(f"The engine at {self.url} failed: {error!r}.", hint=_HINT) from error
        if response.status != 200:
            raise _refusal(response.status, content)
        return content


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Whole lines of any length; what comes after the last line break is a broken line, and left out."""
    rest = b""
    async for data in response.content.iter_any():
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            yield line


def _refusal(status: int, content: bytes) -> OstinatoError:
    try:
        error: dict[str, Any] = msgspec.json.decode(content, type=dict[str, Any])["error"]
        message, param = str(error["message"]), error.get("param")
    except (msgspec.DecodeError, KeyError, TypeError):
        message, param = f"The engine answered {status}: {content[:200]!r}.", None
    return _ERRORS.get(status, UnavailableError)(message, param=param)
