"""The gate: passed, blocked, or inconclusive."""

import random

from ostinato.evals import GateConfig, judge_gate
from ostinato.records import EpisodeResult, Outcome


def results(share: float, tasks: int, seed: int, error: str = "") -> list[EpisodeResult]:
    """One episode for each task, solved with probability `share`."""
    rng = random.Random(seed)
    return [
        EpisodeResult(
            task_id=f"t{index}",
            version="v-1",
            session_id=f"s{seed}-{index}",
            solved=rng.random() < share,
            edited=True,
            outcome=Outcome.KEPT,
            turns=3,
            tool_calls=3,
            invalid_calls=0,
            tokens=80,
            seconds=1.0,
            error=error,
        )
        for index in range(tasks)
    ]


def test_better_passes() -> None:
    """Ten points more on 300 tasks."""
    answer = judge_gate(results(0.4, 300, 1), results(0.5, 300, 2), GateConfig())
    assert answer.answer == "passed"
    assert answer.low > -0.08


def test_much_worse_is_blocked_by_its_interval() -> None:
    """Thirty points less on 150 tasks: the whole interval lies below the margin."""
    answer = judge_gate(results(0.5, 150, 1), results(0.2, 150, 2), GateConfig())
    assert answer.answer == "blocked"
    assert answer.high < -0.08


def test_little_evidence_is_inconclusive() -> None:
    """Twenty tasks decide nothing about equal sides, and neither do none."""
    assert judge_gate(results(0.5, 20, 1), results(0.5, 20, 2), GateConfig()).answer == "inconclusive"
    assert judge_gate([], [], GateConfig()).answer == "inconclusive"


def test_repeats_are_averaged_within_their_task() -> None:
    """Running each task three times does not make three tasks."""
    release = results(0.4, 100, 1) + results(0.4, 100, 2) + results(0.4, 100, 3)
    candidate = results(0.4, 100, 4) + results(0.4, 100, 5) + results(0.4, 100, 6)
    assert judge_gate(release, candidate, GateConfig()).tasks == 100


def test_episodes_that_our_side_broke_are_left_out() -> None:
    """A dead sandbox is no failure of the candidate."""
    broken = results(0.0, 50, 9, error="sandbox")
    assert judge_gate(results(0.5, 50, 1), broken, GateConfig()).tasks == 0
