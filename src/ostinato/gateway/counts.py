"""Counters: kept in memory, written to the ledger in short intervals, shown at /metrics."""

from collections import Counter, deque

from ostinato.store import AsyncWriter, Transaction

_SAMPLES = 1024


class Counts:
    """What happened at this gateway. `totals` counts since its start."""

    def __init__(self) -> None:
        self.totals: Counter[str] = Counter()
        self._unwritten: Counter[str] = Counter()
        self._overhead: deque[float] = deque(maxlen=_SAMPLES)
        self._overhead_sum = 0.0
        self._overhead_count = 0

    def add(self, name: str, by: int = 1) -> None:
        """Count something; it reaches the ledger with the next `flush`."""
        self.totals[name] += by
        self._unwritten[name] += by

    def overhead(self, seconds: float) -> None:
        """Note what one chat request took beside the engine."""
        self._overhead.append(seconds)
        self._overhead_sum += seconds
        self._overhead_count += 1

    async def flush(self, writer: AsyncWriter) -> None:
        """Make what was counted since the last flush durable. Where that fails, it stays for the next flush."""
        if not self._unwritten:
            return
        batch, self._unwritten = self._unwritten, Counter()

        def write(tx: Transaction) -> None:
            for name, by in batch.items():
                tx.count(name, by)

        try:
            await writer.submit(write)
        except BaseException:
            self._unwritten.update(batch)
            raise

    def exposition(self) -> str:
        """The counters in Prometheus' text format, and a summary of the overhead over the last requests."""
        lines = ["# TYPE ostinato_events_total counter"]
        lines += [f'ostinato_events_total{{name="{name}"}} {value}' for name, value in sorted(self.totals.items())]
        lines.append("# TYPE ostinato_chat_overhead_seconds summary")
        ordered = sorted(self._overhead)
        for quantile in (0.5, 0.9, 0.99):
            if ordered:
                value = ordered[min(int(quantile * len(ordered)), len(ordered) - 1)]
                lines.append(f'ostinato_chat_overhead_seconds{{quantile="{quantile}"}} {value:.6f}')
        lines.append(f"ostinato_chat_overhead_seconds_sum {self._overhead_sum:.6f}")
        lines.append(f"ostinato_chat_overhead_seconds_count {self._overhead_count}")
        return "\n".join(lines) + "\n"
