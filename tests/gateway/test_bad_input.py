"""What cannot be accepted: one clear error each, in OpenAI's shape, and nothing is stored."""

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx

from ostinato.engine import ScriptedEngine
from ostinato.render import TinyFormat
from ostinato.store import Ledger

Start = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]
USER = {"role": "user", "content": "hi"}


def _with(**fields: Any) -> bytes:
    return json.dumps({"model": "ostinato", "messages": [USER], **fields}).encode()


CASES: list[tuple[bytes, int, str | None]] = [
    (b"", 400, None),
    (b"{", 400, None),
    (b"[]", 400, None),
    (b'{"model": "ostinato", "messages": [{"role": "user", "content": NaN}]}', 400, None),
    (b'{"model": "ostinato", "messages": [{"role": "user", "content": "\xff"}]}', 400, "messages"),
    (b'{"model": "ostinato", "messages": [{"role": "user", "content": "\\ud800 and more text"}]}', 400, None),
    (b'{"model": "ostinato", "messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400, None),
    (b'{"model": "ostinato"}', 400, "messages"),
    (b'{"messages": []}', 400, "model"),
    (_with(messages=[]), 400, "messages"),
    (_with(messages=[{"role": "wizard", "content": "x"}]), 400, "messages[0].role"),
    (_with(messages=[USER, {"role": "user", "content": 5}]), 400, "messages[1].content"),
    (_with(messages=[{"role": "user", "content": [{"type": "image_url"}]}]), 400, "messages[0].content"),
    (
        _with(
            messages=[{"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{"}}]}]
        ),
        400,
        "messages[0].tool_calls[0].function.arguments",
    ),
    (_with(model="gpt-9"), 404, "model"),
    (_with(model="ostinato@nowhere"), 404, "model"),
    (_with(temperature="hot"), 400, "temperature"),
    (_with(temperature=9), 400, "temperature"),
    (_with(top_p=0), 400, "top_p"),
    (_with(max_tokens=0), 400, "max_tokens"),
    (_with(n=2), 400, "n"),
    (_with(top_logprobs=3, logprobs=True), 400, "top_logprobs"),
    (_with(tool_choice="required"), 400, "tool_choice"),
    (_with(response_format={"type": "json_object"}), 400, "response_format"),
    (_with(stop=["a", ""]), 400, "stop"),
    (_with(tools=[{"type": "function", "function": {"name": "a b"}}]), 400, "tools[0].function.name"),
    (_with(ostinato_slot="x"), 400, "ostinato_slot"),
    (_with(metadata={"ostinato.person": "x"}), 400, "metadata.ostinato.person"),
    (_with(user=""), 400, "user"),
]


async def test_bad_bodies_are_refused_by_name(start: Start, tiny: TinyFormat, data: Path) -> None:
    """Every case gets its status and names its field; the engine is never asked."""
    engine = ScriptedEngine(lambda _: [tiny.end])
    async with start(engine) as client:
        for body, status, param in CASES:
            answer = await client.post("/v1/chat/completions", content=body)
            assert answer.status_code == status, (body[:100], answer.text)
            error = answer.json()["error"]
            assert set(error) == {"message", "type", "param", "code"}
            assert error["param"] == param, (body[:100], error)
            assert answer.headers["x-request-id"].startswith("req-")
    assert not engine.requests
    with Ledger.open(data) as ledger:
        assert not ledger.sessions()
        assert ledger.counters()["http.requests"] == len(CASES)


async def test_bad_headers_are_refused(start: Start, tiny: TinyFormat) -> None:
    """A header of ours that is misspelt does not pass unseen."""
    cases = (
        ({"X-Ostinato-Sesion": "a"}, "x-ostinato-sesion"),
        ({"X-Ostinato-Session": "../etc"}, "X-Ostinato-Session"),
        ({"X-Ostinato-Person": "a\tb"}, "x-ostinato-person"),
        ({"Content-Encoding": "gzip"}, "content-encoding"),
    )
    async with start(ScriptedEngine(lambda _: [tiny.end])) as client:
        for headers, param in cases:
            answer = await client.post("/v1/chat/completions", content=_with(), headers=headers)
            assert answer.status_code == 400
            assert answer.json()["error"]["param"] == param


