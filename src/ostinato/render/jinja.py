"""Chat formats of Hugging Face folders that bring a `chat_template`.

Tool calls are read in the Hermes style that Qwen uses: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`.
Special tokens in a client's text are read as such here, as everywhere that such templates are used.
"""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NoReturn

import jinja2
import jinja2.sandbox
import msgspec

from ostinato.records import BadInputError, Message, ToolCall, ToolSpec
from ostinato.render.format import ParsedReply, ReplyStream, StableText
from ostinato.render.tokenizer import Tokenizer

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"


class _WireCall(msgspec.Struct):
    name: str
    arguments: dict[str, Any] = {}


_CALL = msgspec.json.Decoder(_WireCall)


class JinjaFormat:
    """A chat template over one tokenizer.

    A template may rewrite earlier messages (Qwen3 drops old reasoning, others lay out tool calls anew). So the whole
    conversation is rendered for each request and compared with the text of the recorded ids: only what begins with
    exactly that text extends them."""

    def __init__(self, tokenizer: Tokenizer, template: str, names: dict[str, str], stop_ids: list[int]) -> None:
        """`names` are the template's variables, such as `eos_token`."""
        self.tokenizer = tokenizer
        self.stop_ids = stop_ids
        self._names = names
        try:
            self._template = _environment().from_string(template)
        except jinja2.TemplateError as error:
            raise BadInputError(
                f"The chat template cannot be read: {error}", hint="Check chat_template in tokenizer_config.json."
            ) from error

    def open(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[int]:
        """See `ChatFormat.open`."""
        return self.tokenizer.encode_marked(self._render(messages, tools))

    def extend(
        self,
        ids: list[int],
        known: int,  # noqa: ARG002
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
    ) -> list[int] | None:
        """See `ChatFormat.extend`. `known` plays no part: the text alone decides."""
        recorded = self.tokenizer.decode(ids)
        whole = self._render(messages, tools)
        if not whole.startswith(recorded):
            return None
        return self.tokenizer.encode_marked(whole[len(recorded) :])

    def parse(
        self,
        ids: Sequence[int],
        tools: Sequence[ToolSpec] = (),  # noqa: ARG002
        call_prefix: str = "call_",
    ) -> ParsedReply:
        """See `ChatFormat.parse`. A call that is no JSON object of `name` and `arguments` stays in the content."""
        body = list(ids[:-1] if ids and ids[-1] in self.stop_ids else ids)
        text = self.tokenizer.decode(body)
        if _OPEN not in text:
            return ParsedReply(text)
        content, *blocks = text.split(_OPEN)
        calls: list[ToolCall] = []
        for block in blocks:
            head, closed, _ = block.partition(_CLOSE)
            if not closed:
                return ParsedReply(text, (), "cut off inside a call")
            try:
                call = _CALL.decode(head.strip())
            except (msgspec.DecodeError, RecursionError) as error:
                return ParsedReply(text, (), f"a tool call is not JSON of name and arguments: {error}")
            calls.append(ToolCall(f"{call_prefix}{len(calls)}", call.name, call.arguments))
        # Templates put a line break of their own between the text and the first call.
        return ParsedReply(content.removesuffix("\n"), tuple(calls))

    def stream(self) -> ReplyStream:
        """See `ChatFormat.stream`."""
        return _HermesStream(self)

    def _render(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> str:
        rows = [_row(message) for message in messages]
        functions = [{"type": "function", "function": msgspec.to_builtins(tool)} for tool in tools] or None
        try:
            return self._template.render(messages=rows, tools=functions, add_generation_prompt=True, **self._names)
        except jinja2.TemplateError as error:
            raise BadInputError(
                f"The model's chat template refuses these messages: {error}", param="messages"
            ) from error


class _HermesStream:
    """Streams the text before the first call. What could still become the call's opening tag is held back."""

    def __init__(self, owner: JinjaFormat) -> None:
        self._stable = StableText(owner.tokenizer)
        self._stops = owner.stop_ids
        self._text = ""
        self._sent = 0
        self._over = False

    def feed(self, ids: Sequence[int]) -> str:
        if self._over:
            return ""
        self._text += self._stable.feed([token for token in ids if token not in self._stops])
        opened = self._text.find(_OPEN)
        self._over = opened >= 0
        end = len(self._text[:opened].removesuffix("\n")) if self._over else len(self._text) - self._held()
        piece = self._text[self._sent : end]
        self._sent = max(self._sent, end)
        return piece

    def _held(self) -> int:
        mark = "\n" + _OPEN
        longest = min(len(mark), len(self._text))
        tails = (
            n for n in range(longest, 0, -1) if mark.startswith(self._text[-n:]) or _OPEN.startswith(self._text[-n:])
        )
        return next(tails, 0)


def _row(message: Message) -> dict[str, Any]:
    row: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        row["tool_calls"] = [
            {"type": "function", "id": call.id, "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        row["tool_call_id"] = message.tool_call_id
    return row


def _environment() -> jinja2.sandbox.ImmutableSandboxedEnvironment:
    """The settings and helpers with which transformers renders chat templates."""
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().astimezone().strftime(form)
    return environment


def _to_json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
