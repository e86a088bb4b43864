"""Clients that go away, engines that die or lie: what is stored, and that nothing is filled in."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx
import openai
import pytest

from ostinato.engine import ScriptedEngine
from ostinato.records import GenerateChunk, GenerateRequest, SlotStatus, Turn
from ostinato.render import TinyFormat
from ostinato.store import Ledger

Start = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]
USER: Any = {"role": "user", "content": "please fix"}
BODY: dict[str, Any] = {"model": "ostinato", "messages": [USER]}


class Stepping:
    """An engine that draws one token whenever `step` is called, and notes when it is left early."""

    def __init__(self, ids: list[int]) -> None:
        self._ids = ids
        self._ready = asyncio.Semaphore(0)
        self.left = asyncio.Event()

    def step(self, tokens: int = 1) -> None:
        for _ in range(tokens):
            self._ready.release()

    async def generate(self, _: GenerateRequest) -> AsyncIterator[GenerateChunk]:
        done = False
        try:
            for token in self._ids:
                await self._ready.acquire()
                done = token == self._ids[-1]
                yield GenerateChunk([token], [-1.0], "v-1", "stop" if done else None)
        finally:
            if not done:
                self.left.set()

    async def slots(self) -> list[SlotStatus]:
        return []


async def _ended(ledger: Ledger, session_id: str) -> Turn:
    """The session's last turn, once it has ended."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        turns = ledger.turns(session_id)
        if turns and turns[-1].ended_at is not None:
            return turns[-1]
        await asyncio.sleep(0.01)
    raise AssertionError("the turn never ended")


@pytest.mark.parametrize("seen", range(5))
async def test_a_client_that_goes_away_leaves_a_partial_turn(
    start: Start, tiny: TinyFormat, ledger: Ledger, seen: int
) -> None:
    """After any number of chunks: what was drawn is stored, not trainable, and the engine is stopped."""
    ids = [*tiny.tokenizer.encode("zyxwv"), tiny.end]
    engine = Stepping(ids)
    async with start(engine) as client:
        reader, writer = await asyncio.open_connection("127.0.0.1", client.base_url.port)
        body = json.dumps(BODY | {"stream": True}).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Ostinato-Session: s1\r\nContent-Length: {len(body)}"
        writer.write(head.encode() + b"\r\n\r\n" + body)
        await writer.drain()
        engine.step(seen)
        got = b""
        while got.count(b'"content":') < (seen + 1 if seen else 0):
            got += await reader.read(65536)
        while not ledger.turns("s1"):
            await asyncio.sleep(0.01)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        await asyncio.wait_for(engine.left.wait(), 60)
        turn = await _ended(ledger, "s1")
        assert (turn.finish_reason, turn.trainable) == ("cancelled", False)
        assert "the client went away" in turn.untrainable_reason
        assert (turn.trace.ids if turn.trace else []) == ids[:seen]
        # The same request again is a retry: it is answered, and says that it leaves the partial reply out.
        engine.step(len(ids))
        answer = await client.post("/v1/chat/completions", json=BODY, headers={"X-Ostinato-Session": "s1"})
        assert answer.json()["choices"][0]["message"]["content"] == "zyxwv"
        retry = await _ended(ledger, "s1")
        assert (retry.index, retry.trainable) == (1, True)
        assert retry.segment_reason == ("history ends at message 1" if seen else "")


async def test_a_client_that_does_not_stream_may_leave_too(start: Start, tiny: TinyFormat, ledger: Ledger) -> None:
    """The engine is stopped, though nothing had been sent."""
    engine = Stepping([*tiny.tokenizer.encode("zy"), tiny.end])
    async with start(engine) as client:
        engine.step()
        with pytest.raises(httpx.ReadTimeout):
            await client.post("/v1/chat/completions", json=BODY, headers={"X-Ostinato-Session": "s1"}, timeout=1)
        await asyncio.wait_for(engine.left.wait(), 60)
        turn = await _ended(ledger, "s1")
    assert (turn.finish_reason, turn.trainable) == ("cancelled", False)


