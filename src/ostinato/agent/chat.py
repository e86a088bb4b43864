"""The model as the harness sees it: a URL that speaks OpenAI Chat Completions, in plain messages."""

from typing import Any, Protocol, Self

import aiohttp
import msgspec
from msgspec import Struct

from ostinato.records import (
    BadInputError,
    ContextFullError,
    Message,
    MissingError,
    OstinatoError,
    ToolCall,
    ToolSpec,
    UnavailableError,
)

WireMessage = dict[str, Any]
"""A message in OpenAI's JSON shape. Assistant messages are sent back exactly as they came."""


class ChatReply(Struct, frozen=True):
    """One answer of the model. `wire` is the message as it came; `message` the same, decoded. `unreadable` names the
    calls (by id) whose arguments are not a JSON object, with the reason. `tokens` are the generated ones."""

    response_id: str
    message: Message
    wire: WireMessage
    finish_reason: str
    tokens: int
    unreadable: dict[str, str] = {}


class Chat(Protocol):
    """What the loop needs of a model."""

    async def query(
        self, messages: list[WireMessage], *, tools: tuple[ToolSpec, ...], max_tokens: int, temperature: float
    ) -> ChatReply:
        """One generation. Raises `OstinatoError` when there is no usable answer."""
        ...


class ChatClient:
    """Chat over HTTP for one session of one person. An async context manager, unless `http` is handed in. `requests`
    counts what was sent.

    Raises `UnavailableError` when the gateway cannot be reached or has no model, `MissingError` for an unknown model,
    `BadInputError` when it refuses the request or its answer cannot be read."""

    def __init__(
        self,
        url: str,
        model: str,
        person: str,
        session: str,
        *,
        key: str = "",
        sandbox: str = "",
        http: aiohttp.ClientSession | None = None,
        timeout_s: float = 120.0,
    ) -> None:
        self.url = url.rstrip("/") + "/v1/chat/completions"
        self.model = model
        self._headers = {"Content-Type": "application/json", "X-Ostinato-Session": session}
        self._headers |= {"X-Ostinato-Person": person} if person else {}
        self._headers |= {"X-Ostinato-Sandbox": sandbox} if sandbox else {}
        self._headers |= {"Authorization": f"Bearer {key}"} if key else {}
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self.requests = 0
        self._own = http is None
        self._http = http

    async def __aenter__(self) -> Self:
        if self._http is None:
            self._http = aiohttp.ClientSession()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._own and self._http is not None:
            await self._http.close()
            self._http = None

    async def query(
        self, messages: list[WireMessage], *, tools: tuple[ToolSpec, ...], max_tokens: int, temperature: float
    ) -> ChatReply:
        """See `Chat.query`."""
        assert self._http is not None, "enter the client first"
        body = {
            "model": self.model,
            "messages": messages,
            "tools": [{"type": "function", "function": tool} for tool in tools],
            "max_tokens": max_tokens,
            "temperature": temperature,
        }
        data = msgspec.json.encode(body)
        self.requests += 1
        try:
            async with self._http.post(self.url, data=data, headers=self._headers, timeout=self._timeout) as answer:
                text = await answer.read()
                if answer.status >= 400:
                    raise _refusal(answer.status, text, self.url)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            reason = str(error) or type(error).__name__
            raise UnavailableError(f"no answer from {self.url}: {reason}.", hint="Is the gateway running?") from error
        return read_reply(text)


def read_reply(text: bytes) -> ChatReply:
    """Decode a Chat Completions answer. Raises `BadInputError` if it is not one."""
    try:
        body = msgspec.json.decode(text)
        choice = body["choices"][0]
        wire: WireMessage = choice["message"]
        content, calls = wire.get("content") or "", wire.get("tool_calls") or []
        decoded = [_call(call) for call in calls]
        message = Message("assistant", content, tuple(call for call, _ in decoded))
        unreadable = {call.id: reason for call, reason in decoded if reason}
        tokens = int((body.get("usage") or {}).get("completion_tokens") or 0)
        return ChatReply(body["id"], message, wire, choice.get("finish_reason") or "", tokens, unreadable)
    except (msgspec.MsgspecError, KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        message_text = f"not a Chat Completions answer ({error!r}): {text[:200]!r}"
        raise BadInputError(message_text, hint="Does the URL name an OpenAI-compatible server?") from error


def _call(call: dict[str, Any]) -> tuple[ToolCall, str]:
    """The call, and why its arguments cannot be read ("" if they can)."""
    function = call["function"]
    try:
        arguments = msgspec.json.decode(function.get("arguments") or "{}")
    except msgspec.MsgspecError as error:
        return ToolCall(call["id"], function["name"], {}), f"arguments are not JSON: {error}"
    if not isinstance(arguments, dict):
        return ToolCall(call["id"], function["name"], {}), "arguments are not a JSON object"
    return ToolCall(call["id"], function["name"], arguments), ""


def _refusal(status: int, text: bytes, url: str) -> OstinatoError:
    code = None
    try:
        error = msgspec.json.decode(text)["error"]
        said, code = error["message"], error.get("code")
    except (msgspec.MsgspecError, KeyError, TypeError, AttributeError):
        said = text[:200].decode(errors="replace")
    message = f"{url} answered {status}: {said}"
    if code == ContextFullError.code:
        return ContextFullError(message)
    if status == 404:
        return MissingError(message)
    return UnavailableError(message) if status >= 500 or status == 429 else BadInputError(message)
