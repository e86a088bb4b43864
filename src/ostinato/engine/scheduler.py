"""Continuous batching: one thread that admits sequences, runs one pass for each slot's weights, and lets finished ones
go, over and over. Iteration-level scheduling as in Orca (OSDI 2022); weights change between two passes only.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

import numpy as np

from ostinato.engine.config import EngineConfig
from ostinato.engine.kv import Rows, Zone, row_bytes
from ostinato.engine.lane import Lane
from ostinato.engine.layout import Weights
from ostinato.engine.prefix import PrefixCache
from ostinato.engine.runner import Batch, Pass, run_pass
from ostinato.engine.sampling import draw
from ostinato.engine.sequence import Sequence, Sink
from ostinato.model import ModelConfig
from ostinato.records import GenerateRequest, MissingError, SlotStatus, UnavailableError

T = TypeVar("T")
log = logging.getLogger("ostinato.engine")


class Scheduler:
    """Start it with `start()`; `submit`, `call` and `cancel` may be used from any thread."""

    def __init__(self, model: ModelConfig, config: EngineConfig) -> None:
        self.model, self.config = model, config
        self.max_len = min(config.max_len, model.max_position_embeddings)
        fits = config.kv_bytes // row_bytes(model, self.max_len)
        self.zone_slots = max(1, min(config.running, fits // 8))
        # Three slots' zones come out of the same memory.
        count = max(self.zone_slots, min(config.rows, fits - 3 * self.zone_slots))
        self.rows = Rows(model, count, self.max_len, config.device)
        self.cache = PrefixCache(count)
        self.lanes: dict[str, Lane] = {}
        self.draining: list[Lane] = []
        self.steps = self.drawn = self.prefilled = self.swaps = self.failures = 0
        self._incoming: deque[tuple[Lane, Sequence]] = deque()
        self._commands: deque[Callable[[], None]] = deque()
        self._cancelled: deque[Sequence] = deque()
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; whatever is under way fails with `UnavailableError`."""
        self._stopping = True
        self._wake.set()
        self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether the thread works."""
        return self._thread.is_alive()

    def submit(self, request: GenerateRequest, sink: Sink) -> Sequence:
        """Queue a request, already checked. Raises `MissingError` when nothing is loaded in its slot."""
        lane = self._lane(request.slot)
        sequence = Sequence(request, sink, self.max_len)
        self._incoming.append((lane, sequence))
        self._wake.set()
        return sequence

    def cancel(self, sequence: Sequence) -> None:
        """Stop a sequence; its sink gets a last chunk `cancelled` unless it had finished."""
        self._cancelled.append(sequence)
        self._wake.set()

    def call(self, action: Callable[[], T]) -> Future[T]:
        """Run `action` in the scheduler's thread between two steps."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(action())
            except Exception as error:
                future.set_exception(error)

        self._commands.append(run)
        self._wake.set()
        return future

    def put(self, slot: str, weights: Weights) -> None:
        """Load or swap a slot's weights. Only by `call`."""
        lane = self.lanes.get(slot)
        if lane is None:
            zone = Zone(self.model, self.zone_slots, self.max_len, self.config.device)
            self.lanes = self.lanes | {slot: Lane(slot, weights, zone)}
        else:
            lane.swap(weights, self.cache)
            self.swaps += 1
        self._forget_versions()

    def drop(self, slot: str) -> None:
        """Empty a slot; what it runs finishes on the weights that it holds. Only by `call`."""
        lane = self._lane(slot)
        self.draining.append(lane)
        self.lanes = {name: other for name, other in self.lanes.items() if other is not lane}
        self._forget_versions()

    def status(self) -> list[SlotStatus]:
        """What each slot holds."""
        return [SlotStatus(lane.slot, lane.weights.version, lane.active) for lane in self.lanes.values()]

    def stats(self) -> dict[str, int]:
        """Counts since the start, and what is there now."""
        lanes = [*self.lanes.values(), *self.draining]
        return {
            "steps": self.steps,
            "drawn_tokens": self.drawn,
            "prefilled_tokens": self.prefilled,
            "swaps": self.swaps,
            "failed_requests": self.failures,
            "running": sum(len(lane.running) for lane in lanes),
            "filling": sum(len(lane.filling) for lane in lanes),
            "waiting": sum(len(lane.waiting) for lane in lanes) + len(self._incoming),
            "prefix_hits": self.cache.hits,
            "prefix_misses": self.cache.misses,
            "prefix_tokens_reused": self.cache.tokens_reused,
            "prefix_evictions": self.cache.evictions,
            "rows_kept": self.cache.kept,
            "rows_available": self.cache.available,
        }

    def step(self) -> bool:
        """One turn: settle what came from outside, then one pass for each slot with work. False when idle."""
        self._settle()
        busy = [lane for lane in (*self.lanes.values(), *self.draining) if lane.busy]
        for lane in busy:
            try:
                lane.admit(self.cache, self.rows)
                if lane.active:
                    batch, ready = lane.plan(self.config.prefill_tokens)
                    self._absorb(lane, batch, ready, run_pass(lane.weights, self.rows, lane.zone, batch))
            except Exception as error:
                self._fail(lane, error)
        self.draining = [lane for lane in self.draining if lane.busy]
        self.steps += bool(busy)
        return bool(busy)

    def _run(self) -> None:
        while not self._stopping:
            if not self.step():
                self._wake.wait()
            self._wake.clear()
        self._settle()
        for lane in (*self.lanes.values(), *self.draining):
            self._fail(lane, UnavailableError("The engine is shutting down.", hint="Send the request again later."))

    def _settle(self) -> None:
        """Take in commands, new sequences and cancellations."""
        while self._commands:
            self._commands.popleft()()
        while self._incoming:
            lane, sequence = self._incoming.popleft()
            lane.waiting.append(sequence)
            if lane is not self.lanes.get(lane.slot) and lane not in self.draining:
                self.draining.append(lane)
        while self._cancelled:
            sequence = self._cancelled.popleft()
            for lane in (*self.lanes.values(), *self.draining):
                if sequence in lane.waiting:
                    lane.waiting.remove(sequence)
                    sequence.close("cancelled", lane.weights.version, b"")
                elif sequence in lane.filling or sequence in lane.running:
                    sequence.finish = "cancelled"
                    self._retire(lane, sequence)

    def _absorb(self, lane: Lane, batch: Batch, ready: list[Sequence], result: Pass) -> None:
        """Take a pass's results: note experts, draw tokens, let finished sequences go, start those whose prompt is
        done, send chunks that are due."""
        owners = lane.advance(batch)
        if self.model.is_moe:
            self.rows.experts[np.array(owners), np.array(batch.positions)] = result.experts_NLk
        self.prefilled += len(batch.tokens) - batch.decoding
        if not ready:
            return
        drawn = draw(result.logits_MV, [sequence.drawer for sequence in ready])
        self.drawn += len(ready)
        for sequence, token, logprob in zip(ready, drawn.ids, drawn.logprobs, strict=True):
            sequence.take(token, logprob, lane.weights.version)
        for sequence in ready:
            if sequence.finish:
                self._retire(lane, sequence)
        now = time.monotonic()
        for sequence in ready[batch.decoding :]:
            if not sequence.finish:
                lane.start_decoding(sequence, self.rows)
        for sequence in lane.running:
            if now - sequence.sent_at >= self.config.flush_s:
                sequence.flush(now)

    def _retire(self, lane: Lane, sequence: Sequence) -> None:
        """A sequence has finished or was cancelled: its row is kept for re-use, its last chunk is sent."""
        assert sequence.finish is not None
        lane.leave(sequence, self.rows)
        experts = self.rows.experts[sequence.row, sequence.request.experts_from : sequence.computed].tobytes()
        kept = None if sequence.mixed else sequence.ids[: sequence.computed]
        self.cache.release(sequence.row, lane.weights.version, kept)
        sequence.close(sequence.finish, lane.weights.version, experts)

    def _fail(self, lane: Lane, error: Exception) -> None:
        """A pass went wrong: its sequences fail, the engine lives on."""
        if not isinstance(error, UnavailableError):
            log.error("A pass on slot %s (%s) failed.", lane.slot, lane.weights.version, exc_info=error)
            error = UnavailableError(
                f"A pass on slot {lane.slot!r} failed: {error!r}.", hint="The engine's log says more."
            )
        for sequence in (*lane.filling, *lane.running):
            self.cache.release(sequence.row, lane.weights.version, None)
        for sequence in (*lane.filling, *lane.running, *lane.waiting):
            self.failures += 1
            sequence.sink(error)
        lane.filling, lane.running = [], []
        lane.waiting.clear()

    def _lane(self, slot: str) -> Lane:
        lane = self.lanes.get(slot)
        if lane is None:
            loaded = ", ".join(sorted(self.lanes)) or "none"
            raise MissingError(
                f"The slot {slot!r} holds no weights; loaded: {loaded}.",
                hint=f'Load it first: PUT /slots/{slot} with {{"version": VERSION}}.',
                param="slot",
            )
        return lane

    def _forget_versions(self) -> None:
        self.cache.keep_only({lane.weights.version for lane in (*self.lanes.values(), *self.draining)})
