"""A tiny model in a weights folder, and an engine over it."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from queue import Queue
from typing import NamedTuple

import numpy as np
import pytest
import torch
import uvicorn
from numpy.typing import NDArray
from tests.tiny_model import TINY, publish, random_model

from ostinato.engine.client import EngineClient
from ostinato.engine.config import EngineConfig
from ostinato.engine.joining import join_chunks
from ostinato.engine.server import build_app
from ostinato.engine.service import Service
from ostinato.model import Transformer
from ostinato.records import GenerateChunk, GenerateRequest, Generation
from ostinato.weights import WeightStore


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """The machine is shared."""
    torch.set_num_threads(1)


class Published(NamedTuple):
    """A weights folder with two unlike versions, and the models behind them."""

    root: Path
    versions: tuple[str, str]
    models: tuple[Transformer, Transformer]


@pytest.fixture
def published(tmp_path: Path) -> Published:
    """Two versions of the tiny model."""
    root = tmp_path / "weights"
    models = (random_model(seed=1), random_model(seed=2))
    store = WeightStore(root)
    first = publish(store, models[0])
    return Published(root, (first, publish(store, models[1], first)), models)


@pytest.fixture
def service(published: Published) -> Iterator[Service]:
    """The first version in the release slot of a small engine."""
    made = Service(WeightStore(published.root), EngineConfig(max_len=160, rows=24, running=8, prefill_tokens=32))
    made.load("release", published.versions[0])
    yield made
    made.close()


@pytest.fixture
async def client(service: Service) -> AsyncIterator[EngineClient]:
    """The same engine over real HTTP, on a free port."""
    config = uvicorn.Config(
        build_app(service), port=0, log_level="warning", lifespan="off", http="httptools", ws="none"
    )
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    async with EngineClient(f"http://127.0.0.1:{port}") as made:
        yield made
    server.should_exit = True
    await task


class Oracle:
    """The plain model as the reference, and small helpers; a fixture, because test files cannot import this one."""

    model = TINY
    make = staticmethod(random_model)

    @staticmethod
    @torch.inference_mode()
    def greedy(model: Transformer, ids: list[int], count: int) -> list[int]:
        """The greedy continuation, computed afresh for each token."""
        ids = list(ids)
        for _ in range(count):
            ids.append(int(model(torch.tensor([ids])).logits_BTV[0, -1].argmax()))
        return ids[-count:]

    @staticmethod
    @torch.inference_mode()
    def logprobs(model: Transformer, ids: list[int]) -> NDArray[np.float32]:
        """Natural log-probabilities float32 [T, V] of the token after each position."""
        out: NDArray[np.float32] = model(torch.tensor([ids])).logits_BTV[0].log_softmax(dim=-1).numpy()
        return out

    @staticmethod
    def prompt(seed: int, length: int) -> list[int]:
        """Random ids."""
        return [int(token) for token in np.random.default_rng(seed).integers(0, TINY.vocab_size, length)]

    @staticmethod
    async def ask(service: Service, request: GenerateRequest) -> Generation:
        """One whole generation, past HTTP."""
        return await asyncio.to_thread(Oracle.wait, Oracle.submit(service, request))

    @staticmethod
    def submit(service: Service, request: GenerateRequest) -> "Queue[GenerateChunk | Exception]":
        """Start a generation; its chunks arrive in the queue."""
        chunks: Queue[GenerateChunk | Exception] = Queue()
        service.submit(request, chunks.put)
        return chunks

    @staticmethod
    def wait(chunks: "Queue[GenerateChunk | Exception]") -> Generation:
        """All chunks of a queue, joined."""
        got: list[GenerateChunk] = []
        while not got or got[-1].finish_reason is None:
            item = chunks.get(timeout=60)
            if isinstance(item, Exception):
                raise item
            got.append(item)
        return join_chunks(got)


@pytest.fixture
def oracle() -> Oracle:
    """The reference."""
    return Oracle()
