"""Always-valid intervals: coverage under watching, and the arithmetic of what is missing."""

import math

import numpy as np
import pytest

from ostinato.deploy import boundary, compare, mixture_rho, persons_needed


def test_the_boundary_is_tightest_where_it_was_tuned() -> None:
    """No other mixture parameter on a grid beats the tuned one by more than a hair."""
    tuned = boundary(400, mixture_rho(400, 0.05), 0.05)
    best = min(boundary(400, rho, 0.05) for rho in np.geomspace(0.01, 1.0, 200))
    assert tuned <= best * 1.03


def test_watching_rarely_gives_a_false_alarm() -> None:
    """Equal arms, looked at after every tenth person: either bound misses zero in at most 2 x 5% of runs."""
    rng = np.random.default_rng(7)
    runs, alarms = 300, 0
    rho = mixture_rho(300, 0.05)
    for _ in range(runs):
        values = rng.binomial(3, np.clip(rng.normal(0.3, 0.08, 400), 0, 1)) / 3
        arms = rng.random(400) < 0.5
        for persons in range(60, 401, 10):
            left, right = values[:persons][~arms[:persons]], values[:persons][arms[:persons]]
            half = math.sqrt(2 * left.var(ddof=1) + 2 * right.var(ddof=1)) * boundary(persons, rho, 0.05)
            if abs(right.mean() - left.mean()) > half:
                alarms += 1
                break
    assert alarms <= 0.1 * runs + 2 * math.sqrt(0.09 * runs)


def test_a_real_difference_is_found() -> None:
    """A difference of one deviation with 200 persons in each arm excludes zero, and the estimate is the plain one."""
    rng = np.random.default_rng(3)
    control, candidate = rng.normal(0, 1, 200), rng.normal(1, 1, 200)
    interval = compare(list(control), list(candidate), planned=400)
    assert interval.low > 0
    assert interval.difference == pytest.approx(candidate.mean() - control.mean())


def test_too_few_persons_decide_nothing() -> None:
    """With one person in an arm the interval is the whole line."""
    interval = compare([1.0], [0.0, 1.0], planned=400)
    assert (interval.low, interval.high) == (-math.inf, math.inf)


def test_persons_needed_shrinks_the_interval_enough() -> None:
    """The number given brings the half-width below the slack, and a non-positive slack has no answer."""
    interval = compare([0.0, 1.0] * 30, [0.0, 1.0] * 30, planned=400)
    persons = persons_needed(interval, 0.15, planned=400)
    assert persons is not None
    assert interval.deviation * boundary(persons, mixture_rho(400, 0.05), 0.05) <= 0.15
    assert persons_needed(interval, 0.0, planned=400) is None
