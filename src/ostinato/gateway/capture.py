"""One turn while it is generated: exact ids, log-probabilities, experts and versions, and whether they are whole."""

import math
import time

from msgspec import Struct
from msgspec.structs import replace

from ostinato.records import FinishReason, GenerateChunk, Sampling, Turn, TurnTrace, VersionSpan
from ostinato.render import Plan

# A log-probability of 0 may come out of a sum of rounded numbers as a tiny positive one.
_ROUNDING = 1e-3


class Started(Struct, frozen=True):
    """What is known of a turn before the engine answers."""

    turn: Turn
    plan: Plan
    experts_from: int


class Capture:
    """Gathers the chunks of one generation. Nothing is ever filled in: what is missing makes the turn untrainable."""

    def __init__(self, started: Started, vocab_size: int) -> None:
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.version = ""
        self.finish_reason: FinishReason | None = None
        self.first_token_at: float | None = None
        self.slot = started.turn.slot
        self._started = started
        self._vocab_size = vocab_size
        self._spans: list[VersionSpan] = []
        self._experts = b""
        self._reason = ""

    def sampled_with(self, sampling: Sampling) -> None:
        """A policy that was cut by top-p or top-k is not the one that is trained: its turns are stored, not trained."""
        if sampling.top_p < 1 or sampling.top_k > 0:
            self._fault(f"sampled with top_p {sampling.top_p:g} and top_k {sampling.top_k}")

    def take(self, chunk: GenerateChunk) -> None:
        """Add a chunk."""
        if chunk.ids:
            if self.first_token_at is None:
                self.first_token_at = time.time()
            if not self._spans or self._spans[-1].version != chunk.version:
                self._spans.append(VersionSpan(len(self.ids), chunk.version))
            if len(chunk.ids) != len(chunk.logprobs):
                self._fault(f"the engine gave {len(chunk.logprobs)} log-probabilities for {len(chunk.ids)} ids")
            elif not all(math.isfinite(value) and value < _ROUNDING for value in chunk.logprobs):
                self._fault("the engine gave a log-probability that is not a finite number of at most 0")
            if not chunk.version:
                self._fault("the engine named no version")
            if min(chunk.ids) < 0 or max(chunk.ids) >= self._vocab_size:
                self._fault(f"the engine gave an id outside the vocabulary of {self._vocab_size}")
        self.ids += chunk.ids
        self.logprobs += chunk.logprobs
        self.version = chunk.version
        self.finish_reason = chunk.finish_reason
        if chunk.experts:
            self._take_experts(chunk.experts)

    def stop(self) -> None:
        """The client's stop text came: the generation ends here, whole."""
        self.finish_reason = "stop"

    def cut(self, reason: str) -> None:
        """The generation was cut: what there is of it is kept, and is not trained on."""
        self.finish_reason = "cancelled"
        self._fault(reason)

    def finished(self) -> Turn:
        """The turn as it is to be stored."""
        if not self.ids:
            self._fault("no token was sampled")
        if self.finish_reason is None:
            self._fault("the engine ended without a reason")
        if self.finish_reason == "cancelled":
            self._fault("the engine cancelled the generation")
        plan = self._started.plan
        trace = TurnTrace(
            context_len=plan.context_len,
            prompt_ids=plan.prompt_ids,
            ids=self.ids,
            logprobs=self.logprobs,
            experts=self._experts,
            experts_start=self._started.experts_from,
        )
        return replace(
            self._started.turn,
            slot=self.slot,
            versions=tuple(self._spans),
            finish_reason=self.finish_reason,
            first_token_at=self.first_token_at,
            ended_at=time.time(),
            trainable=not self._reason,
            untrainable_reason=self._reason,
            trace=trace if self.ids else None,
        )

    def experts_until(self) -> int:
        """Expert choices are held for segment positions before this one, once this turn is recorded."""
        whole = self.finish_reason in ("stop", "length") and not self._reason
        # A dense model has none, and a stop text ends a generation before they are sent: ask again from there.
        return self._started.experts_from + self._rows() if self._experts and whole else self._started.experts_from

    def _rows(self) -> int:
        return len(self._started.plan.ids) + len(self.ids) - 1 - self._started.experts_from

    def _take_experts(self, experts: bytes) -> None:
        rows = self._rows()
        if rows <= 0 or len(experts) % (2 * rows):
            self._fault(f"the engine gave {len(experts)} bytes of experts for {rows} positions")
        self._experts = experts

    def _fault(self, reason: str) -> None:
        self._reason = self._reason or reason
