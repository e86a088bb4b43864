"""A ledger made by hand: four versions, a promotion, a refusal, an experiment that still runs, hostile words."""

import math
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from ostinato.records import (
    Arm,
    EpisodeResult,
    Experiment,
    Fate,
    FeedbackEvent,
    Look,
    Outcome,
    Rating,
    RewardRecord,
    SandboxInfo,
    SessionRow,
    Turn,
    TurnTrace,
    Version,
    VersionSpan,
    arm_of,
)
from ostinato.store import Ledger, Transaction

FIRST, SECOND, DAMAGED, THIRD = (f"v-{digit * 16}" for digit in "0123")
HOSTILE = "<script>alert('reason')</script> & \"more\""
METRICS = (("persistence", 0.02), ("dissatisfied", -0.03), ("tokens", -12.0))


KEPT = {FIRST: 0.3, SECOND: 0.46, THIRD: 0.55}
"""Of how many sessions a version's edit is kept."""
STORY = (
    (0, 100, None, FIRST, FIRST),
    (100, 300, "exp-1", FIRST, SECOND),
    (300, 500, None, SECOND, SECOND),
    (500, 700, "exp-3", SECOND, THIRD),
)
"""Sessions from one number to another, the experiment that ran, its release and its candidate."""


def add_session(tx: Transaction, number: int, experiment: str | None, release: str, candidate: str) -> None:
    """One live session with its turn and its reward, by one of 60 persons."""
    rng = random.Random(number)
    name, person, at = f"s{number}", f"p{number % 60}", 1000.0 + number
    arm: Arm | None = arm_of(person, experiment) if experiment else None
    version = candidate if arm == "candidate" else release
    tx.open_session(SessionRow(name, person, "live", at, at, experiment, arm))
    trace = TurnTrace(0, [1, 2], [3, 4], [-0.1, -0.2])
    spans = (VersionSpan(0, version),)
    turn = Turn(f"r{number}", name, 0, 0, "", "release", spans, "stop", 1.0, at, at, at, True, "", trace)
    tx.begin_turn(turn, b"[]")
    tx.finish_turn(turn)
    tx.close_session(name, at)
    survived = rng.random() < KEPT[version]
    outcome = Outcome.KEPT if survived else rng.choice([Outcome.REVERTED, Outcome.ASKED, Outcome.ABANDONED])
    signals = {
        "edited": float(outcome in (Outcome.KEPT, Outcome.REVERTED)),
        "dissatisfied": float(not survived and rng.random() < 0.8),
        "tokens": float(rng.randint(60, 160)),
        "tool_calls": float(rng.randint(2, 7)),
    }
    tx.put_reward(RewardRecord(name, outcome, 1.0 if survived else -0.5, {}, signals, "rule", at))
    if number % 7 == 0:
        tx.put_fate(name, Fate.HELD_OUT, "held-out person")


def fill(tx: Transaction) -> None:
    """The story: the first release, a promotion, a damaged candidate that is blocked, a trial that still runs."""
    tx.put_version(Version(FIRST, None, "anchor", 1000.0, 1_700_000, 2_200_000, 0.0, "frame"))
    for number, (version, parent) in enumerate(((SECOND, FIRST), (DAMAGED, SECOND), (THIRD, SECOND)), 1):
        tx.put_version(Version(version, parent, "delta", 1000.0 + number, 310_000, 2_200_000, 0.4, "frame"))
    tx.put_release(FIRST, 1000.0)
    tx.put_release(SECOND, 1300.0, "exp-1")
    gate = {"release": 0.42, "candidate": 0.45, "difference": 0.03, "low": -0.02, "high": 0.08, "tasks": 150.0}
    bad = {"release": 0.45, "candidate": 0.05, "difference": -0.4, "low": -0.47, "high": -0.33, "tasks": 150.0}
    tx.put_experiment(Experiment("exp-1", 1, SECOND, FIRST, 1100.0, "promoted", 1300.0, "no metric is worse", gate))
    tx.put_experiment(Experiment("exp-2", 2, DAMAGED, SECOND, 1400.0, "blocked", 1401.0, HOSTILE, bad))
    tx.put_experiment(Experiment("exp-3", 2, THIRD, SECOND, 1500.0, "running", None, "", gate))
    for tried in ("exp-1", "exp-3"):
        for metric, gain in METRICS:
            spread = abs(gain) * 2
            look = Look(tried, metric, 1200.0, 60, 200, 0.4, 0.4 + gain, gain, gain - spread, gain + spread)
            tx.put_look(look)
    for start, end, experiment, release, candidate in STORY:
        for number in range(start, end):
            add_session(tx, number, experiment, release, candidate)
    for index in range(40):
        for version, share in ((FIRST, 0.42), (SECOND, 0.45), (DAMAGED, 0.05)):
            solved = math.sin(index * 7.0) * 0.5 + 0.5 < share
            result = EpisodeResult(f"t{index}", version, "", solved, True, Outcome.KEPT, 4, 3, 0, 90, 1.0)
            tx.put_episode("bench", result)
    tx.put_sandbox(SandboxInfo("sb-1", "base"), "person", 1000.0)
    tx.add_feedback(FeedbackEvent("e1", "r-not-stored", 1000.0, Rating(1)), None)
    tx.count("http.requests", 2801)
    tx.count(f"odd <b>{HOSTILE}", 1)
    tx.put_incident("<i>disk</i>", HOSTILE, 1200.0)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """The story in a ledger."""
    with Ledger.open(tmp_path / "data") as opened:
        opened.commit(fill)
        yield opened
