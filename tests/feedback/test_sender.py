"""The sender against a real HTTP server that refuses, stumbles and forgets."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from ostinato.feedback import FeedbackSender
from ostinato.records import ConflictError, FeedbackEvent, FollowUp, SessionClosed, UnavailableError

Answer = Callable[[list[FeedbackEvent]], int]


@asynccontextmanager
async def gateway(answer: Answer, port: int = 0) -> AsyncIterator[str]:
    """A server whose status for a list of events is given by `answer`."""

    async def intake(request: web.Request) -> web.Response:
        body = msgspec.json.decode(await request.read(), type=list[FeedbackEvent] | FeedbackEvent)
        events = body if isinstance(body, list) else [body]
        results = [{"status": "unknown" if item.response_id == "lost" else "stored"} for item in events]
        return web.json_response({"results": results}, status=answer(events))

    app = web.Application()
    app.router.add_post("/v1/feedback", intake)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def event(number: int, response_id: str = "r1") -> FeedbackEvent:
    return FeedbackEvent(event_id=f"e{number}", response_id=response_id, at=float(number), payload=FollowUp(text="hm"))


async def test_events_arrive_in_order_and_once(tmp_path: Path) -> None:
    """All events come in the order of `send`, each once."""
    seen: list[str] = []

    def answer(events: list[FeedbackEvent]) -> int:
        seen.extend(item.event_id for item in events)
        return 202

    async with gateway(answer) as url, FeedbackSender(url, tmp_path) as sender:
        for number in range(150):
            sender.send(event(number))
        await sender.flush()
    assert seen == [f"e{n}" for n in range(150)]
    assert sender.counts.delivered == 150


async def test_an_unknown_response_is_dropped_and_counted(tmp_path: Path) -> None:
    """A 404 for one event costs its neighbours nothing; a 400 is counted apart, with the answer's text."""
    seen: set[str] = set()

    def answer(events: list[FeedbackEvent]) -> int:
        if any(item.response_id == "forged" for item in events):
            return 404
        if any(item.response_id == "bad" for item in events):
            return 400
        seen.update(item.event_id for item in events)
        return 200

    async with gateway(answer) as url, FeedbackSender(url, tmp_path) as sender:
        sender.send(event(1), event(2, "forged"), event(3, "bad"), event(4))
        await sender.flush()
        sender.send(event(5), event(6, "lost"))
        await sender.flush()
    assert seen == {"e1", "e4", "e5", "e6"}
    assert (sender.counts.delivered, sender.counts.unknown, sender.counts.refused) == (3, 2, 1)


async def test_it_tries_again_until_the_gateway_can(tmp_path: Path) -> None:
    """5xx answers are retried."""
    answers = [503, 500]

    def answer(_: list[FeedbackEvent]) -> int:
        return answers.pop(0) if answers else 202

    async with gateway(answer) as url, FeedbackSender(url, tmp_path, retry_s=0.01) as sender:
        sender.send(event(1))
        await sender.flush()
    assert sender.counts.delivered == 1
    assert sender.counts.retries == 2


async def test_the_queue_outlives_the_sender(tmp_path: Path) -> None:
    """What was not delivered is sent by the next sender on the folder; what was delivered is not sent again."""
    seen: list[str] = []

    def answer(events: list[FeedbackEvent]) -> int:
        seen.extend(item.event_id for item in events)
        return 202

    async with gateway(answer) as url, FeedbackSender(url, tmp_path) as sender:
        sender.send(event(0))
        await sender.flush()
    async with FeedbackSender("http://127.0.0.1:9", tmp_path, retry_s=0.01) as sender:
        sender.send(event(1), event(2))
        with pytest.raises(UnavailableError, match="2 feedback events"):
            await sender.flush(timeout_s=0.2)
    with (tmp_path / "queue.jsonl").open("ab") as file:
        file.write(b'{"event_id": "half')
    async with gateway(answer) as url, FeedbackSender(url, tmp_path) as sender:
        assert sender.pending == 2
        sender.send(FeedbackEvent(event_id="e3", response_id="r1", at=1.0, payload=SessionClosed()))
        await sender.flush()
    assert seen == ["e0", "e1", "e2", "e3"]


async def test_one_sender_a_folder(tmp_path: Path) -> None:
    """A second sender on the same folder is refused by name."""
    async with FeedbackSender("http://127.0.0.1:9", tmp_path):
        with pytest.raises(ConflictError, match=str(tmp_path)):
            await FeedbackSender("http://127.0.0.1:9", tmp_path).__aenter__()


async def test_flush_of_an_empty_queue_returns(tmp_path: Path) -> None:
    """Nothing queued: nothing to wait for."""
    async with FeedbackSender("http://127.0.0.1:9", tmp_path) as sender:
        await asyncio.wait_for(sender.flush(), 10)
