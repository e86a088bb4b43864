"""A gateway that really listens, before a scripted engine."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import httpx
import pytest
import uvicorn
from tokenizers import Tokenizer as RawTokenizer
from tokenizers import decoders, models, pre_tokenizers, trainers

from ostinato.gateway import GatewayConfig, build_app
from ostinato.records import Engine
from ostinato.render import SPECIAL_TOKENS, TinyFormat, format_for
from ostinato.store import Ledger

Start = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]


@pytest.fixture(scope="session")
def frame() -> dict[str, bytes]:
    """The small files of a model folder in the seed model's format."""
    tokenizer = RawTokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["def clamp(value): return value", "please fix"], trainer)
    return {
        "tokenizer.json": tokenizer.to_str().encode(),
        "tokenizer_config.json": b'{"ostinato_format": "tiny"}',
        "config.json": b"{}",
    }


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
