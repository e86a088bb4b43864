"""An engine that says what it is told to: the second implementation of `records.Engine`, for tests of other rooms."""

import asyncio
from collections.abc import AsyncIterator, Callable

import numpy as np

from ostinato.records import (
    FinishReason,
    GenerateChunk,
    GenerateRequest,
    MissingError,
    SlotStatus,
    UnavailableError,
)


class ScriptedEngine:
    """`emit` maps the context's ids to the ids to draw. They are cut at the first stop id (then the reason is `stop`)
    and at `max_tokens` (`length`, also when the script ends without a stop id).

    `logprob` is that of every token; `experts_shape` (layers, k) makes the engine a mixture, whose choice at position
    p is p modulo 4 throughout; `chunk_size` tokens go into one chunk. `versions` maps slots to versions and may be
    changed at any time, also between two chunks. `requests` keeps what was asked. `fail_after` n chunks, the stream
    breaks off with `UnavailableError` (0: before the first). `cancelled` counts streams that were left early."""

    def __init__(
        self,
        emit: Callable[[list[int]], list[int]],
        *,
        versions: dict[str, str] | None = None,
        logprob: float = -0.5,
        chunk_size: int = 1,
        experts_shape: tuple[int, int] = (0, 0),
        fail_after: int | None = None,
    ) -> None:
        self.emit, self.logprob, self.chunk_size = emit, logprob, chunk_size
        self.versions = versions or {"release": "v-scripted"}
        self.experts_shape = experts_shape
        self.fail_after = fail_after
        self.requests: list[GenerateRequest] = []
        self.cancelled = 0

    async def generate(self, request: GenerateRequest) -> AsyncIterator[GenerateChunk]:
        """Stream the script's answer."""
        self.requests.append(request)
        if request.slot not in self.versions:
            raise MissingError(f"The slot {request.slot!r} holds no weights.", param="slot")
        ids, reason = _cut(self.emit(list(request.ids)), request)
        sent = 0
        try:
            for number, start in enumerate(range(0, max(len(ids), 1), self.chunk_size)):
                if self.fail_after is not None and number >= self.fail_after:
                    sent = len(ids)
                    raise UnavailableError("The scripted engine broke off.", hint="It was told to.")
                await asyncio.sleep(0)
                part = ids[start : start + self.chunk_size]
                last = start + self.chunk_size >= len(ids)
                experts = self._experts(request, len(ids)) if last else b""
                sent = start + len(part)
                yield GenerateChunk(
                    part, [self.logprob] * len(part), self.versions[request.slot], reason if last else None, experts
                )
        finally:
            self.cancelled += sent < len(ids)

    async def slots(self) -> list[SlotStatus]:
        """The slots and their versions."""
        return [SlotStatus(slot, version) for slot, version in self.versions.items()]

    def _experts(self, request: GenerateRequest, drawn: int) -> bytes:
        layers, k = self.experts_shape
        positions = np.arange(request.experts_from, len(request.ids) + max(drawn - 1, 0), dtype=np.uint16) % 4
        return np.repeat(positions, layers * k).tobytes()


def _cut(ids: list[int], request: GenerateRequest) -> tuple[list[int], FinishReason]:
    for index, token in enumerate(ids[: request.sampling.max_tokens]):
        if token in request.stop_ids:
            return ids[: index + 1], "stop"
    return ids[: request.sampling.max_tokens], "length"
