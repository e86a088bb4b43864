"""POST /v1/logs: feedback from clients that speak OpenTelemetry (OTLP/HTTP logs, as JSON or as protobuf).

VS Code's chat extension reports what people did with its edits as log records, under the prefixes `copilot_chat.` and
`github.copilot.`. Those that say something about an answer become feedback; all others are counted and left. A record
names the answer by `gen_ai.response.id` (the id that this gateway gave it), or by `request_id`.
Source of the names: docs/monitoring/agent_monitoring.md of that extension.
"""

import hashlib
import math
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal

import msgspec
from msgspec import Struct, field
from starlette.requests import Request
from starlette.responses import Response

from ostinato.gateway.bodies import read_body
from ostinato.gateway.errors import decode_error
from ostinato.gateway.gateway import Gateway
from ostinato.gateway.intake import take_in
from ostinato.records import (
    BadInputError,
    Comment,
    EditDecision,
    EditSurvival,
    FeedbackEvent,
    HunkDecision,
    Payload,
    Rating,
)

PREFIXES = ("github.copilot.", "copilot_chat.")
JSON, PROTOBUF = "application/json", "application/x-protobuf"
Attributes = dict[str, str | int | float | bool]


class _Value(Struct, rename="camel"):
    string_value: str | None = None
    int_value: int | str | None = None
    double_value: float | str | None = None
    bool_value: bool | None = None


class _Attribute(Struct):
    key: str
    value: _Value = field(default_factory=_Value)


class _Record(Struct, rename="camel"):
    time_unix_nano: int | str = 0
    observed_time_unix_nano: int | str = 0
    event_name: str = ""
    body: _Value | None = None
    attributes: list[_Attribute] = []


class _Scope(Struct, rename="camel"):
    log_records: list[_Record] = []


class _Resource(Struct, rename="camel"):
    scope_logs: list[_Scope] = []


class _Export(Struct, rename="camel"):
    resource_logs: list[_Resource] = []


