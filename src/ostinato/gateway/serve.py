"""The gateway as a process."""

import contextlib
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NoReturn

from ostinato.gateway.app import build_app
from ostinato.gateway.config import GatewayConfig
from ostinato.loopback import listen, serve
from ostinato.records import Engine
from ostinato.store import Ledger

_GRACE_S = 3


def run_gateway(config: GatewayConfig, data: Path, engine: Engine, frame: Mapping[str, bytes]) -> None:
    """Serve on 127.0.0.1 until SIGINT or SIGTERM, as the owner of the data folder.

    Says so in a line of JSON when it is ready, as `ostinato.loopback.serve` does. Raises `ConflictError` for a port in
    use, or for a data folder that another gateway owns."""
    with Ledger.open(data, owner=True) as ledger, _leaving_on_sigterm():
        listener = listen(config.port)
        app = build_app(config, ledger, engine, frame)
        with contextlib.suppress(KeyboardInterrupt):
            serve(app, listener, lifespan="on", grace_s=_GRACE_S)


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
