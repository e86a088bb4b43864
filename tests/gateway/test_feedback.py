"""Feedback: early, late, twice, forged."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx
import pytest

from ostinato.engine import ScriptedEngine
from ostinato.render import TinyFormat
from ostinato.store import Ledger, ResponseIds

Start = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]
BODY: dict[str, Any] = {"model": "ostinato", "messages": [{"role": "user", "content": "please fix"}]}


@pytest.fixture
def engine(tiny: TinyFormat) -> ScriptedEngine:
    """Always says ok."""
    return ScriptedEngine(lambda _: [*tiny.tokenizer.encode("ok"), tiny.end])


def _event(event_id: str, response_id: str, kind: str = "rating", **payload: Any) -> dict[str, Any]:
    payload = payload or ({"value": 1} if kind == "rating" else {})
    return {"event_id": event_id, "response_id": response_id, "at": 1.0, "payload": {"kind": kind, **payload}}


async def _ask(client: httpx.AsyncClient) -> str:
    answer = await client.post("/v1/chat/completions", json=BODY, headers={"X-Ostinato-Session": "s1"})
    return str(answer.json()["id"])


async def test_feedback_is_durable_once(start: Start, engine: ScriptedEngine, ledger: Ledger) -> None:
    """Stored when acknowledged; the same event again changes nothing."""
    async with start(engine) as client:
        response_id = await _ask(client)
        for status in ("stored", "duplicate"):
            answer = await client.post("/v1/feedback", json=_event("e1", response_id))
            assert (answer.status_code, answer.json()["status"]) == (200, status)
            assert len(ledger.feedback("s1")) == 1


async def test_early_feedback_is_parked_and_forged_is_refused(
    start: Start, engine: ScriptedEngine, ledger: Ledger
) -> None:
    """An id of ours that is not stored: 202. Any other id: 404, and nothing is kept."""
    async with start(engine) as client:
        early = ResponseIds(ledger.folder).mint()
        answer = await client.post("/v1/feedback", json=_event("e1", early))
        assert (answer.status_code, answer.json()["status"]) == (202, "parked")
        forged = early[:-1] + ("0" if early[-1] != "0" else "1")
        answer = await client.post("/v1/feedback", json=_event("e2", forged))
        assert answer.status_code == 404
        assert answer.json()["error"]["param"] == "response_id"
        assert ledger.parked_feedback() == 1


async def test_a_list_tells_each_report_apart(start: Start, engine: ScriptedEngine, ledger: Ledger) -> None:
    """Known ones are kept beside unknown ones, and `results` says which is which."""
    async with start(engine) as client:
        response_id = await _ask(client)
        events = [_event("e1", response_id), _event("e2", "chatcmpl-no"), _event("e1", response_id)]
        answer = await client.post("/v1/feedback", json=events)
        assert answer.status_code == 200
        assert [row["status"] for row in answer.json()["results"]] == ["stored", "unknown", "duplicate"]
    assert ledger.counters()["feedback.unknown"] == 1


async def test_a_closed_session_is_sealed_and_takes_no_more_turns(
    start: Start, engine: ScriptedEngine, ledger: Ledger
) -> None:
    """`agent.ended` names the sandbox, `session.closed` ends the session and its traces move out of the ledger."""
    async with start(engine, seal_s=0.05) as client:
        response_id = await _ask(client)
        ended = _event(
            "e1", response_id, "agent.ended", reason="done", turns=1, tool_calls=0, invalid_calls=0, sandbox_id="b"
        )
        await client.post("/v1/feedback", json=[ended, _event("e2", response_id, "session.closed")])
        row = ledger.session("s1")
        assert row is not None
        assert row.sandbox_id == "b"
        assert row.closed_at is not None
        answer = await client.post("/v1/chat/completions", json=BODY, headers={"X-Ostinato-Session": "s1"})
        assert answer.status_code == 409
        while ledger.unsealed_sessions(1):
            await client.get("/healthz")
        assert ledger.turns("s1")[0].trace is not None
        assert not ledger.verify_traces()


BAD: list[tuple[bytes, str | None]] = [
    (b"{", None),
    (b"[]", None),
    (b'{"event_id": "e"}', "response_id"),
    (b'{"event_id": "e", "response_id": "r", "at": 1, "payload": {"kind": "nope"}}', "payload.kind"),
    (b'{"event_id": "e", "response_id": "r", "at": 1, "payload": {"kind": "rating", "value": 3}}', "payload.value"),
    (b'{"event_id": "e", "response_id": "r", "at": 1, "payload": {"kind": "abandoned", "why": 1}}', "payload.why"),
    (b'{"event_id": "e", "response_id": "r", "at": 1, "person": "x", "payload": {"kind": "abandoned"}}', "person"),
    (b'{"event_id": "", "response_id": "r", "at": 1, "payload": {"kind": "abandoned"}}', "event_id"),
]


async def test_bad_feedback_names_the_field(start: Start, engine: ScriptedEngine, ledger: Ledger) -> None:
    """400 in OpenAI's shape; unknown fields are refused by name; nothing is kept."""
    async with start(engine) as client:
        for body, param in BAD:
            answer = await client.post("/v1/feedback", content=body)
            assert answer.status_code == 400, answer.text
            assert answer.json()["error"]["param"] == param, body
    assert ledger.parked_feedback() == 0
