"""Answers in the shape of OpenAI's Chat Completions: whole, and as a stream of events."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from ostinato.records import ToolCall
from ostinato.render import ParsedReply, Tokenizer

DONE = b"data: [DONE]\n\n"
_json = msgspec.json.encode


class Head(Struct, frozen=True):
    """What every part of one answer repeats. `created` is in Unix seconds."""

    response_id: str
    model: str
    created: int

    def fields(self, kind: str, version: str) -> dict[str, Any]:
        """The common fields; the version that drew the last token is the fingerprint."""
        return {
            "id": self.response_id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": version,
        }


class Usage(Struct, frozen=True):
    """Counts of tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


def usage(prompt: int, completion: int) -> Usage:
    """The counts with their sum."""
    return Usage(prompt, completion, prompt + completion)


def completion(
    head: Head, version: str, reply: ParsedReply, finish: str, counts: Usage, logprobs: dict[str, Any] | None
) -> bytes:
    """A whole answer."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.content, "refusal": None}
    if reply.tool_calls:
        message["content"] = reply.content or None
        message["tool_calls"] = [_wire_call(call) for call in reply.tool_calls]
    choice = {"index": 0, "message": message, "logprobs": logprobs, "finish_reason": finish}
    return _json(head.fields("chat.completion", version) | {"choices": [choice], "usage": counts})


def event(
    head: Head, version: str, delta: dict[str, Any], finish: str | None = None, logprobs: dict[str, Any] | None = None
) -> bytes:
    """One event of a streamed answer."""
    choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
    return b"data: " + _json(head.fields("chat.completion.chunk", version) | {"choices": [choice]}) + b"\n\n"


def usage_event(head: Head, version: str, counts: Usage) -> bytes:
    """The last event where the client asked for counts."""
    return b"data: " + _json(head.fields("chat.completion.chunk", version) | {"choices": [], "usage": counts}) + b"\n\n"


def call_deltas(calls: Sequence[ToolCall]) -> list[dict[str, Any]]:
    """The deltas that stream tool calls: each call whole, since its arguments are known only when it has ended."""
    return [{"tool_calls": [{"index": i} | _wire_call(call)]} for i, call in enumerate(calls)]


def logprob_rows(tokenizer: Tokenizer, ids: Sequence[int], logprobs: Sequence[float]) -> dict[str, Any]:
    """Log-probabilities of sampled tokens; each token's text stands alone, so it may hold part of a character."""
    rows = []
    for token, logprob in zip(ids, logprobs, strict=False):
        text = tokenizer.decode([token])
        rows.append({"token": text, "logprob": logprob, "bytes": list(text.encode()), "top_logprobs": []})
    return {"content": rows, "refusal": None}


def _wire_call(call: ToolCall) -> dict[str, Any]:
    arguments = _json(call.arguments).decode()
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}