class LogsEndpoint:
    """An export of log records. 200 with OTLP's own answer; `partialSuccess` says how many records named an answer that
    is not ours, or could not be read."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def __call__(self, request: Request) -> Response:
        gateway = self._gateway
        gateway.access.caller(request.scope["headers"], "feedback")
        kind = request.headers.get("content-type", "").partition(";")[0].strip()
        if kind not in (JSON, PROTOBUF):
            raise BadInputError(
                f"The content type {kind!r} is not read here.", hint=f"Send {JSON} or {PROTOBUF}.", param="content-type"
            )
        body = await read_body(request.scope, request.receive, gateway.config.max_body_bytes, gzip=True)
        export = _from_protobuf(body or b"") if kind == PROTOBUF else _from_json(body or b"")
        events, odd = [], 0
        for record in _records(export):
            event = _event(record)
            if event is None:
                gateway.counts.add("feedback.otlp.ignored")
            elif isinstance(event, str):
                gateway.counts.add("feedback.otlp.odd")
                odd += 1
            else:
                events.append(event)
        results = await take_in(gateway, events) if events else []
        unknown = sum(result.status == "unknown" for result in results)
        return _answer(kind, unknown, odd)


def _records(export: _Export) -> Iterator[_Record]:
    for resource in export.resource_logs:
        for scope in resource.scope_logs:
            yield from scope.log_records


def _event(record: _Record) -> FeedbackEvent | str | None:
    """The record as feedback; None where it is about something else, a word where its values make no sense."""
    given = {attribute.key: _plain(attribute.value) for attribute in record.attributes}
    told: Attributes = {name: value for name, value in given.items() if value is not None}
    name = record.event_name or told.get("event.name") or (record.body.string_value if record.body else "") or ""
    prefix = next((prefix for prefix in PREFIXES if str(name).startswith(prefix)), "")
    reader = _READERS.get(str(name).removeprefix(prefix))
    response_id = told.get("gen_ai.response.id") or told.get("request_id")
    if reader is None or not response_id:
        return None
    try:
        payload = reader(told)
        nanoseconds = int(record.time_unix_nano) or int(record.observed_time_unix_nano)
    except (KeyError, ValueError, OverflowError):
        return "odd"
    content = msgspec.json.encode([name, nanoseconds, sorted((key, str(value)) for key, value in told.items())])
    event_id = f"otlp-{hashlib.sha256(content).hexdigest()[:32]}"
    return FeedbackEvent(event_id, str(response_id), nanoseconds / 1e9 if nanoseconds else time.time(), payload)


def _plain(value: _Value) -> str | int | float | bool | None:
    if value.bool_value is not None:
        return value.bool_value
    if value.int_value is not None:
        return int(value.int_value)
    if value.double_value is not None:
        return float(value.double_value)
    return value.string_value


def _share(value: str | int | float | bool) -> float:
    number = float(value)
    if not 0 <= number <= 1:
        raise ValueError(f"{number} is no share")
    return number


def _outcome(told: Attributes) -> Literal["accepted", "rejected"]:
    outcome = told["outcome"]
    if outcome == "accepted":
        return "accepted"
    if outcome == "rejected":
        return "rejected"
    raise ValueError(f"{outcome} is no outcome")


def _survival(told: Attributes) -> Payload:
    delay_s = float(told["time_delay_ms"]) / 1000
    if not 0 <= delay_s < math.inf:
        raise ValueError(f"{delay_s} s is no delay")
    return EditSurvival(
        delay_s=delay_s,
        survival_rate_four_gram=_share(told["survival_rate_four_gram"]),
        survival_rate_no_revert=_share(told["survival_rate_no_revert"]),
        did_branch_change=str(told.get("did_branch_change", False)).lower() == "true",
    )


def _hunk(told: Attributes) -> Payload:
    added, removed = (max(int(told.get(name, 0)), 0) for name in ("lines_added", "lines_removed"))
    return HunkDecision(_outcome(told), added, removed)


def _inline(told: Attributes) -> Payload:
    return EditDecision("accepted" if str(told["accepted"]).lower() == "true" else "rejected")


def _rating(told: Attributes) -> Payload:
    return Rating({"positive": 1, "negative": -1}[str(told["rating"])])  # type: ignore[arg-type]


_READERS: dict[str, Callable[[Attributes], Payload]] = {
    "edit.survival": _survival,
    "edit.hunk.action": _hunk,
    "edit.feedback": lambda told: EditDecision(_outcome(told)),
    "inline.done": _inline,
    "user.feedback": _rating,
    "user.comment": lambda told: Comment(str(told["comment"])),
}


def _from_json(body: bytes) -> _Export:
    try:
        return msgspec.json.decode(body, type=_Export)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise decode_error(error, "The log export") from None


def _from_protobuf(body: bytes) -> _Export:
    service = _service()
    request = service.ExportLogsServiceRequest()
    try:
        request.ParseFromString(body)
    except Exception as error:  # protobuf's own error, which lives in a package that may be missing
        raise BadInputError(f"The log export is no protobuf of that kind: {error}.") from None
    return _Export(
        [
            _Resource([_Scope([_record(record) for record in scope.log_records]) for scope in resource.scope_logs])
            for resource in request.resource_logs
        ]
    )


def _record(record: Any) -> _Record:
    return _Record(
        time_unix_nano=record.time_unix_nano,
        observed_time_unix_nano=record.observed_time_unix_nano,
        event_name=getattr(record, "event_name", ""),
        body=_value(record.body),
        attributes=[_Attribute(attribute.key, _value(attribute.value)) for attribute in record.attributes],
    )


def _value(value: Any) -> _Value:
    kind = value.WhichOneof("value")
    if kind not in ("string_value", "int_value", "double_value", "bool_value"):
        return _Value()
    return _Value(**{kind: getattr(value, kind)})


def _service() -> Any:
    try:
        from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
    except ImportError:
        raise BadInputError(
            "This gateway reads OTLP as JSON only: the protobuf definitions are not installed.",
            hint="Next: pip install 'ostinato[otlp]', or set OTEL_EXPORTER_OTLP_PROTOCOL=http/json in the client.",
            param="content-type",
        ) from None
    return logs_service_pb2


def _answer(kind: str, unknown: int, odd: int) -> Response:
    words = []
    if unknown:
        words.append(f"{unknown} records name answers that this gateway did not give")
    if odd:
        words.append(f"{odd} records have values that make no sense")
    message, rejected = "; ".join(words), unknown + odd
    if kind == PROTOBUF:
        answer = _service().ExportLogsServiceResponse()
        if rejected:
            answer.partial_success.rejected_log_records = rejected
            answer.partial_success.error_message = message
        return Response(answer.SerializeToString(), media_type=PROTOBUF)
    partial = {"partialSuccess": {"rejectedLogRecords": rejected, "errorMessage": message}} if rejected else {}
    return Response(msgspec.json.encode(partial), media_type=JSON)