@pytest.mark.parametrize("after", [0, 2])
async def test_an_engine_that_dies_is_a_clear_error(start: Start, tiny: TinyFormat, ledger: Ledger, after: int) -> None:
    """OpenAI's shape with 503; the turn is stored with the reason; the next request is served."""
    engine = ScriptedEngine(lambda _: [*tiny.tokenizer.encode("zyxw"), tiny.end], fail_after=after)
    async with start(engine) as client:
        headers = {"X-Ostinato-Session": "s1"}
        answer = await client.post("/v1/chat/completions", json=BODY, headers=headers)
        assert answer.status_code == 503
        assert answer.json()["error"]["type"] == "service_unavailable_error"
        turn = await _ended(ledger, "s1")
        assert not turn.trainable
        assert "broke off" in turn.untrainable_reason
        assert len(turn.trace.ids if turn.trace else []) == after
        engine.fail_after = None
        assert (await client.post("/v1/chat/completions", json=BODY, headers=headers)).status_code == 200
        assert (await _ended(ledger, "s1")).trainable


async def test_an_engine_that_dies_midway_ends_the_stream_with_an_error(start: Start, tiny: TinyFormat) -> None:
    """The official client raises, rather than taking half a reply for a whole one."""
    engine = ScriptedEngine(lambda _: [*tiny.tokenizer.encode("zyxw"), tiny.end], fail_after=2)
    async with start(engine) as http, openai.AsyncOpenAI(base_url=f"{http.base_url}/v1", api_key="none") as client:
        stream = await client.chat.completions.create(model="ostinato", messages=[USER], stream=True)
        with pytest.raises(openai.APIError, match="broke off"):
            async for _ in stream:
                pass


class Lying(ScriptedEngine):
    """Changes the chunks of a scripted engine."""

    def __init__(self, ids: list[int], change: Callable[[GenerateChunk], GenerateChunk]) -> None:
        super().__init__(lambda _: ids, chunk_size=10, experts_shape=(1, 1))
        self._change = change

    async def generate(self, request: GenerateRequest) -> AsyncIterator[GenerateChunk]:
        async for chunk in super().generate(request):
            yield self._change(chunk)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda c: GenerateChunk(c.ids, [], c.version, c.finish_reason, c.experts), "0 log-probabilities for 3 ids"),
        (lambda c: GenerateChunk(c.ids, [0.5] * 3, c.version, c.finish_reason), "not a finite number"),
        (lambda c: GenerateChunk(c.ids, [float("nan")] * 3, c.version, c.finish_reason), "not a finite number"),
        (lambda c: GenerateChunk(c.ids, c.logprobs, "", c.finish_reason), "no version"),
        (lambda c: GenerateChunk(c.ids, c.logprobs, c.version, c.finish_reason, b"abc"), "3 bytes of experts"),
        (lambda c: GenerateChunk([], [], c.version, c.finish_reason), "no token"),
    ],
)
async def test_a_turn_that_is_not_whole_is_not_trainable(
    start: Start, tiny: TinyFormat, ledger: Ledger, change: Callable[[GenerateChunk], GenerateChunk], reason: str
) -> None:
    """The client is answered; the turn says what is missing, and nothing is put in its place."""
    engine = Lying([*tiny.tokenizer.encode("zy"), tiny.end], change)
    async with start(engine) as client:
        answer = await client.post("/v1/chat/completions", json=BODY, headers={"X-Ostinato-Session": "s1"})
        assert answer.status_code == 200
    turn = ledger.turns("s1")[0]
    assert not turn.trainable
    assert reason in turn.untrainable_reason


async def test_a_cut_distribution_is_not_the_one_that_is_trained(
    start: Start, tiny: TinyFormat, ledger: Ledger
) -> None:
    """A turn sampled with top-p or top-k is answered and stored whole, but not trained on."""
    engine = ScriptedEngine(lambda _: [*tiny.tokenizer.encode("zy"), tiny.end])
    async with start(engine) as client:
        answer = await client.post(
            "/v1/chat/completions", json={**BODY, "top_p": 0.9}, headers={"X-Ostinato-Session": "s1"}
        )
        assert answer.status_code == 200
    turn = ledger.turns("s1")[0]
    assert not turn.trainable
    assert "top_p 0.9" in turn.untrainable_reason
    assert turn.trace is not None
