"""The arithmetic of the benchmarks: pairs, clusters, and the split of a gain."""

import json
import random
from typing import Any

import pytest
from benchmarks.followups import DATA, calibration_error
from benchmarks.learning import SeedResult, by_person, estimate, figures_of, habit_share, mean_of, persistence, pooled
from benchmarks.reporting import Figure, finish

from ostinato.tinyworld import Truth


def truth(visit: int, *, solved: bool, kept: float | None, **more: Any) -> Truth:
    """One session of one of 40 persons."""
    plain: dict[str, Any] = {
        "session_id": "",
        "session": visit,
        "split": "held_out",
        "kind": "bug",
        "tags": {},
        "model": "m",
    }
    plain |= {
        "model": "m",
        "temperature": 1.0,
        "outcome": "kept",
        "dissatisfied": not solved,
        "edited": True,
        "asked": False,
    }
    plain |= {"comment": False, "tokens": 80, "tool_calls": 4, "invalid_calls": 0, "turns": 5, "seconds": 1.0}
    plain |= {"end": "done", "request": "", "reply": ""}
    values = plain | {"person": f"p{visit % 40}", "task_id": f"t{visit}", "solved": solved, "persistence": kept} | more
    return Truth(**values)


def side(share: float, kept_if_solved: float, seed: int) -> list[Truth]:
    """200 sessions: solved with a probability, and then kept with another; one in ten wants no edit."""
    rng = random.Random(seed)
    rows = []
    for visit in range(200):
        good = rng.random() < share
        kept = None if visit % 10 == 0 else float(good and rng.random() < kept_if_solved)
        rows.append(truth(visit, solved=good, kept=kept))
    return rows


def result(seed: int) -> SeedResult:
    """A random seed in which everything got better."""
    sides = {"seed": side(0.4, 0.6, seed), "last": side(0.6, 0.9, seed + 1)}
    conditions = ("served", "greedy", "best", "combinations", "templates")
    return SeedResult(seed, 2, 4000, 10.0, dict.fromkeys(conditions, sides), {"seed": 0.0, "last": 0.3})


def test_pairs_are_of_one_visit_and_broken_ones_are_left_out() -> None:
    """One difference for each person; a session that we broke leaves its pair out; unlike visits are refused."""
    before, after = side(0.4, 1.0, 1), side(0.6, 1.0, 2)
    assert len(by_person(before, after, persistence)) == 36  # those whose every visit wants no edit have none
    broken = [truth(0, solved=False, kept=1.0, error="sandbox"), *after[1:]]
    assert by_person(before, broken, persistence) == by_person(before, after, persistence)
    with pytest.raises(AssertionError):
        by_person(before, after[::-1], persistence)


def test_the_split_of_a_gain_adds_up() -> None:
    """Skill and habits together are the whole gain in persistence."""
    results = [result(seed) for seed in (1, 10, 20)]
    gains = [
        mean_of(r.truths["served"]["last"], persistence) - mean_of(r.truths["served"]["seed"], persistence)
        for r in results
    ]
    skill, habits = habit_share(results)
    assert skill + habits == pytest.approx(sum(gains) / 3)
    assert skill > 0 and habits > 0


def test_pooling_takes_random_seeds_as_clusters() -> None:
    """Five seeds give five numbers, and the wider quantile of four degrees of freedom."""
    results = [result(seed) for seed in (1, 10, 20, 30, 40)]
    change = pooled(results, "served", persistence)
    assert change.n == 5
    assert change.low < change.mean < change.high
    assert estimate([1.0, 1.0, 1.0]).low == 1.0


def test_every_target_is_a_figure_and_the_last_line_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    """A clear gain holds the targets; the output ends with one JSON object of the agreed shape."""
    figures = figures_of([result(seed) for seed in (1, 10, 20, 30, 40)])
    by_name = {figure.what: figure for figure in figures}
    for name in ("persistence", "skill", "dissatisfied", "persistence: random seeds off zero", "effort: tokens"):
        assert by_name[name].holds
    finish("learning", [*figures, Figure("x", 1.0, "", None, 1)], "notes", as_json=True)
    said = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert said["benchmark"] == "learning"
    assert set(said["figures"][0]) == {"what", "value", "target", "holds", "n"}


def test_calibration_error() -> None:
    """0 where each bin's share is what was said; the mean gap where it is not."""
    assert calibration_error([0.25] * 4 + [0.75] * 4, [True] + [False] * 3 + [True] * 3 + [False]) == pytest.approx(0.0)
    assert calibration_error([0.95, 0.95], [False, False]) == pytest.approx(0.95)
    assert calibration_error([1.0, 0.0], [True, False]) == pytest.approx(0.0)


def test_the_messages_are_balanced_and_unique() -> None:
    """At least 400, half of each label, none twice."""
    rows = [json.loads(line) for line in DATA.read_text().splitlines()]
    assert len({row["text"] for row in rows}) == len(rows) >= 400
    assert abs(sum(row["label"] for row in rows) - len(rows) / 2) <= 1
