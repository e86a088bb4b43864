"""POST /v1/chat/completions: from a checked request to a durable turn and its answer."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from msgspec.structs import replace
from starlette.types import Receive, Scope, Send

from ostinato.gateway import replies
from ostinato.gateway.access import Caller, checked_person
from ostinato.gateway.arms import target_of
from ostinato.gateway.bodies import read_body, wait_gone
from ostinato.gateway.capture import Capture, Started
from ostinato.gateway.errors import error_json
from ostinato.gateway.gateway import Gateway
from ostinato.gateway.secrets import clean_text
from ostinato.gateway.sessions import HELD_SECRET, OPTED_OUT, Live, call_prefix, cut_at_stop
from ostinato.gateway.shown import Shown
from ostinato.gateway.wire import ChatCall, read_chat
from ostinato.records import (
    ContextFullError,
    Fate,
    GenerateChunk,
    GenerateRequest,
    MissingError,
    OstinatoError,
    Turn,
    UnavailableError,
)
from ostinato.render import ParsedReply
from ostinato.store import Transaction


class ChatEndpoint:
    """The ASGI application of this path. It speaks ASGI itself, since it must see a client go away at any moment."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        gateway = self._gateway
        caller = gateway.access.caller(scope["headers"], "infer")
        body = await read_body(scope, receive, gateway.config.max_body_bytes)
        if body is None:
            return
        call = read_chat(body, gateway.config.default_max_tokens)
        target = target_of(call.model)
        person = caller.person or (checked_person(call.user, "user") if call.user is not None else caller.key)
        live = gateway.book.find(caller, person, target, call)
        async with live.lock:
            live.private = live.private or caller.private
            slot = target.slot or gateway.arms.slot_of(live.row)
            turn = ChatTurn(gateway, live, call, caller, slot, may_fall_back=target.slot is None, send=send)
            await _run_while_there(turn, receive)
        gateway.counts.overhead(time.perf_counter() - began - turn.engine_s)


async def _run_while_there(turn: "ChatTurn", receive: Receive) -> None:
    """Run a turn; when the client goes away first, cut it. What there is of it is stored either way."""
    work = asyncio.ensure_future(turn.run())
    gone = asyncio.ensure_future(wait_gone(receive))
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        if not work.done() and not turn.settling:
            work.cancel()
        await asyncio.wait({work})
    if not work.cancelled():
        work.result()


@asynccontextmanager
async def _closing(chunks: AsyncIterator[GenerateChunk]) -> AsyncIterator[AsyncIterator[GenerateChunk]]:
    """End a generation at once when it is left early, so that the engine stops drawing."""
    try:
        yield chunks
    finally:
        if isinstance(chunks, AsyncGenerator):
            await chunks.aclose()


