"""The engine over HTTP, as a client meets it, and as a process."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from typing import Any

import aiohttp
import pytest

from ostinato.engine import EngineClient, run_engine
from ostinato.records import (
    BadInputError,
    ConflictError,
    GenerateRequest,
    MissingError,
    Sampling,
    SlotStatus,
    UnavailableError,
    VersionSpan,
)

REQUEST = GenerateRequest(ids=[5, 6, 7, 8], slot="release", sampling=Sampling(temperature=0, max_tokens=30))


async def test_stream_and_whole_answer_agree(client: EngineClient, published: Any, oracle: Any) -> None:
    """Chunks joined are the reference's answer; the plain JSON form is the same generation."""
    chunks = [chunk async for chunk in client.generate(REQUEST)]
    assert [chunk.finish_reason for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert all(len(chunk.ids) == len(chunk.logprobs) for chunk in chunks)
    whole = await client.generate_all(REQUEST)
    assert whole.ids == [token for chunk in chunks for token in chunk.ids]
    assert whole.ids == oracle.greedy(published.models[0], REQUEST.ids, 30)
    assert whole.versions == (VersionSpan(0, published.versions[0]),)
    body = {"ids": [5, 6, 7, 8], "slot": "release", "sampling": {"temperature": 0, "max_tokens": 30}}
    async with aiohttp.ClientSession() as session, session.post(f"{client.url}/generate", json=body) as response:
        plain = await response.json()
    assert plain["ids"] == whole.ids and plain["finish_reason"] == "length" and plain["experts"]


async def test_slots_are_loaded_swapped_and_dropped(client: EngineClient, published: Any) -> None:
    """The slots' life over HTTP."""
    loaded = await client.load("candidate", published.versions[1])
    assert loaded.slot == "candidate" and loaded.seconds > 0 and len(loaded.canary) == 15
    assert sorted(await client.slots(), key=lambda status: status.slot) == [
        SlotStatus("candidate", published.versions[1]),
        SlotStatus("release", published.versions[0]),
    ]
    again = await client.load("release", published.versions[1])
    assert again.canary == loaded.canary
    await client.drop("candidate")
    assert await client.slots() == [SlotStatus("release", published.versions[1])]
    assert (await client.stats())["swaps"] == 1
    async with aiohttp.ClientSession() as session, session.get(f"{client.url}/healthz") as response:
        assert await response.json() == {"ok": True, "slots": 1}


async def test_refusals_come_as_our_errors(client: EngineClient) -> None:
    """What the engine refuses arrives as the same kind of error, with the field."""
    with pytest.raises(BadInputError, match="ids") as caught:
        await client.generate_all(GenerateRequest(ids=[1000], slot="release"))
    assert caught.value.param == "ids"
    with pytest.raises(MissingError, match="evaluation"):
        await client.generate_all(GenerateRequest(ids=[1], slot="evaluation"))
    with pytest.raises(MissingError, match="nowhere"):
        await client.load("nowhere", "v-1")
    with pytest.raises(MissingError):
        await client.load("release", "v-0123456789abcdef")


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/generate", b"{", 400),
        ("POST", "/generate", b'{"ids": [1], "slot": "release", "surprise": 1}', 400),
        ("POST", "/generate", b'{"ids": ["a"], "slot": "release"}', 400),
        ("POST", "/generate", b'{"ids": [1]}', 400),
        ("PUT", "/slots/release", b"{}", 400),
        ("GET", "/nothing", b"", 404),
        ("GET", "/generate", b"", 405),
    ],
)
async def test_bad_bodies_get_errors_in_one_shape(
    client: EngineClient, method: str, path: str, body: bytes, status: int
) -> None:
    """Every refusal is {"error": {"message", "type", "param", "code"}}."""
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, client.url + path, data=body) as response,
    ):
        assert response.status == status
        error = (await response.json())["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["message"]


@pytest.mark.parametrize("accept", ["application/x-ndjson", "application/json"])
async def test_going_away_cancels(client: EngineClient, oracle: Any, accept: str) -> None:
    """A client that closes its connection midway leaves nothing running."""
    long = json.dumps({"ids": oracle.prompt(1, 20), "slot": "release", "sampling": {"max_tokens": 130}})
    async with aiohttp.ClientSession() as session:

        async def ask() -> None:
            async with session.post(f"{client.url}/generate", data=long, headers={"Accept": accept}) as response:
                await response.read()

        asked = [asyncio.create_task(ask()) for _ in range(60)]
        while (await client.stats())["drawn_tokens"] < 10:
            await asyncio.sleep(0.005)
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
    for _ in range(1000):
        stats = await client.stats()
        if stats["running"] == stats["filling"] == stats["waiting"] == 0:
            break
        await asyncio.sleep(0.02)
    assert stats["running"] == stats["filling"] == stats["waiting"] == 0
    assert stats["drawn_tokens"] < 60 * 130


async def test_leaving_a_stream_early_cancels(client: EngineClient) -> None:
    """`aclose()` on the client's stream ends the sequence in the engine."""
    stream = client.generate(GenerateRequest(ids=[1, 2], slot="release", sampling=Sampling(max_tokens=150)))
    await anext(stream)
    await stream.aclose()  # type: ignore[attr-defined]
    while (await client.stats())["running"]:
        await asyncio.sleep(0.01)
    assert (await client.stats())["failed_requests"] == 0


async def test_no_engine_is_unavailable() -> None:
    """Nothing listens: the error says so, with a hint."""
    async with EngineClient("http://127.0.0.1:9") as client:
        with pytest.raises(UnavailableError) as caught:
            await client.generate_all(REQUEST)
        assert caught.value.hint
        with pytest.raises(UnavailableError):
            await client.slots()


async def test_a_stream_cut_midway_is_unavailable() -> None:
    """A peer that closes after one chunk, or without a last one, is an engine that died."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        line = b'{"ids":[1],"logprobs":[-1.0],"version":"v"}\n'
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.write(b"%x\r\n%s\r\n" % (len(line), line) + (b"0\r\n\r\n" if next(whole) else b""))
        await writer.drain()
        writer.close()

    whole = iter([True, False])
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with EngineClient(f"http://127.0.0.1:{port}") as client:
        for _ in range(2):
            with pytest.raises(UnavailableError):
                await client.generate_all(REQUEST)
    server.close()
    await server.wait_closed()


def _start(root: Any, version: str) -> subprocess.Popen[str]:
    code = (
        "import sys; from pathlib import Path; from ostinato.engine import run_engine\n"
        "run_engine(Path(sys.argv[1]), 0, {'release': sys.argv[2]}, max_len=64)"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code, str(root), version],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


async def test_the_process_says_when_it_listens_and_ends_when_told(published: Any) -> None:
    """One JSON line, then service on a free port; a taken port is refused in words; SIGTERM ends it."""
    process = _start(published.root, published.versions[0])
    assert process.stdout is not None
    try:
        ready = json.loads(await asyncio.to_thread(process.stdout.readline))
        assert ready["ready"] is True
        async with EngineClient(f"http://127.0.0.1:{ready['port']}") as client:
            assert (await client.generate_all(REQUEST)).finish_reason == "length"
        with pytest.raises(ConflictError, match=str(ready["port"])):
            run_engine(published.root, ready["port"], {})
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = await asyncio.to_thread(process.communicate, timeout=60)
    assert process.returncode in (0, -signal.SIGTERM) and "Traceback" not in errors


def test_the_door_needs_no_torch() -> None:
    """Importing the client does not import torch."""
    code = "import sys; import ostinato.engine; assert 'torch' not in sys.modules and 'uvicorn' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
