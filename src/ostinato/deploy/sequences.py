"""Always-valid intervals for the difference of two arms, with the person as the unit.

Source: Waudby-Smith, Arbour, Sinha, Kennedy, Ramdas, "Time-uniform central limit theory and asymptotic confidence
sequences" (2021, Annals of Statistics 2024): the Robbins normal-mixture boundary, and its use on randomised
experiments through augmented inverse-propensity scores. What differs here: each arm's mean is the only regression that
the augmentation uses, so the estimate is the plain difference of means and its variance s1^2/p + s0^2/(1-p).
"""

import math
from collections.abc import Sequence

from msgspec import Struct


class Interval(Struct, frozen=True):
    """Candidate minus control: the estimate, and bounds that hold at every look at once. `persons` in both arms."""

    control: float
    candidate: float
    difference: float
    low: float
    high: float
    persons: int
    deviation: float


def mixture_rho(persons: int, alpha: float) -> float:
    """The mixture parameter that makes the boundary tightest at `persons` (the paper's equation for rho)."""
    log_term = -2 * math.log(alpha)
    return math.sqrt((log_term + math.log(log_term + 1)) / persons)


def boundary(persons: int, rho: float, alpha: float) -> float:
    """Half-width of the one-sided sequence, in standard deviations of the score, at error `alpha` over all times."""
    scaled = persons * rho**2 + 1
    return math.sqrt(2 * scaled / (persons * rho) ** 2 * math.log(1 + math.sqrt(scaled) / (2 * alpha)))


def compare(
    control: Sequence[float], candidate: Sequence[float], *, planned: int, alpha: float = 0.05, share: float = 0.5
) -> Interval:
    """The always-valid interval of mean(candidate) - mean(control), each bound one-sided at `alpha`.

    One number for each person. `planned` is the number of persons for which the boundary is tightest, `share` the
    probability of the candidate arm. With fewer than two persons in an arm the interval is the whole line."""
    persons = len(control) + len(candidate)
    if min(len(control), len(candidate)) < 2:
        return Interval(_mean(control), _mean(candidate), 0.0, -math.inf, math.inf, persons, math.inf)
    means = _mean(control), _mean(candidate)
    deviation = math.sqrt(_variance(candidate) / share + _variance(control) / (1 - share))
    half = deviation * boundary(persons, mixture_rho(planned, alpha), alpha)
    difference = means[1] - means[0]
    return Interval(means[0], means[1], difference, difference - half, difference + half, persons, deviation)


def persons_needed(interval: Interval, slack: float, *, planned: int, alpha: float = 0.05) -> int | None:
    """How many persons bring the half-width below `slack`, if the deviation stays; None if `slack` is not positive."""
    if slack <= 0 or not math.isfinite(interval.deviation):
        return None
    rho = mixture_rho(planned, alpha)
    persons = max(interval.persons, 2)
    while interval.deviation * boundary(persons, rho, alpha) > slack:
        persons = math.ceil(persons * 1.05)
    return persons


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0


def _variance(values: Sequence[float]) -> float:
    mean = _mean(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
