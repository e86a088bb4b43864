"""Plain chat messages, as clients speak them. Ids never appear here."""

from typing import Any, Literal

from msgspec import Struct

Role = Literal["system", "user", "assistant", "tool"]


class ToolCall(Struct, frozen=True):
    """What the model asks for. `arguments` is the decoded JSON object; the wire carries it as a string."""

    id: str
    name: str
    arguments: dict[str, Any]


class Message(Struct, frozen=True):
    """One chat message. `tool_calls` only on assistant messages, `tool_call_id` only on tool messages."""

    role: Role
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


class ToolSpec(Struct, frozen=True):
    """A tool offered to the model; `parameters` is a JSON schema, and its property order is the argument order."""

    name: str
    description: str
    parameters: dict[str, Any]


class Sampling(Struct, frozen=True, forbid_unknown_fields=True):
    """How to draw tokens. Temperature 0 is greedy; `top_k` 0 and `top_p` 1 switch those off."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int = 256
    seed: int | None = None
