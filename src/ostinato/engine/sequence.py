"""One request on its way through the scheduler."""

from collections.abc import Callable

from ostinato.engine.sampling import Drawer
from ostinato.records import FinishReason, GenerateChunk, GenerateRequest

Sink = Callable[[GenerateChunk | Exception], None]
"""Takes chunks as they come, the last one with a finish reason; or one exception, after which nothing follows. Called
from the scheduler's thread."""


class Sequence:
    """`ids` holds prompt and drawn tokens; keys and values of the first `computed` are in `row`, or in the zone while
    it decodes. `mixed` says that more than one version computed them."""

    def __init__(self, request: GenerateRequest, sink: Sink, max_len: int) -> None:
        self.request = request
        self.sink = sink
        self.ids = list(request.ids)
        self.prompt = len(request.ids)
        self.limit = min(self.prompt + request.sampling.max_tokens, max_len)
        self.stops = frozenset(request.stop_ids)
        self.drawer = Drawer(request.sampling)
        self.logprobs: list[float] = []
        self.row = -1
        self.computed = 0
        self.zone_start = 0
        self.mixed = False
        self.finish: FinishReason | None = None
        self.sent = 0
        self.sent_at = 0.0
        self.version = ""

    @property
    def drawn(self) -> int:
        """How many tokens were drawn so far."""
        return len(self.ids) - self.prompt

    def take(self, token: int, logprob: float, version: str) -> None:
        """Append a drawn token. A chunk has one version, so a change of version is sent off first."""
        if version != self.version:
            self.flush(0.0)
            self.version = version
        self.ids.append(token)
        self.logprobs.append(logprob)
        if token in self.stops:
            self.finish = "stop"
        elif len(self.ids) >= self.limit:
            self.finish = "length"

    def flush(self, now: float) -> None:
        """Send the tokens that were not sent yet, if any."""
        if self.sent < self.drawn:
            self.sink(self._chunk(None, b""))
            self.sent, self.sent_at = self.drawn, now

    def close(self, reason: FinishReason, version: str, experts: bytes) -> None:
        """Send the last chunk."""
        self.version = self.version or version
        self.sink(self._chunk(reason, experts))
        self.sent = self.drawn

    def _chunk(self, reason: FinishReason | None, experts: bytes) -> GenerateChunk:
        return GenerateChunk(
            self.ids[self.prompt + self.sent :], self.logprobs[self.sent :], self.version, reason, experts
        )
