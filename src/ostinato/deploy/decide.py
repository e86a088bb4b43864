"""The decision on a running experiment: promoted, stopped, undecided, or go on.

Margins, metrics, horizon and burn-in stand in `docs/decisions/0002-experiment.md`.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from ostinato.deploy.sequences import Interval, compare, persons_needed
from ostinato.records import CANDIDATE, CONTROL, Arm, Verdict


class Metric(Struct, frozen=True):
    """One figure that is watched. `margin` is what a candidate may lose, in the metric's unit; `relative` margins are
    a share of the control's mean."""

    name: str
    better: Literal["higher", "lower"]
    margin: float
    relative: bool = False


METRICS: tuple[Metric, ...] = (
    Metric("persistence", "higher", 0.05),
    Metric("dissatisfied", "lower", 0.05),
    Metric("tokens", "lower", 0.20, relative=True),
)


class ExperimentConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """How long to watch. `burn_in` persons in both arms before the first decision, `planned` persons for which the
    intervals are tightest, `horizon` sessions at which an experiment ends undecided, `alpha` the one-sided error."""

    burn_in: int = 60
    planned: int = 600
    horizon: int = 2000
    alpha: float = 0.05


class Observation(Struct, frozen=True):
    """One finished session in an experiment. A metric that does not apply to it is absent."""

    person: str
    arm: Arm
    metrics: dict[str, float]


class Decision(Struct, frozen=True):
    """The verdict so far, one sentence that says why, and the interval of each metric."""

    verdict: Verdict
    reason: str
    intervals: dict[str, Interval]
    sessions: int


def decide(observations: Iterable[Observation], config: ExperimentConfig) -> Decision:
    """Look at an experiment. Persons are the unit: each counts once, with the mean of their sessions.

    Promoted: every metric's bound excludes a loss of more than its margin. Stopped: some metric's whole interval lies
    on the bad side (of a relative metric: beyond its margin; error shared over the metrics). Undecided: the horizon
    passed without either."""
    rows = list(observations)
    intervals = {metric.name: _interval(metric, rows, config) for metric in METRICS}
    persons = min(interval.persons for interval in intervals.values())
    if persons < config.burn_in:
        waiting = f"burn-in: {persons} of {config.burn_in} persons"
        return Decision(_at_horizon(rows, config), waiting, intervals, len(rows))
    open_metrics = [metric for metric in METRICS if not _safe(metric, intervals[metric.name])]
    if not open_metrics:
        return Decision("promoted", "no metric is worse by more than its margin", intervals, len(rows))
    strict = {metric.name: _interval(metric, rows, config, share_of_alpha=len(METRICS)) for metric in METRICS}
    worse = [metric for metric in METRICS if _harmful(metric, strict[metric.name])]
    if worse:
        return Decision("stopped", f"{_describe(worse[0], intervals)} is worse", intervals, len(rows))
    missing = _missing_sentence(open_metrics, intervals, rows, config)
    return Decision(_at_horizon(rows, config), missing, intervals, len(rows))


def _at_horizon(rows: list[Observation], config: ExperimentConfig) -> Verdict:
    return "undecided" if len(rows) >= config.horizon else "running"


def _interval(
    metric: Metric, rows: list[Observation], config: ExperimentConfig, *, share_of_alpha: int = 1
) -> Interval:
    means = _person_means(metric.name, rows)
    alpha = config.alpha / share_of_alpha
    return compare(means[CONTROL], means[CANDIDATE], planned=config.planned, alpha=alpha)


def _person_means(name: str, rows: list[Observation]) -> dict[Arm, list[float]]:
    values: dict[tuple[Arm, str], list[float]] = defaultdict(list)
    for row in rows:
        if name in row.metrics:
            values[row.arm, row.person].append(row.metrics[name])
    arms: dict[Arm, list[float]] = {CONTROL: [], CANDIDATE: []}
    for (arm, _), numbers in values.items():
        arms[arm].append(sum(numbers) / len(numbers))
    return arms


def _margin(metric: Metric, interval: Interval) -> float:
    return metric.margin * interval.control if metric.relative else metric.margin


def _gain_bounds(metric: Metric, interval: Interval) -> tuple[float, float]:
    """The interval turned so that positive means better."""
    return (interval.low, interval.high) if metric.better == "higher" else (-interval.high, -interval.low)


def _safe(metric: Metric, interval: Interval) -> bool:
    return _gain_bounds(metric, interval)[0] > -_margin(metric, interval)


def _harmful(metric: Metric, interval: Interval) -> bool:
    """Whether the whole interval lies on the bad side: of nothing for what people feel, of the margin for effort."""
    return _gain_bounds(metric, interval)[1] < (-_margin(metric, interval) if metric.relative else 0.0)


def _describe(metric: Metric, intervals: dict[str, Interval]) -> str:
    interval = intervals[metric.name]
    return f"{metric.name} {interval.control:.3g} -> {interval.candidate:.3g}"


def _missing_sentence(
    open_metrics: list[Metric], intervals: dict[str, Interval], rows: list[Observation], config: ExperimentConfig
) -> str:
    """In one sentence, how many sessions are missing."""
    per_person = len(rows) / max(len({row.person for row in rows}), 1)
    needs: list[int] = []
    for metric in open_metrics:
        interval = intervals[metric.name]
        gain = interval.difference if metric.better == "higher" else -interval.difference
        persons = persons_needed(interval, gain + _margin(metric, interval), planned=config.planned, alpha=config.alpha)
        if persons is None:
            return f"{_describe(metric, intervals)}: more sessions would not show it to be within its margin"
        needs.append(persons)
    missing = max(round((max(needs) - min(i.persons for i in intervals.values())) * per_person), 1)
    names = ", ".join(metric.name for metric in open_metrics)
    return f"about {missing} more sessions are needed to decide {names}"
