"""The engine over HTTP: POST /generate, the slots, the counts. Loopback only; the gateway is the door for people."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from ostinato.engine.joining import join_chunks
from ostinato.engine.service import Service
from ostinato.engine.slots import LoadRequest
from ostinato.records import BadInputError, GenerateChunk, GenerateRequest, MissingError, OstinatoError

NDJSON = "application/x-ndjson"

log = logging.getLogger("ostinato.engine")
_encoder = msgspec.json.Encoder()
_generate_decoder = msgspec.json.Decoder(GenerateRequest)
_load_decoder = msgspec.json.Decoder(LoadRequest)
T = TypeVar("T")


def build_app(service: Service) -> Starlette:
    """The ASGI application. The caller closes `service` after the last request."""

    async def generate(request: Request) -> Response:
        wanted = _decode(_generate_decoder, await request.body())
        stream = _Stream(service, request, wanted)
        if NDJSON in request.headers.get("accept", ""):
            return StreamingResponse(stream.lines(), media_type=NDJSON)
        return _json(join_chunks([chunk async for chunk in stream.chunks()]))

    async def slots(_: Request) -> Response:
        return _json(service.status())

    async def load(request: Request) -> Response:
        version = _decode(_load_decoder, await request.body()).version
        return _json(await run_in_threadpool(service.load, request.path_params["slot"], version))

    async def drop(request: Request) -> Response:
        await run_in_threadpool(service.drop, request.path_params["slot"])
        return _json({"slot": request.path_params["slot"], "dropped": True})

    async def stats(_: Request) -> Response:
        return _json(service.stats())

    async def healthz(_: Request) -> Response:
        service.check_alive()
        return _json({"ok": True, "slots": len(service.status())})

    def route(path: str, method: str, endpoint: Callable[[Request], Awaitable[Response]]) -> Route:
        return Route(path, endpoint, methods=[method])

    return Starlette(
        routes=[
            route("/generate", "POST", generate),
            route("/slots", "GET", slots),
            route("/slots/{slot}", "PUT", load),
            route("/slots/{slot}", "DELETE", drop),
            route("/stats", "GET", stats),
            route("/healthz", "GET", healthz),
        ],
        exception_handlers={OstinatoError: _on_error, HTTPException: _on_http_error, Exception: _on_bug},
    )


class _Stream:
    """The chunks of one request, from the scheduler's thread to this loop. The client's going away cancels it."""

    def __init__(self, service: Service, request: Request, wanted: GenerateRequest) -> None:
        self._service, self._request = service, request
        self._queue: asyncio.Queue[GenerateChunk | Exception] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        # Submitted at once, so that what is wrong with the request becomes the answer's status.
        self._sequence = service.submit(wanted, self._sink)

    def _sink(self, item: GenerateChunk | Exception) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._queue.put_nowait, item)

    async def chunks(self) -> AsyncGenerator[GenerateChunk, None]:
        """Until the last one; raises what went wrong in the scheduler."""
        watcher = asyncio.ensure_future(self._watch())
        finished = False
        try:
            while not finished:
                item = await self._queue.get()
                if isinstance(item, Exception):
                    finished = True
                    raise item
                finished = item.finish_reason is not None
                yield item
        finally:
            watcher.cancel()
            if not finished:
                self._service.cancel(self._sequence)

    async def lines(self) -> AsyncIterator[bytes]:
        """One JSON line each. A failure midway ends the stream without a last chunk, which the client notices."""
        try:
            async with aclosing(self.chunks()) as chunks:
                async for chunk in chunks:
                    yield _encoder.encode(chunk) + b"\n"
        except OstinatoError as error:
            log.warning("A stream broke off: %s", error)

    async def _watch(self) -> None:
        """The body has been read, so the next message of the connection is its end."""
        while (await self._request.receive())["type"] != "http.disconnect":
            pass
        self._service.cancel(self._sequence)


def _decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    try:
        return decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise BadInputError(f"The body cannot be read: {error}.", hint="See records.GenerateRequest.") from error


def _json(value: object) -> Response:
    return Response(_encoder.encode(value), media_type="application/json")


def _error(error: OstinatoError) -> Response:
    body: dict[str, Any] = {"message": str(error), "type": error.kind, "param": error.param, "code": error.kind}
    return Response(_encoder.encode({"error": body}), error.status, media_type="application/json")


async def _on_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, OstinatoError)
    return _error(error)


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    where = f"{request.method} {request.url.path}"
    refused = MissingError(f"There is no {where}.", hint="Try POST /generate, GET /slots, GET /stats, GET /healthz.")
    refused.status = error.status_code
    return _error(refused)


async def _on_bug(_: Request, error: Exception) -> Response:
    return _error(OstinatoError(f"The engine failed: {type(error).__name__}.", hint="Its log says more."))
