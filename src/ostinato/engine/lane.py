"""One slot's weights and the sequences that run on them."""

from collections import deque

from ostinato.engine.kv import Rows, Zone
from ostinato.engine.layout import Weights
from ostinato.engine.prefix import PrefixCache
from ostinato.engine.runner import Batch, Piece
from ostinato.engine.sequence import Sequence


class Lane:
    """`waiting` sequences have no row yet; the prompts of `filling` ones are being computed; `running` ones decode, the
    n-th of them in zone slot n."""

    def __init__(self, slot: str, weights: Weights, zone: Zone) -> None:
        self.slot, self.weights, self.zone = slot, weights, zone
        self.waiting: deque[Sequence] = deque()
        self.filling: list[Sequence] = []
        self.running: list[Sequence] = []

    @property
    def active(self) -> int:
        """Sequences that hold a row."""
        return len(self.filling) + len(self.running)

    @property
    def busy(self) -> bool:
        """Whether there is anything left to do."""
        return bool(self.waiting or self.filling or self.running)

    def swap(self, weights: Weights, cache: PrefixCache) -> None:
        """Put other weights in. What decodes goes on with the keys and values that it has; prompts that are not done
        begin anew, so that an answer whose tokens all carry one version was computed by that version alone."""
        for sequence in self.running:
            sequence.mixed = True
        for sequence in reversed(self.filling):
            cache.release(sequence.row, self.weights.version, None)
            sequence.row, sequence.computed = -1, 0
            self.waiting.appendleft(sequence)
        self.filling = []
        self.weights = weights

    def admit(self, cache: PrefixCache, rows: Rows) -> None:
        """Give rows to waiting sequences while there are any, in order."""
        while self.waiting and self.active < self.zone.slots:
            sequence = self.waiting[0]
            lease = cache.acquire(self.weights.version, sequence.ids)
            if lease is None:
                return
            if lease.copy_from is not None:
                rows.copy(lease.copy_from, lease.row, lease.reused)
            sequence.row, sequence.computed = lease.row, lease.reused
            self.filling.append(self.waiting.popleft())

    def plan(self, budget: int) -> tuple[Batch, list[Sequence]]:
        """The next pass: a token for all that run, and prompt pieces of at most `budget` tokens together. Also the
        sequences that this pass gives logits to, in the order of `wanted`."""
        tokens = [sequence.ids[-1] for sequence in self.running]
        positions = [sequence.computed for sequence in self.running]
        wanted = list(range(len(tokens)))
        ready = list(self.running)
        pieces = []
        for sequence in self.filling:
            count = min(sequence.prompt - sequence.computed, budget)
            if count == 0:
                break
            budget -= count
            start, end = sequence.computed, sequence.computed + count
            pieces.append(Piece(sequence.row, start, count))
            tokens += sequence.ids[start:end]
            positions += range(start, end)
            if end == sequence.prompt:
                wanted.append(len(tokens) - 1)
                ready.append(sequence)
        return Batch(tokens, positions, len(self.running), pieces, wanted), ready

    def advance(self, batch: Batch) -> list[int]:
        """Note what a pass computed. Returns the row of each of its tokens."""
        owners = []
        for sequence in self.running:
            sequence.computed += 1
            owners.append(sequence.row)
        for sequence, piece in zip(self.filling, batch.pieces, strict=False):
            sequence.computed += piece.length
            owners += [piece.row] * piece.length
        return owners

    def start_decoding(self, sequence: Sequence, rows: Rows) -> None:
        """Move a sequence whose prompt is done into the zone."""
        self.filling.remove(sequence)
        self.zone.fill(len(self.running), rows, sequence.row, sequence.computed)
        sequence.zone_start = sequence.computed
        self.running.append(sequence)

    def leave(self, sequence: Sequence, rows: Rows) -> None:
        """Take a sequence out; what it computed in the zone goes back to its row, and the last one closes the gap."""
        if sequence in self.filling:
            self.filling.remove(sequence)
            return
        slot = self.running.index(sequence)
        if not sequence.mixed:
            self.zone.spill(slot, rows, sequence.row, sequence.zone_start, sequence.computed)
        last = self.running.pop()
        if last is not sequence:
            self.zone.move(len(self.running), slot, last.computed)
            self.running[slot] = last
