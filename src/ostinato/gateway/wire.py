"""The body of a Chat Completions request: decoded, checked, and turned into records.

Fields that OpenAI knows and that change nothing here are ignored. Fields that would change the answer and that we do
not offer are refused, so that nothing is dropped silently; so are unknown fields of ours.
"""

import re
from typing import Any, Literal

import msgspec
from msgspec import Struct

from ostinato.gateway.errors import decode_error
from ostinato.records import BadInputError, Message, Sampling, ToolCall, ToolSpec


class _Function(Struct):
    name: str
    arguments: str = "{}"


class _Call(Struct):
    id: str
    function: _Function
    type: Literal["function"] = "function"


class _Part(Struct):
    type: str
    text: str | None = None


class _WireMessage(Struct):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[_Part] | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None


class _ToolFunction(Struct):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class _Tool(Struct):
    function: _ToolFunction
    type: Literal["function"] = "function"


class _StreamOptions(Struct):
    include_usage: bool | None = None


class _Body(Struct):
    model: str
    messages: msgspec.Raw
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    user: str | None = None
    logprobs: bool | None = None
    tools: list[_Tool] | None = None
    metadata: dict[str, Any] | None = None
    tool_choice: Any = None
    n: Any = None
    top_logprobs: Any = None
    presence_penalty: Any = None
    frequency_penalty: Any = None
    logit_bias: Any = None
    response_format: Any = None
    functions: Any = None
    function_call: Any = None


class ChatCall(Struct, frozen=True):
    """One checked request. `raw_messages` is the JSON array of messages as it came."""

    model: str
    messages: tuple[Message, ...]
    raw_messages: bytes
    tools: tuple[ToolSpec, ...]
    sampling: Sampling
    stream: bool
    include_usage: bool
    logprobs: bool
    stop: tuple[str, ...]
    user: str | None


_BODY = msgspec.json.Decoder(_Body)
_TOP = msgspec.json.Decoder(dict[str, msgspec.Raw])
_MESSAGES = msgspec.json.Decoder(list[_WireMessage])
_ARGUMENTS = msgspec.json.Decoder(dict[str, Any])
_TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")

# Fields that would change the answer, and the values with which they change nothing.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (None, 1),
    "top_logprobs": (None, 0),
    "presence_penalty": (None, 0),
    "frequency_penalty": (None, 0),
    "logit_bias": (None, {}),
    "response_format": (None, {"type": "text"}),
    "functions": (None,),
    "function_call": (None,),
    "tool_choice": (None, "auto"),
}


def read_chat(body: bytes, default_max_tokens: int) -> ChatCall:
    """Decode and check one request body. Raises `BadInputError` that names the field."""
    try:
        wire = _BODY.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise decode_error(error, "The request body") from None
    _refuse_unknown_of_ours(body, wire)
    for field, neutral in _NEUTRAL.items():
        value = getattr(wire, field)
        if not any(value == one and not isinstance(value, bool) for one in neutral):
            raise BadInputError(f"{field}={value!r} is not offered.", hint=f"Leave {field} out.", param=field)
    raw = bytes(wire.messages)
    return ChatCall(
        model=wire.model,
        messages=read_messages(raw),
        raw_messages=raw,
        tools=tuple(_tool(tool, i) for i, tool in enumerate(wire.tools or [])),
        sampling=_sampling(wire, default_max_tokens),
        stream=bool(wire.stream),
        include_usage=bool(wire.stream_options and wire.stream_options.include_usage),
        logprobs=bool(wire.logprobs),
        stop=_stops(wire.stop),
        user=wire.user,
    )


def read_messages(raw: bytes) -> tuple[Message, ...]:
    """The messages of a request, from their JSON array."""
    try:
        wire = _MESSAGES.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise decode_error(error, "The request body", "messages") from None
    if not wire:
        raise BadInputError("messages is empty.", hint="Send at least one message.", param="messages")
    return tuple(_message(message, i) for i, message in enumerate(wire))


def _message(wire: _WireMessage, index: int) -> Message:
    where = f"messages[{index}]"
    content = wire.content or ""
    if isinstance(content, list):
        other = next((part.type for part in content if part.type != "text" or part.text is None), None)
        if other is not None:
            raise BadInputError(
                f"{where} has a part of type {other!r}; this model reads text.",
                hint="Send text.",
                param=f"{where}.content",
            )
        content = "".join(part.text or "" for part in content)
    role = "system" if wire.role == "developer" else wire.role
    calls = tuple(_call(call, f"{where}.tool_calls[{i}]") for i, call in enumerate(wire.tool_calls or []))
    if calls and role != "assistant":
        raise BadInputError(f"{where} has tool_calls but the role {role!r}.", param=f"{where}.tool_calls")
    return Message(role, content, calls, wire.tool_call_id if role == "tool" else None)


def _call(wire: _Call, where: str) -> ToolCall:
    try:
        arguments = _ARGUMENTS.decode(wire.function.arguments)
    except (msgspec.DecodeError, RecursionError) as error:
        raise decode_error(error, "A tool call's arguments", f"{where}.function.arguments") from None
    return ToolCall(wire.id, wire.function.name, arguments)


def _tool(wire: _Tool, index: int) -> ToolSpec:
    where = f"tools[{index}].function"
    name = wire.function.name
    if not _TOOL_NAME.fullmatch(name):
        raise BadInputError(
            f"The tool name {name!r} is not allowed.", hint="Use up to 64 of A-Z a-z 0-9 _ . -", param=f"{where}.name"
        )
    parameters = wire.function.parameters or {"type": "object", "properties": {}}
    if not isinstance(parameters.get("properties", {}), dict):
        raise BadInputError(
            f"properties of the tool {name!r} must be an object.", param=f"{where}.parameters.properties"
        )
    return ToolSpec(name, wire.function.description or "", parameters)


def _sampling(wire: _Body, default_max_tokens: int) -> Sampling:
    limit = wire.max_completion_tokens if wire.max_completion_tokens is not None else wire.max_tokens
    sampling = Sampling(
        temperature=1.0 if wire.temperature is None else wire.temperature,
        top_p=1.0 if wire.top_p is None else wire.top_p,
        top_k=wire.top_k or 0,
        max_tokens=default_max_tokens if limit is None else limit,
        seed=wire.seed,
    )
    bounds = (
        ("temperature", 0 <= sampling.temperature <= 2, "between 0 and 2"),
        ("top_p", 0 < sampling.top_p <= 1, "above 0 and at most 1"),
        ("top_k", sampling.top_k >= 0, "0 or more"),
        ("max_tokens", sampling.max_tokens >= 1, "1 or more"),
    )
    for field, fits, allowed in bounds:
        if not fits:
            raise BadInputError(f"{field} is {getattr(sampling, field)}; it must be {allowed}.", param=field)
    return sampling


def _stops(stop: str | list[str] | None) -> tuple[str, ...]:
    stops = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if len(stops) > 4 or "" in stops:
        raise BadInputError("stop must be up to four texts, none of them empty.", param="stop")
    return stops


def _refuse_unknown_of_ours(body: bytes, wire: _Body) -> None:
    """No body field of ours exists; one that looks like ours is a mistake that must not pass unseen."""
    metadata = (f"metadata.{key}" for key in wire.metadata or {})
    for field in (*_TOP.decode(body), *metadata):
        name = field.removeprefix("metadata.").lower()
        if name.startswith(("ostinato", "x-ostinato", "x_ostinato")):
            raise BadInputError(
                f"The field {field!r} is not known.",
                hint="Use the headers X-Ostinato-Session, X-Ostinato-Person and X-Ostinato-Sandbox.",
                param=field,
            )
