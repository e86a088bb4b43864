"""The seed model's chat format: special tokens between plain text, arguments by position.

    <|bos|> <|sys|>TEXT<|end|> <|user|>TEXT<|end|> <|tool|>TEXT<|end|>
    <|asst|>TEXT<|end|>   or   <|asst|>TEXT<|call|>NAME<|arg|>A1<|arg|>A2<|end|>   (one or more <|call|> parts)

`<|asst|>` is the generation prompt; what follows it is sampled, up to and with `<|end|>`.
"""

from collections.abc import Sequence

from ostinato.records import Message, ToolCall, ToolSpec
from ostinato.render.format import ParsedReply, ReplyStream, StableText
from ostinato.render.tokenizer import Tokenizer

PAD, BOS, USER, ASST, TOOL, SYS, CALL, ARG, END = (
    f"<|{name}|>" for name in ("pad", "bos", "user", "asst", "tool", "sys", "call", "arg", "end")
)
SPECIAL_TOKENS: tuple[str, ...] = (PAD, BOS, USER, ASST, TOOL, SYS, CALL, ARG, END)
"""In the order in which the seed model's tokenizer numbers them, from 0."""


class TinyFormat:
    """The format above, over one tokenizer. Text can never smuggle a special token in."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.pad, self.bos, self.user, self.asst, self.tool, self.sys, self.call, self.arg, self.end = (
            tokenizer.id_of(token) for token in SPECIAL_TOKENS
        )
        self.stop_ids: list[int] = [self.end]
        self._special = {tokenizer.id_of(token) for token in SPECIAL_TOKENS}
        self._roles = {"system": self.sys, "user": self.user, "tool": self.tool}

    def begin(self) -> list[int]:
        """What a segment starts with."""
        return [self.bos]

    def generation_prompt(self) -> list[int]:
        """What stands before the sampled ids of a reply."""
        return [self.asst]

    def message_ids(self, message: Message, tools: Sequence[ToolSpec] = ()) -> list[int]:
        """One whole message, from its role token to `<|end|>`. `tools` give the order of arguments."""
        encode = self.tokenizer.encode
        if message.role != "assistant":
            return [self._roles[message.role], *encode(message.content), self.end]
        ids = [self.asst, *encode(message.content)]
        for call in message.tool_calls:
            ids += [self.call, *encode(call.name)]
            for value in _in_order(call, tools):
                ids += [self.arg, *encode(value)]
        return [*ids, self.end]

    def render(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> list[int]:
        """A whole segment without a generation prompt, as training on written conversations needs it."""
        return self.begin() + [token for message in messages for token in self.message_ids(message, tools)]

    def close(self, ids: Sequence[int]) -> list[int]:
        """What must follow sampled ids that lack the stop token (cut at a limit, or cancelled)."""
        return [] if ids and ids[-1] == self.end else [self.end]

    def open(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[int]:
        """See `ChatFormat.open`."""
        return self.render(messages, tools) + self.generation_prompt()

    def extend(self, ids: list[int], known: int, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[int]:
        """See `ChatFormat.extend`; this format always keeps `ids`."""
        added = self.close(ids)
        for message in messages[known:]:
            added += self.message_ids(message, tools)
        return added + self.generation_prompt()

    def parse(self, ids: Sequence[int], tools: Sequence[ToolSpec], call_prefix: str = "call_") -> ParsedReply:
        """See `ChatFormat.parse`.

        Arguments are named by the tool's properties; those too many are named `extra1`, ..., and those of an unknown
        tool `arg1`, ... An `<|arg|>` outside a call reads as a call of the tool "". Where the limit on tokens cut a
        call, its last part is dropped, since it may be incomplete: so a cut call lacks an argument."""
        ended = bool(ids) and ids[-1] == self.end
        body = list(ids[:-1] if ended else ids)
        cut = next((i for i, token in enumerate(body) if token in (self.call, self.arg)), len(body))
        content, invalid = self._text(body[:cut])
        parts = self._parts(body[cut:])
        if parts and not ended:
            invalid = invalid or "cut off inside a call"
            if len(parts[-1]) > 1:
                parts[-1].pop()
        orders = {tool.name: tuple(tool.parameters.get("properties", {})) for tool in tools}
        calls: list[ToolCall] = []
        for number, (head, *values) in enumerate(parts):
            name, fault = self._text(head)
            texts = [self._text(value) for value in values]
            invalid = invalid or fault or next((bad for _, bad in texts if bad), "")
            names = _names(orders.get(name), len(values))
            calls.append(
                ToolCall(
                    f"{call_prefix}{number}", name, {key: text for key, (text, _) in zip(names, texts, strict=True)}
                )
            )
        return ParsedReply(content, tuple(calls), invalid)

    def stream(self) -> ReplyStream:
        """See `ChatFormat.stream`."""
        return _TinyStream(self)

    def _parts(self, body: list[int]) -> list[list[list[int]]]:
        """Calls, each as its parts: the name, then the arguments."""
        calls: list[list[list[int]]] = []
        for token in body:
            if token == self.call:
                calls.append([[]])
            elif token == self.arg:
                if not calls:
                    calls.append([[]])
                calls[-1].append([])
            else:
                calls[-1][-1].append(token)
        return calls

    def _text(self, ids: list[int]) -> tuple[str, str]:
        """The text of `ids`, and what is wrong with them ("" if nothing)."""
        stray = next((token for token in ids if token in self._special), None)
        fault = "" if stray is None else f"special token {self.tokenizer.decode([stray])} inside a reply"
        return self.tokenizer.decode(ids), fault


class _TinyStream:
    def __init__(self, owner: TinyFormat) -> None:
        self._text = StableText(owner.tokenizer)
        self._enders = {owner.call, owner.arg, owner.end}
        self._over = False

    def feed(self, ids: Sequence[int]) -> str:
        if self._over:
            return ""
        cut = next((i for i, token in enumerate(ids) if token in self._enders), None)
        self._over = cut is not None
        return self._text.feed(ids if cut is None else ids[:cut])


def _in_order(call: ToolCall, tools: Sequence[ToolSpec]) -> list[str]:
    """The values of a call as texts, by the tool's property order; what the tool does not name comes last."""
    spec = next((tool for tool in tools if tool.name == call.name), None)
    order = () if spec is None else tuple(spec.parameters.get("properties", {}))
    known = [call.arguments[key] for key in order if key in call.arguments]
    rest = [value for key, value in call.arguments.items() if key not in order]
    return [value if isinstance(value, str) else str(value) for value in known + rest]


def _names(order: tuple[str, ...] | None, count: int) -> list[str]:
    if order is None:
        return [f"arg{i + 1}" for i in range(count)]
    return [*order[:count], *(f"extra{i + 1}" for i in range(count - len(order)))]
