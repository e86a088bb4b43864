"""The gate: may a candidate meet people? Decided on paired bench results, against a non-inferiority margin.

The unit is the task (its repeats are averaged), the figure is the difference of solved shares, candidate minus release.
Looks are few and planned, so the error is split evenly over them (Bonferroni) instead of paying for an always-valid
sequence. Margin and looks stand in `docs/decisions/0002-experiment.md`.
"""

import math
from collections import defaultdict
from collections.abc import Iterable
from statistics import NormalDist
from typing import Literal

from msgspec import Struct

from ostinato.records import EpisodeResult

GateAnswer = Literal["passed", "blocked", "inconclusive"]


class GateConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """`margin`: the loss in solved share that is tolerated. `alpha`: one-sided error over all looks. `repeats`: how
    often each task runs for one look. `looks`: how many looks there may be."""

    margin: float = 0.05
    alpha: float = 0.05
    repeats: int = 1
    looks: int = 3


class GateResult(Struct, frozen=True):
    """The answer with the figures it rests on; bounds are one-sided at alpha / looks each."""

    answer: GateAnswer
    reason: str
    release: float
    candidate: float
    difference: float
    low: float
    high: float
    tasks: int


def judge_gate(release: Iterable[EpisodeResult], candidate: Iterable[EpisodeResult], config: GateConfig) -> GateResult:
    """Compare on the tasks that both ran. Blocked only if the whole interval lies below the margin; passed only if it
    lies above; else inconclusive, which is a want of evidence and is not admitted either."""
    ours, theirs = _task_means(candidate), _task_means(release)
    tasks = sorted(ours.keys() & theirs.keys())
    if len(tasks) < 2:
        reason = f"only {len(tasks)} tasks were run by both"
        return GateResult("inconclusive", reason, 0.0, 0.0, 0.0, -1.0, 1.0, len(tasks))
    differences = [ours[task] - theirs[task] for task in tasks]
    mean = math.fsum(differences) / len(tasks)
    variance = math.fsum((value - mean) ** 2 for value in differences) / (len(tasks) - 1)
    half = NormalDist().inv_cdf(1 - config.alpha / config.looks) * math.sqrt(variance / len(tasks))
    low, high = mean - half, mean + half
    answer: GateAnswer = "passed" if low > -config.margin else "blocked" if high < -config.margin else "inconclusive"
    place = {"passed": "above", "blocked": "below", "inconclusive": "across"}[answer]
    reason = f"bench {mean:+.1%} [{low:+.1%}, {high:+.1%}] lies {place} the margin of {-config.margin:+.1%}"
    means = [math.fsum(values[task] for task in tasks) / len(tasks) for values in (theirs, ours)]
    return GateResult(answer, reason, means[0], means[1], mean, low, high, len(tasks))


def _task_means(results: Iterable[EpisodeResult]) -> dict[str, float]:
    """Solved share by task. An episode that failed at a boundary of ours (a dead sandbox, say) is left out."""
    values: dict[str, list[float]] = defaultdict(list)
    for result in results:
        if not result.error:
            values[result.task_id].append(float(result.solved))
    return {task: sum(numbers) / len(numbers) for task, numbers in values.items()}
