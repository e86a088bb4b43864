"""The gateway as a process."""

import contextlib
import signal
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NoReturn

import msgspec
import uvicorn

from ostinato.gateway.app import build_app
from ostinato.gateway.config import GatewayConfig
from ostinato.loopback import listen
from ostinato.records import Engine
from ostinato.store import Ledger

_GRACE_S = 3


def run_gateway(config: GatewayConfig, data: Path, engine: Engine, frame: Mapping[str, bytes]) -> None:
    """Serve on 127.0.0.1 until SIGINT or SIGTERM, as the owner of the data folder.

    When it listens, one line of JSON goes to stdout: {"ready": true, "port": 8321}. Raises `ConflictError` for a port
    in use, or for a data folder that another gateway owns."""
    with Ledger.open(data, owner=True) as ledger, _leaving_on_sigterm():
        listener = listen(config.port)
        app = build_app(config, ledger, engine, frame)
        settings = uvicorn.Config(
            app,
            loop="uvloop",
            http="httptools",
            ws="none",
            lifespan="on",
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=_GRACE_S,
        )
        try:
            with contextlib.suppress(KeyboardInterrupt):
                _Announcing(settings).run(sockets=[listener])
        finally:
            listener.close()


@contextlib.contextmanager
def _leaving_on_sigterm() -> Iterator[None]:
    """After a clean end uvicorn raises the signal again; let it unwind the stack, so that the ledger is closed."""
    before = signal.signal(signal.SIGTERM, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _leave(*_: object) -> NoReturn:
    raise SystemExit(0)


class _Announcing(uvicorn.Server):
    """Says so when it listens."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and sockets:
            port = sockets[0].getsockname()[1]
            print(msgspec.json.encode({"ready": True, "port": port}).decode(), flush=True)  # noqa: T201
