"""The gateway as a Starlette application."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ostinato.gateway.arms import MODELS, target_of
from ostinato.gateway.chat import ChatEndpoint
from ostinato.gateway.config import GatewayConfig
from ostinato.gateway.errors import WrongMethodError, error_json
from ostinato.gateway.gateway import Gateway
from ostinato.gateway.intake import FeedbackEndpoint
from ostinato.gateway.otlp import LogsEndpoint
from ostinato.gateway.reference import docs_page, openapi_page
from ostinato.records import BadInputError, Engine, MissingError, OstinatoError, UnavailableError, new_id
from ostinato.store import Ledger

_COUNTED = {
    "/v1/chat/completions": "http.requests.chat",
    "/v1/feedback": "http.requests.feedback",
    "/v1/logs": "http.requests.logs",
}


def build_app(config: GatewayConfig, ledger: Ledger, engine: Engine, frame: Mapping[str, bytes]) -> ASGIApp:
    """The application over an open ledger (as its owner), an engine, and the small files of the model's folder."""
    gateway = Gateway(config, ledger, engine, frame)
    pages = Pages(gateway)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await gateway.start()
        try:
            yield
        finally:
            await gateway.stop()

    app = Starlette(
        routes=[
            Route("/v1/chat/completions", ChatEndpoint(gateway), methods=["POST"]),
            Route("/v1/feedback", FeedbackEndpoint(gateway).__call__, methods=["POST"]),
            Route("/v1/logs", LogsEndpoint(gateway).__call__, methods=["POST"]),
            Route("/v1/models", pages.models, methods=["GET"]),
            Route("/v1/models/{model}", pages.model, methods=["GET"]),
            Route("/v1/sessions/{session_id}", pages.session, methods=["GET"]),
            Route("/admin/refresh", pages.refresh, methods=["POST"]),
            Route("/openapi.json", openapi_page, methods=["GET"]),
            Route("/docs", docs_page, methods=["GET"]),
            Route("/healthz", pages.health, methods=["GET"]),
            Route("/metrics", pages.metrics, methods=["GET"]),
        ],
        exception_handlers={OstinatoError: _ours, HTTPException: _theirs, Exception: _unforeseen},
        lifespan=lifespan,
    )
    return _Front(app, gateway)


class Pages:
    """The small endpoints."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def models(self, request: Request) -> Response:
        """The names by which the model can be asked."""
        self._gateway.access.caller(request.scope["headers"], "infer")
        return _json({"object": "list", "data": [self._model(name) for name in MODELS]})

    async def model(self, request: Request) -> Response:
        """One name."""
        self._gateway.access.caller(request.scope["headers"], "infer")
        name = request.path_params["model"]
        target_of(name)
        return _json(self._model(name))

    async def session(self, request: Request) -> Response:
        """A session and its turns, without their tokens."""
        self._gateway.access.caller(request.scope["headers"], "admin")
        session_id = request.path_params["session_id"]
        row = self._gateway.ledger.session(session_id)
        if row is None:
            raise MissingError(f"There is no session {session_id[:128]!r}.", hint="List them: ostinato status")
        turns = await asyncio.to_thread(self._gateway.ledger.turns, session_id, False)
        return _json({"session": row, "turns": turns})

    async def refresh(self, request: Request) -> Response:
        """Read the running experiment again, at once."""
        self._gateway.access.caller(request.scope["headers"], "admin")
        self._gateway.arms.refresh()
        release = self._gateway.ledger.current_release()
        return _json({"experiment": self._gateway.arms.experiment, "release": release})

    async def health(self, _: Request) -> Response:
        """Whether chat requests can be answered."""
        try:
            slots = await self._gateway.engine.slots()
        except UnavailableError as error:
            return _refusal(error)
        return _json({"status": "ok", "slots": slots})

    async def metrics(self, _: Request) -> Response:
        """Counters in Prometheus' text format."""
        return Response(self._gateway.counts.exposition(), media_type="text/plain; version=0.0.4")

    def _model(self, name: str) -> dict[str, str | int]:
        return {"id": name, "object": "model", "created": int(self._gateway.started_at), "owned_by": "ostinato"}


class _Front:
    """Counts every HTTP request and gives each answer a request id."""

    def __init__(self, app: ASGIApp, gateway: Gateway) -> None:
        self._app = app
        self._counts = gateway.counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        self._counts.add("http.requests")
        counted = _COUNTED.get(scope["path"])
        if counted is not None:
            self._counts.add(counted)
        request_id = new_id("req-").encode()

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-request-id", request_id)]
            await send(message)

        await self._app(scope, receive, send_with_id)


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")


def _refusal(error: OstinatoError, headers: Mapping[str, str] | None = None) -> Response:
    return Response(error_json(error), status_code=error.status, media_type="application/json", headers=headers)


async def _ours(_: Request, error: Exception) -> Response:
    assert isinstance(error, OstinatoError), "registered for these alone"
    # What was not read of the body would be taken for the next request on this connection.
    return _refusal(error, {"connection": "close"} if error.status == 413 else None)


async def _theirs(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "registered for these alone"
    text = f"{request.method} {request.url.path}: {error.detail}."
    refused = {404: MissingError, 405: WrongMethodError}.get(error.status_code, BadInputError)
    return _refusal(refused(text), error.headers)


async def _unforeseen(_: Request, error: Exception) -> Response:
    return _refusal(OstinatoError(f"The gateway failed: {type(error).__name__}.", hint="Its log says more."))
