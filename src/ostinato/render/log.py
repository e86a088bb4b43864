"""The token-exact log of one session: which ids the next generation starts from, without tokenising history again."""

from collections.abc import Sequence

from msgspec import Struct

from ostinato.records import Message, ToolSpec
from ostinato.render.format import ChatFormat

REWRITES = "chat template rewrites history"


class Plan(Struct, frozen=True):
    """Where the next generation starts. `ids` is the whole context: `context_len` ids that its segment already holds,
    then `prompt_ids`. `segment_reason` says why a segment begins here ("" where none does, and for the first)."""

    ids: list[int]
    context_len: int
    segment: int
    segment_reason: str
    known: int
    """How many of the request's messages the log held already, counted from the first."""

    @property
    def prompt_ids(self) -> list[int]:
        """The ids that this turn adds before sampling."""
        return self.ids[self.context_len :]


class _Mark(Struct, frozen=True):
    """After a reply: `messages` messages take up the first `ids` ids."""

    messages: int
    ids: int


class TokenLog:
    """The ids of a session's present segment, and the messages that they stand for.

    A request whose messages begin with all that the log holds extends the segment: its context is the very ids that
    were sampled, and only new messages are tokenised. Any other request opens a new segment. That one still begins
    with the recorded ids up to the last reply that the client left as it was."""

    def __init__(self, chat_format: ChatFormat) -> None:
        self._format = chat_format
        self._ids: list[int] = []
        self._messages: list[Message] = []
        self._tools: tuple[ToolSpec, ...] = ()
        self._marks: list[_Mark] = []
        self._segment = -1

    @property
    def length(self) -> int:
        """How many ids the present segment holds."""
        return len(self._ids)

    @property
    def messages(self) -> tuple[Message, ...]:
        """What the present segment says, the last reply included."""
        return tuple(self._messages)

    def plan(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> Plan:
        """Where a generation for these messages starts. Changes nothing."""
        if self._segment < 0:
            return Plan(self._format.open(messages, tools), 0, 0, "", 0)
        if tuple(tools) != self._tools:
            return Plan(self._format.open(messages, tools), 0, self._segment + 1, "tools changed", 0)
        same = _common(self._messages, messages)
        if same == len(self._messages):
            added = self._format.extend(self._ids, same, messages, tools)
            if added is not None:
                return Plan(self._ids + added, len(self._ids), self._segment, "", same)
            return Plan(self._format.open(messages, tools), 0, self._segment + 1, REWRITES, same)
        return self._branch(messages, tools, _reason(self._messages, messages, same), same)

    def record(
        self, plan: Plan, messages: Sequence[Message], tools: Sequence[ToolSpec], sampled: Sequence[int], reply: Message
    ) -> None:
        """Take in a generation: the request that `plan` was made for, the sampled ids, and the reply as shown."""
        kept = self._marks
        if plan.segment != self._segment:
            kept = [mark for mark in kept if plan.ids[: mark.ids] == self._ids[: mark.ids]]
        self._ids = [*plan.ids, *sampled]
        self._messages = [*messages, reply]
        self._tools = tuple(tools)
        self._marks = [*kept, _Mark(len(self._messages), len(self._ids))]
        self._segment = plan.segment

    def restore(self, ids: Sequence[int], messages: Sequence[Message], tools: Sequence[ToolSpec], segment: int) -> None:
        """Take over a segment that was recorded earlier: its ids, and its messages with the last reply."""
        self._ids, self._messages, self._tools = list(ids), list(messages), tuple(tools)
        self._marks, self._segment = [_Mark(len(self._messages), len(self._ids))], segment

    def _branch(self, messages: Sequence[Message], tools: Sequence[ToolSpec], reason: str, same: int) -> Plan:
        """A new segment that begins with the recorded ids up to the last reply that is as it was, if there is one."""
        mark = next((mark for mark in reversed(self._marks) if mark.messages <= same), None)
        head = [] if mark is None else self._ids[: mark.ids]
        added = None if mark is None else self._format.extend(head, mark.messages, messages, tools)
        ids = self._format.open(messages, tools) if added is None else head + added
        return Plan(ids, 0, self._segment + 1, reason, same)


def _common(held: Sequence[Message], given: Sequence[Message]) -> int:
    """How many messages at the start are equal in both."""
    shorter = min(len(held), len(given))
    return next((i for i in range(shorter) if held[i] != given[i]), shorter)


def _reason(held: Sequence[Message], given: Sequence[Message], same: int) -> str:
    if same == len(given):
        return f"history ends at message {same}"
    if same == 0 and held[0].role == "system":
        return "system prompt changed"
    return f"history rewritten at message {same + 1}"
