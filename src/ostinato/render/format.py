"""What every chat format offers: messages to ids, ids to replies."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from ostinato.records import Message, ToolCall, ToolSpec
from ostinato.render.tokenizer import Tokenizer


class ParsedReply(Struct, frozen=True):
    """What sampled ids say. `invalid` names why they do not follow the format ("" if they do); what could be read of
    them is still in `content` and `tool_calls`."""

    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    invalid: str = ""

    def message(self) -> Message:
        """The reply as a chat message."""
        return Message("assistant", self.content, self.tool_calls)


class ReplyStream(Protocol):
    """Turns the ids of one reply into text while they arrive."""

    def feed(self, ids: Sequence[int]) -> str:
        """The text that is now certain. All of it joined is a prefix of `parse(all ids).content`."""
        ...


class ChatFormat(Protocol):
    """How one model family writes a conversation as tokens."""

    tokenizer: Tokenizer
    stop_ids: list[int]

    def open(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[int]:
        """The whole context of a fresh segment: the messages, then the generation prompt."""
        ...

    def extend(
        self, ids: list[int], known: int, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> list[int] | None:
        """The ids to put after `ids`, which hold `messages[:known]` and end with a sampled reply, so that sampling can
        go on after the last message. None where this format would not keep `ids` as they are."""
        ...

    def parse(self, ids: Sequence[int], tools: Sequence[ToolSpec], call_prefix: str = "call_") -> ParsedReply:
        """Read sampled ids. Tool calls get the ids `call_prefix` + 0, 1, ... so that reading again gives the same."""
        ...

    def stream(self) -> ReplyStream:
        """A fresh reader for one streamed reply."""
        ...


class StableText:
    """Decodes ids piece by piece, and holds back a character until all its bytes are there."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._before: list[int] = []
        self._pending: list[int] = []

    def feed(self, ids: Sequence[int]) -> str:
        """The new text. The last emitted ids are decoded along, since some tokenizers treat the first token of a text
        differently."""
        self._pending.extend(ids)
        text = self._tokenizer.decode(self._before + self._pending)[len(self._tokenizer.decode(self._before)) :]
        if not text or text.endswith("\ufffd"):
            return ""
        self._before, self._pending = self._pending[-4:], []
        return text
