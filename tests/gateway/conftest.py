"""A gateway that really listens, before a scripted engine."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import httpx
import pytest
import uvicorn
from tests.tiny_tokenizer import tiny_frame

from ostinato.gateway import GatewayConfig, build_app
from ostinato.records import Engine
from ostinato.render import TinyFormat, format_for
from ostinato.store import Ledger

Start = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]


@pytest.fixture(scope="session")
def frame() -> dict[str, bytes]:
    """The small files of a model folder in the seed model's format."""
    return tiny_frame() | {"config.json": b"{}"}


@pytest.fixture(scope="session")
def tiny(frame: dict[str, bytes]) -> TinyFormat:
    """The format in which the gateway writes and reads here."""
    found = format_for(frame)
    assert isinstance(found, TinyFormat)
    return found


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data folder."""
    return tmp_path / "data"


@pytest.fixture
def ledger(data: Path) -> Iterator[Ledger]:
    """The ledger as another process sees it."""
    with Ledger.open(data) as opened:
        yield opened


@pytest.fixture
def start(data: Path, frame: dict[str, bytes]) -> Start:
    """Start a gateway on a free port: `async with start(engine, refresh_s=...) as client`."""

    @asynccontextmanager
    async def run(engine: Engine, **settings: float) -> AsyncIterator[httpx.AsyncClient]:
        with Ledger.open(data, owner=True) as ledger:
            app = build_app(GatewayConfig(**settings), ledger, engine, frame)  # type: ignore[arg-type]
            config = uvicorn.Config(app, http="httptools", ws="none", log_level="warning", lifespan="on")
            config.timeout_graceful_shutdown = 1
            server = uvicorn.Server(config)
            listener = socket.create_server(("127.0.0.1", 0))
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            try:
                async with httpx.AsyncClient(base_url=url, timeout=60) as client:
                    while not server.started:
                        assert not serving.done(), serving.exception()
                        await asyncio.sleep(0.005)
                    yield client
            finally:
                server.should_exit = True
                await serving
                listener.close()

    return run
