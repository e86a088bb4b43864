"""What is known of each version: bench, live figures with intervals, and its verdict."""

import math
from collections import defaultdict
from collections.abc import Sequence

from msgspec import Struct

from ostinato.records import Experiment
from ostinato.rewards import live_metrics
from ostinato.store import Ledger, SessionResult

LIVE = ("persistence", "dissatisfied", "tokens", "tool_calls")


class Figure(Struct, frozen=True):
    """A mean with its 95% interval, over `n` persons (the unit), or tasks for the bench."""

    mean: float
    low: float
    high: float
    n: int


class VersionRow(Struct, frozen=True):
    """One version. `sessions` were served by it alone; `bench` is the share of bench tasks solved."""

    version: str
    parent: str
    kind: str
    stored_bytes: int
    cycle: int
    verdict: str
    reason: str
    sessions: int
    bench: Figure | None
    live: dict[str, Figure]


def version_rows(ledger: Ledger) -> list[VersionRow]:
    """One row for each published version, oldest first."""
    experiments = {experiment.candidate: experiment for experiment in ledger.experiments()}
    released = {release.version for release in ledger.releases()}
    by_version: dict[str, list[SessionResult]] = defaultdict(list)
    for result in ledger.results():
        by_version[result.version].append(result)
    rows: list[VersionRow] = []
    for version in ledger.versions():
        results = by_version[version.version]
        experiment = experiments.get(version.version)
        rows.append(
            VersionRow(
                version=version.version,
                parent=version.parent or "",
                kind=version.kind,
                stored_bytes=version.stored_bytes,
                cycle=experiment.cycle if experiment else 0,
                verdict=_verdict(experiment, first=version.version in released),
                reason=experiment.reason if experiment else "",
                sessions=len(results),
                bench=_bench(ledger, version.version),
                live=live_figures(results),
            )
        )
    return rows


def live_figures(results: Sequence[SessionResult]) -> dict[str, Figure]:
    """Means over persons, with intervals by the normal approximation; the person is the unit."""
    figures: dict[str, Figure] = {}
    for name in LIVE:
        persons: dict[str, list[float]] = defaultdict(list)
        for result in results:
            value = live_metrics(result).get(name)
            if value is not None:
                persons[result.person].append(value)
        if persons:
            figures[name] = figure([sum(values) / len(values) for values in persons.values()])
    return figures


def figure(values: Sequence[float]) -> Figure:
    """The mean of independent values with its 95% interval."""
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return Figure(mean, -math.inf, math.inf, len(values))
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    half = 1.96 * math.sqrt(variance / len(values))
    return Figure(mean, mean - half, mean + half, len(values))


def accounts_line(ledger: Ledger) -> str:
    """`sessions = open + ...`, with every fate that occurs."""
    accounts = ledger.accounts("live")
    parts = [f"{accounts.open} open"] + [f"{number} {fate}" for fate, number in accounts.fates.items() if number]
    balance = "balanced" if accounts.balanced else "DOES NOT BALANCE"
    return f"{accounts.sessions} sessions = {' + '.join(parts)} ({balance})"


def _verdict(experiment: Experiment | None, *, first: bool) -> str:
    if experiment is not None:
        return experiment.verdict
    return "first release" if first else "not offered yet"


def _bench(ledger: Ledger, version: str) -> Figure | None:
    tasks: dict[str, list[float]] = defaultdict(list)
    for result in ledger.episodes(version=version):
        if not result.error:
            tasks[result.task_id].append(float(result.solved))
    return figure([sum(values) / len(values) for values in tasks.values()]) if tasks else None
