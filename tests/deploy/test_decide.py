"""The verdict on an experiment."""

import random

from ostinato.deploy import ExperimentConfig, Observation, decide
from ostinato.records import CANDIDATE, CONTROL, Arm

CONFIG = ExperimentConfig(horizon=1200)


def observe(
    control: float, candidate: float, persons: int, rng: random.Random, tokens: float = 80
) -> list[Observation]:
    """Three sessions for each person, kept with the given probability of the arm."""
    rows: list[Observation] = []
    for index in range(persons):
        arm: Arm = CANDIDATE if index % 2 else CONTROL
        for _ in range(3):
            kept = float(rng.random() < (candidate if arm == CANDIDATE else control))
            spent = rng.gauss(tokens if arm == CANDIDATE else 80, 10)
            rows.append(Observation(f"p{index}", arm, {"persistence": kept, "dissatisfied": 1 - kept, "tokens": spent}))
    return rows


def test_a_better_candidate_is_promoted() -> None:
    """Twenty points more, 400 persons."""
    decision = decide(observe(0.3, 0.5, 400, random.Random(1)), CONFIG)
    assert decision.verdict == "promoted"
    assert decision.intervals["persistence"].low > -0.05


def test_a_worse_candidate_is_stopped() -> None:
    """Twenty points less, 400 persons; the reason names the metric."""
    decision = decide(observe(0.4, 0.2, 400, random.Random(1)), CONFIG)
    assert decision.verdict == "stopped"
    assert "persistence" in decision.reason


def test_a_wordier_candidate_is_not_promoted() -> None:
    """Better in every other way, but half as many tokens again."""
    decision = decide(observe(0.3, 0.5, 400, random.Random(1), tokens=120), CONFIG)
    assert decision.verdict == "stopped"
    assert "tokens" in decision.reason


def test_burn_in_comes_first() -> None:
    """However large the difference, fewer persons than the burn-in decide nothing."""
    decision = decide(observe(0.0, 1.0, 40, random.Random(1)), CONFIG)
    assert decision.verdict == "running"
    assert "burn-in" in decision.reason


def test_the_horizon_ends_it_and_says_what_is_missing() -> None:
    """Equal arms and little data end undecided, with the number of missing sessions in the sentence."""
    rows = observe(0.4, 0.4, 100, random.Random(5))
    decision = decide(rows, ExperimentConfig(horizon=300))
    assert decision.verdict == "undecided"
    assert "more sessions" in decision.reason
    assert decide(rows, ExperimentConfig(horizon=10_000)).verdict == "running"


def test_persons_count_once() -> None:
    """One person's flood of sessions weighs as much as another's single one."""
    rng = random.Random(2)
    rows = observe(0.4, 0.4, 100, rng)
    flood = [Observation("p1", CANDIDATE, {"persistence": 1.0, "dissatisfied": 0.0, "tokens": 80.0})] * 5000
    before, after = (decide(sample, CONFIG).intervals["persistence"].candidate for sample in (rows, rows + flood))
    assert abs(after - before) <= 1 / 50


def test_sessions_without_a_metric_are_left_out_of_it() -> None:
    """A session in which no edit was wanted says nothing about persistence, but counts for tokens."""
    rows = [Observation(f"p{index}", CONTROL if index % 2 else CANDIDATE, {"tokens": 10.0}) for index in range(100)]
    decision = decide(rows, CONFIG)
    assert decision.intervals["persistence"].persons == 0
    assert decision.intervals["tokens"].persons == 100
    assert decision.verdict == "running"
