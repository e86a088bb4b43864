"""POST /v1/feedback: reports about responses, durable before they are acknowledged."""

import time
from typing import Literal

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from ostinato.gateway.bodies import read_body
from ostinato.gateway.errors import decode_error
from ostinato.gateway.gateway import Gateway
from ostinato.gateway.secrets import clean_event
from ostinato.records import AgentEnded, BadInputError, FeedbackEvent, MissingError, SessionClosed
from ostinato.store import Transaction

Status = Literal["stored", "duplicate", "parked", "unknown", "opted_out"]
_EVENTS = msgspec.json.Decoder(FeedbackEvent | list[FeedbackEvent])
_MOST_EVENTS = 1000


class Result(Struct, frozen=True):
    """What became of one report."""

    event_id: str
    status: Status


class FeedbackEndpoint:
    """One report, or a list of them.

    200: all are stored (or were before). 202: at least one waits for its response to be stored. 404: none of the
    response ids is ours. Where only some are unknown, `results` says which, and the others are kept."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def __call__(self, request: Request) -> Response:
        gateway = self._gateway
        gateway.access.caller(request.scope["headers"], "feedback")
        body = await read_body(request.scope, request.receive, gateway.config.max_body_bytes)
        events = _decode(body or b"")
        results = await take_in(gateway, events)
        if all(result.status == "unknown" for result in results):
            first = events[0].response_id
            raise MissingError(
                f"The response id {first[:100]!r} is not one of ours.",
                hint="Send the id of the response as it came.",
                param="response_id",
            )
        parked = any(result.status == "parked" for result in results)
        status = results[0].status if len(results) == 1 else "parked" if parked else "stored"
        return _json(msgspec.json.encode({"status": status, "results": results}), 202 if parked else 200)


async def take_in(gateway: Gateway, events: list[FeedbackEvent]) -> list[Result]:
    """Store reports; they are durable when this returns. One about a response that is not ours is counted and left."""
    ours = [gateway.ids.verify(event.response_id) for event in events]
    cleaned = [clean_event(event) for event, is_ours in zip(events, ours, strict=True) if is_ours]
    statuses = iter(await _store(gateway, [event for event, _ in cleaned]) if cleaned else [])
    results = [
        Result(event.event_id, next(statuses) if is_ours else "unknown")
        for event, is_ours in zip(events, ours, strict=True)
    ]
    gateway.counts.add("feedback.with_secrets", sum(found > 0 for _, found in cleaned))
    for result in results:
        gateway.counts.add(f"feedback.{result.status}")
    return results


async def _store(gateway: Gateway, events: list[FeedbackEvent]) -> list[Status]:
    now = time.time()
    sessions: dict[str, str] = {}
    for response_id in {event.response_id for event in events}:
        session_id = gateway.ledger.turn_session(response_id)
        if session_id is not None:
            sessions[response_id] = session_id
    private = {session for session in sessions.values() if gateway.ledger.opted_out(session)}
    closing = [
        sessions[event.response_id]
        for event in events
        if isinstance(event.payload, SessionClosed) and event.response_id in sessions
    ]

    def write(tx: Transaction) -> list[Status]:
        found = ((event, sessions.get(event.response_id)) for event in events)
        return ["opted_out" if held in private else _add(tx, event, held, now) for event, held in found]

    statuses = await gateway.writer.submit(write)
    for session_id in closing:
        gateway.book.closed(session_id, now)
    return statuses


def _add(tx: Transaction, event: FeedbackEvent, session_id: str | None, now: float) -> Status:
    status: Status = tx.add_feedback(event, session_id)
    if status != "stored" or session_id is None:
        return status
    if isinstance(event.payload, AgentEnded) and event.payload.sandbox_id:
        tx.touch_session(session_id, now, sandbox_id=event.payload.sandbox_id)
    if isinstance(event.payload, SessionClosed):
        tx.close_session(session_id, now)
    return status


def _decode(body: bytes) -> list[FeedbackEvent]:
    try:
        decoded = _EVENTS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise decode_error(error, "The feedback") from None
    events = decoded if isinstance(decoded, list) else [decoded]
    if not 0 < len(events) <= _MOST_EVENTS:
        raise BadInputError(f"{len(events)} reports were sent; 1 to {_MOST_EVENTS} are read at once.")
    for event in events:
        if not event.event_id or len(event.event_id) > 200:
            raise BadInputError("event_id must have 1 to 200 characters.", param="event_id")
    return events


def _json(body: bytes, status: int) -> Response:
    return Response(body, status_code=status, media_type="application/json")
