"""The seam between the gateway and whatever generates: ids in; ids, log-probabilities, experts and versions out."""

from collections.abc import AsyncIterator
from typing import Literal, Protocol

from msgspec import Struct

from ostinato.records.chat import Sampling

FinishReason = Literal["stop", "length", "cancelled"]


class VersionSpan(Struct, frozen=True):
    """From the sampled token at index `start` on, tokens were drawn with `version`."""

    start: int
    version: str


class GenerateRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """One generation. `ids` is the whole context; `experts_from` is the first position of `ids` whose expert choices
    the caller does not hold yet. Generation ends with a token of `stop_ids` (which is part of the result)."""

    ids: list[int]
    slot: str
    sampling: Sampling = Sampling()
    stop_ids: list[int] = []
    experts_from: int = 0
    request_id: str = ""


class GenerateChunk(Struct, frozen=True):
    """Tokens drawn since the last chunk; the last chunk of a stream carries `finish_reason` and the experts.

    `experts` is uint16 little-endian of shape [rows, layers, k], for positions `experts_from` up to the last token
    that went through the model (the final sampled token did not): rows = len(ids) + sampled - 1 - experts_from.
    Empty for a dense model. `logprobs` are natural logarithms under the distribution really sampled from."""

    ids: list[int]
    logprobs: list[float]
    version: str
    finish_reason: FinishReason | None = None
    experts: bytes = b""


class Generation(Struct, frozen=True):
    """A whole generation: all chunks joined."""

    ids: list[int]
    logprobs: list[float]
    versions: tuple[VersionSpan, ...]
    finish_reason: FinishReason
    experts: bytes = b""


class SlotStatus(Struct, frozen=True):
    """What one slot of the engine holds."""

    slot: str
    version: str
    running: int = 0


class Engine(Protocol):
    """What the gateway needs of an engine."""

    def generate(self, request: GenerateRequest) -> AsyncIterator[GenerateChunk]:
        """Stream one generation. Raises `UnavailableError` when the engine cannot be reached or dies midway."""
        ...

    async def slots(self) -> list[SlotStatus]:
        """The slots and the version that each holds."""
        ...