async def test_large_bodies_are_refused_before_they_are_read(start: Start, tiny: TinyFormat) -> None:
    """By their declared length at once, and by what arrives where none is declared."""

    async def endless() -> Any:
        while True:
            yield b" " * 65536

    async with start(ScriptedEngine(lambda _: [tiny.end]), max_body_bytes=100_000) as client:
        answer = await client.post("/v1/chat/completions", content=_with(user="x" * 200_000))
        assert answer.status_code == 413
        assert answer.json()["error"]["code"] == "body_too_large"
        try:
            answer = await client.post("/v1/feedback", content=endless())
        except (httpx.WriteError, httpx.ReadError):
            # The gateway answered and closed while the body was still being written; both are a refusal.
            return
        assert answer.status_code == 413


async def test_unknown_options_of_openai_change_nothing(start: Start, tiny: TinyFormat) -> None:
    """What clients send by habit is accepted: the answer is the same."""
    body = _with(
        store=False, parallel_tool_calls=True, presence_penalty=0, metadata={"a": "b"}, service_tier="auto", n=1
    )
    async with start(ScriptedEngine(lambda _: [tiny.end])) as client:
        assert (await client.post("/v1/chat/completions", content=body)).status_code == 200


async def test_unknown_paths_and_methods_are_errors_in_the_same_shape(start: Start, tiny: TinyFormat) -> None:
    """404, and 405 with the methods that there are."""
    async with start(ScriptedEngine(lambda _: [tiny.end])) as client:
        unknown, wrong = await client.get("/v2"), await client.get("/v1/feedback")
        error = {"message": "GET /v2: Not Found.", "type": "not_found_error", "param": None, "code": "not_found"}
        assert (unknown.status_code, unknown.json()) == (404, {"error": error})
        error = {"type": "invalid_request_error", "param": None, "code": "method_not_allowed"}
        error |= {"message": "GET /v1/feedback: Method Not Allowed."}
        assert (wrong.status_code, wrong.json()) == (405, {"error": error})
        assert wrong.headers["allow"] == "POST"
        assert (await client.get("/v1/models/ostinato")).json()["id"] == "ostinato"
        assert (await client.get("/v1/models/x")).status_code == 404
        assert (await client.get("/v1/sessions/x")).status_code == 404


async def test_a_session_stays_with_its_person_and_purpose(start: Start, tiny: TinyFormat) -> None:
    """A session id that another person, or a run of ours, uses is refused."""
    async with start(ScriptedEngine(lambda _: [tiny.end])) as client:
        for person, model, status in (
            ("ann", "ostinato", 200),
            ("bob", "ostinato", 409),
            ("ann", "ostinato@release", 409),
        ):
            headers = {"X-Ostinato-Session": "s1", "X-Ostinato-Person": person}
            answer = await client.post("/v1/chat/completions", content=_with(model=model), headers=headers)
            assert answer.status_code == status


async def test_keys_are_asked_for_once_there_are_any(start: Start, tiny: TinyFormat, data: Path) -> None:
    """No key: one person on loopback. With keys: 401 without, 403 for another scope, the key's name as the person."""
    with Ledger.open(data) as ledger:
        infer = ledger.create_key("team", frozenset({"infer"}))
    async with start(ScriptedEngine(lambda _: [tiny.end])) as client:
        assert (await client.post("/v1/chat/completions", content=_with())).status_code == 401
        for secret, path, status, code in (
            (infer, "/v1/chat/completions", 200, None),
            (infer, "/v1/feedback", 403, "not_allowed"),
            ("x", "/v1/feedback", 401, "invalid_api_key"),
        ):
            answer = await client.post(path, content=_with(), headers={"Authorization": f"Bearer {secret}"})
            assert answer.status_code == status
            assert answer.json().get("error", {}).get("code") == code
        assert (await client.get("/healthz")).status_code == 200
        assert "ostinato_chat_overhead_seconds_count 1" in (await client.get("/metrics")).text
    with Ledger.open(data) as ledger:
        assert [row.person for row in ledger.sessions()] == ["team"]