class ChatTurn:
    """One turn, from its plan to its last byte."""

    def __init__(
        self,
        gateway: Gateway,
        live: Live,
        call: ChatCall,
        caller: Caller,
        slot: str,
        *,
        may_fall_back: bool,
        send: Send,
    ) -> None:
        self.engine_s = 0.0
        self.settling = False
        """The generation has ended and is being stored: it cannot be cut any more."""
        self._gateway = gateway
        self._live = live
        self._call = call
        self._caller = caller
        self._may_fall_back = may_fall_back
        self._send = send
        self._turn_id = gateway.ids.mint()
        self._head = replies.Head(self._turn_id, call.model, int(time.time()))
        plan = live.log.plan(call.messages, call.tools)
        _check_fits(len(plan.ids), gateway.config.max_context)
        # A new segment holds no expert choices yet, whatever the one before it held.
        experts_from = min(live.experts_until, plan.context_len)
        self._started = Started(self._turn(slot, plan.segment, plan.segment_reason), plan, experts_from)
        self._capture = Capture(self._started, gateway.format.tokenizer.vocab_size)
        self._capture.sampled_with(call.sampling)
        self._shown = Shown(gateway.format.stream(), call.stop)
        self._streaming = False
        self._rows_sent = 0
        self._kept_messages, self._secrets = gateway.cleaner.clean(b"[]" if live.private else call.raw_messages)

    async def run(self) -> None:
        """Begin the turn in the ledger, generate, finish it in the ledger, answer."""
        begin = asyncio.ensure_future(self._begin())
        failure: Exception | None = None
        try:
            await self._generate(begin)
        except asyncio.CancelledError:
            self._capture.cut("the client went away before the answer ended")
        except Exception as error:
            failure = error
            self._capture.cut(f"the engine failed: {error}")
        self.settling = True
        await begin
        reply = await self._settle(failure)
        if failure is not None and not (self._streaming and isinstance(failure, OstinatoError)):
            raise failure
        if isinstance(failure, OstinatoError):
            await self._body(b"data: " + error_json(failure) + b"\n\n", more=False)
        elif self._capture.finish_reason != "cancelled":
            await self._answer(reply)

    def _turn(self, slot: str, segment: int, reason: str) -> Turn:
        return Turn(
            turn_id=self._turn_id,
            session_id=self._live.row.session_id,
            index=self._live.next_index,
            segment=segment,
            segment_reason=reason,
            slot=slot,
            versions=(),
            finish_reason=None,
            temperature=self._call.sampling.temperature,
            started_at=time.time(),
            first_token_at=None,
            ended_at=None,
            trainable=False,
            untrainable_reason="not finished",
        )

    async def _begin(self) -> None:
        """Make the session, the turn and its request durable."""
        live, sandbox_id = self._live, self._caller.sandbox_id
        turn = self._started.turn

        def write(tx: Transaction) -> None:
            if not live.stored:
                tx.open_session(live.row)
            elif sandbox_id is not None and sandbox_id != live.row.sandbox_id:
                tx.touch_session(live.row.session_id, turn.started_at, sandbox_id=sandbox_id)
            tx.begin_turn(turn, self._kept_messages)
            if live.private:
                tx.put_fate(live.row.session_id, Fate.OPTED_OUT, "by the header X-Ostinato-Train")

        await self._gateway.writer.submit(write)
        if not live.stored:
            self._gateway.counts.add("sessions.opened")
        live.stored = True
        live.next_index += 1
        if sandbox_id is not None:
            live.row = replace(live.row, sandbox_id=sandbox_id)

    async def _generate(self, begin: "asyncio.Future[None]") -> None:
        """Draw the reply. Nothing of it is sent before the request is durable."""
        started = time.perf_counter()
        try:
            await self._draw(begin)
        except MissingError:
            # The candidate's slot went with its experiment. The release answers, and the turn says so.
            if not self._may_fall_back or self._capture.slot == "release" or self._capture.ids:
                raise
            self._gateway.counts.add("chat.candidate_gone")
            self._capture.slot = "release"
            await self._draw(begin)
        finally:
            self.engine_s = time.perf_counter() - started

    async def _draw(self, begin: "asyncio.Future[None]") -> None:
        request = GenerateRequest(
            ids=self._started.plan.ids,
            slot=self._capture.slot,
            sampling=self._call.sampling,
            stop_ids=self._gateway.format.stop_ids,
            experts_from=self._started.experts_from,
            request_id=self._turn_id,
        )
        async with _closing(self._gateway.engine.generate(request)) as chunks:
            async for chunk in chunks:
                self._capture.take(chunk)
                await asyncio.shield(begin)
                if self._call.stream or self._call.stop:
                    await self._show(chunk.ids)
                if self._shown.stopped:
                    self._capture.stop()
                if self._capture.finish_reason is not None:
                    break
        if self._capture.finish_reason not in ("stop", "length"):
            raise UnavailableError("the engine ended the generation early", hint="Try again.")

    async def _settle(self, failure: Exception | None) -> ParsedReply:
        """Record the turn in the token log and, durably, in the ledger."""
        gateway, live, capture = self._gateway, self._live, self._capture
        prefix = call_prefix(self._turn_id)
        reply = cut_at_stop(gateway.format.parse(capture.ids, self._call.tools, prefix), self._call.stop)
        turn = self._fit_to_keep(capture.finished())
        if capture.ids:
            live.log.record(self._started.plan, self._call.messages, self._call.tools, capture.ids, reply.message())
            live.experts_until = capture.experts_until()
        if self._caller.session_id is None:
            if failure is None and capture.finish_reason != "cancelled":
                gateway.book.remember(live, live.log.messages, "reply")
            else:
                gateway.book.remember(live, self._call.messages, "failed")
        gateway.counts.add("turns.trainable" if turn.trainable else "turns.untrainable")
        await gateway.writer.submit(lambda tx: tx.finish_turn(turn))
        return reply

    def _fit_to_keep(self, turn: Turn) -> Turn:
        """The turn without its tokens where somebody opted out, or where they spell a secret."""
        if self._live.private:
            return replace(turn, trace=None, trainable=False, untrainable_reason=OPTED_OUT)
        self._secrets += clean_text(self._gateway.format.tokenizer.decode(self._capture.ids))[1]
        if not self._secrets:
            return turn
        self._gateway.counts.add("turns.with_secrets")
        return replace(turn, trace=None, trainable=False, untrainable_reason=HELD_SECRET)

    async def _show(self, ids: list[int]) -> None:
        text = self._shown.feed(ids)
        if not self._call.stream:
            return
        if not self._streaming:
            await self._open()
        if text:
            delta = {"content": text}
            await self._body(replies.event(self._head, self._capture.version, delta, logprobs=self._new_rows()))

    async def _open(self) -> None:
        self._streaming = True
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
        await self._start(headers)
        role = {"role": "assistant", "content": ""}
        await self._body(replies.event(self._head, self._capture.version, role))

    async def _answer(self, reply: ParsedReply) -> None:
        """Send what the client has not seen yet. The turn is durable now."""
        capture, version = self._capture, self._capture.version
        finish = "length" if capture.finish_reason == "length" else "tool_calls" if reply.tool_calls else "stop"
        counts = replies.usage(len(self._started.plan.ids), len(capture.ids))
        if not self._call.stream:
            body = replies.completion(self._head, version, reply, finish, counts, self._new_rows())
            await self._start([(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))])
            await self._body(body, more=False)
            return
        if not self._streaming:
            await self._open()
        deltas: list[dict[str, Any]] = replies.call_deltas(reply.tool_calls)
        rest = reply.content[self._shown.sent :]
        if rest:
            deltas.insert(0, {"content": rest})
        events = [replies.event(self._head, version, delta) for delta in deltas]
        events.append(replies.event(self._head, version, {}, finish, self._new_rows()))
        if self._call.include_usage:
            events.append(replies.usage_event(self._head, version, counts))
        await self._body(b"".join(events) + replies.DONE, more=False)

    def _new_rows(self) -> dict[str, Any] | None:
        """Log-probabilities of the tokens since the last event, where the client asked for them."""
        if not self._call.logprobs:
            return None
        ids, logprobs = self._capture.ids[self._rows_sent :], self._capture.logprobs[self._rows_sent :]
        self._rows_sent = len(self._capture.ids)
        return replies.logprob_rows(self._gateway.format.tokenizer, ids, logprobs)

    async def _start(self, headers: list[tuple[bytes, bytes]]) -> None:
        headers.append((b"x-ostinato-session", self._live.row.session_id.encode()))
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def _body(self, body: bytes, *, more: bool = True) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": more})


def _check_fits(tokens: int, most: int) -> None:
    if most and tokens >= most:
        raise ContextFullError(
            f"The conversation has {tokens} tokens, and the model's context holds {most}.",
            hint="Begin a new session, or serve with a larger --context.",
            param="messages",
        )
