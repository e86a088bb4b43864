"""Feedback as OpenTelemetry log records, the way VS Code's chat extension sends it."""

import gzip
import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse

from ostinato.engine import ScriptedEngine
from ostinato.records import Comment, EditDecision, EditSurvival, HunkDecision, Rating
from ostinato.render import TinyFormat
from ostinato.store import Ledger

Start = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]
BODY: dict[str, Any] = {"model": "ostinato", "messages": [{"role": "user", "content": "please fix"}]}
SURVIVAL: dict[str, Any] = {
    "survival_rate_four_gram": 0.82,
    "survival_rate_no_revert": 1.0,
    "time_delay_ms": 120_000,
    "did_branch_change": False,
}


@pytest.fixture
def engine(tiny: TinyFormat) -> ScriptedEngine:
    """Always says ok."""
    return ScriptedEngine(lambda _: [*tiny.tokenizer.encode("ok"), tiny.end])


async def ask(client: httpx.AsyncClient) -> str:
    answer = await client.post("/v1/chat/completions", json=BODY, headers={"X-Ostinato-Session": "s1"})
    return str(answer.json()["id"])


def value(given: Any) -> dict[str, Any]:
    if isinstance(given, bool):
        return {"boolValue": given}
    if isinstance(given, int):
        return {"intValue": str(given)}
    return {"doubleValue": given} if isinstance(given, float) else {"stringValue": given}


def record(name: str, at_s: float = 1.5, **attributes: Any) -> dict[str, Any]:
    given = {"event.name": name, **{key.replace("__", "."): item for key, item in attributes.items()}}
    found = [{"key": key, "value": value(item)} for key, item in given.items()]
    return {"timeUnixNano": str(int(at_s * 1e9)), "attributes": found}


def export(*records: dict[str, Any]) -> dict[str, Any]:
    return {
        "resourceLogs": [{"resource": {"attributes": []}, "scopeLogs": [{"scope": {}, "logRecords": list(records)}]}]
    }


async def test_each_kind_becomes_feedback(start: Start, engine: ScriptedEngine, ledger: Ledger) -> None:
    """Under both prefixes, by both names of the answer; sent again it changes nothing."""
    async with start(engine) as client:
        said = await ask(client)
        sent = export(
            record("copilot_chat.edit.survival", 1.0, request_id=said, **SURVIVAL),
            record(
                "github.copilot.edit.hunk.action", 2.0, gen_ai__response__id=said, outcome="rejected", lines_added=3
            ),
            record("copilot_chat.edit.feedback", 3.0, request_id=said, outcome="accepted"),
            record("copilot_chat.inline.done", 4.0, request_id=said, accepted=False),
            record("copilot_chat.user.feedback", 5.0, request_id=said, rating="negative"),
            record("github.copilot.user.comment", 6.0, request_id=said, comment="too slow"),
        )
        for _ in range(2):
            answer = await client.post("/v1/logs", json=sent)
            assert (answer.status_code, answer.json()) == (200, {})
    events = ledger.feedback("s1")
    assert [event.at for event in events] == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert [event.payload for event in events] == [
        EditSurvival(120.0, 0.82, 1.0), HunkDecision("rejected", 3), EditDecision("accepted"), EditDecision("rejected"),
        Rating(-1), Comment("too slow"),
    ]  # fmt: skip


async def test_what_is_not_feedback_is_counted(start: Start, engine: ScriptedEngine, ledger: Ledger) -> None:
    """Other events, foreign answers, and values without sense each have their count; the rest is kept."""
    async with start(engine) as client:
        said = await ask(client)
        sent = export(
            record("copilot_chat.tool.call", success=True, duration_ms=12),
            record("copilot_chat.user.feedback", request_id="another-request", rating="positive"),
            record("copilot_chat.user.feedback", request_id=said, rating="purple"),
            record("copilot_chat.edit.survival", request_id=said, **(SURVIVAL | {"survival_rate_four_gram": 7.0})),
            record("copilot_chat.edit.survival", request_id=said, **(SURVIVAL | {"time_delay_ms": "NaN"})),
            record("copilot_chat.user.feedback", request_id=said, rating="positive"),
        )
        answer = await client.post("/v1/logs", json=sent)
    partial = answer.json()["partialSuccess"]
    assert partial["rejectedLogRecords"] == 4
    assert "1 records name answers that this gateway did not give" in partial["errorMessage"]
    assert "3 records have values that make no sense" in partial["errorMessage"]
    assert [event.payload for event in ledger.feedback("s1")] == [Rating(1)]
    counters = ledger.counters()
    assert (counters["feedback.otlp.ignored"], counters["feedback.otlp.odd"], counters["feedback.unknown"]) == (1, 3, 1)


async def test_protobuf_and_gzip(start: Start, engine: ScriptedEngine, ledger: Ledger) -> None:
    """The exporters' default encoding, compressed as they compress it."""
    async with start(engine) as client:
        said = await ask(client)
        request = ExportLogsServiceRequest()
        log = request.resource_logs.add().scope_logs.add().log_records.add(time_unix_nano=2_000_000_000)
        for key, given in {"event.name": "copilot_chat.edit.survival", "request_id": said, **SURVIVAL}.items():
            kind = {bool: "bool_value", int: "int_value", float: "double_value", str: "string_value"}[type(given)]
            setattr(log.attributes.add(key=key).value, kind, given)
        headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}
        answer = await client.post("/v1/logs", content=gzip.compress(request.SerializeToString()), headers=headers)
        assert answer.status_code == 200
        assert not ExportLogsServiceResponse.FromString(answer.content).HasField("partial_success")
        foreign = ExportLogsServiceRequest.FromString(request.SerializeToString())
        foreign.resource_logs[0].scope_logs[0].log_records[0].attributes[1].value.string_value = "foreign"
        answer = await client.post(
            "/v1/logs", content=foreign.SerializeToString(), headers=headers | {"Content-Encoding": "identity"}
        )
        assert ExportLogsServiceResponse.FromString(answer.content).partial_success.rejected_log_records == 1
    (event,) = ledger.feedback("s1")
    assert (event.at, event.payload) == (2.0, EditSurvival(120.0, 0.82, 1.0))


async def test_bad_exports_are_refused(start: Start, engine: ScriptedEngine) -> None:
    """Broken JSON and protobuf, another content type, broken or huge gzip: one clear error each, and nothing breaks."""
    async with start(engine, max_body_bytes=10_000) as client:
        proto, gz = {"Content-Type": "application/x-protobuf"}, {"Content-Encoding": "gzip"}
        plain = {"Content-Type": "application/json"}
        bomb = gzip.compress(b" " * 1_000_000)
        for content, headers, status in (
            (b"{", plain, 400),
            (b'{"resourceLogs": 3}', plain, 400),
            (b"\xff\xff", proto, 400),
            (b"hello", {"Content-Type": "text/plain"}, 400),
            (b"hello", plain | gz, 400),
            (gzip.compress(b"{}")[:-9], plain | gz, 400),
            (bomb, plain | gz, 413),
        ):
            answer = await client.post("/v1/logs", content=content, headers=headers)
            assert answer.status_code == status, content[:20]
            assert answer.json()["error"]["message"]
        assert (await client.post("/v1/logs", content=json.dumps(export()), headers=plain)).json() == {}
