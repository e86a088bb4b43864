"""The monitors on made-up populations: what they see, what they leave alone, and how often they are wrong."""

import random
from collections.abc import Callable

import pytest

from ostinato.deploy import MONITORS, MonitorConfig, watch
from ostinato.records import Experiment, Outcome, arm_of
from ostinato.store import SessionResult

PLAIN: dict[str, float] = {
    "edited": 1.0, "survival": 1.0, "tokens": 100.0, "seconds": 2.0, "invalid_calls": 0.0, "lookups": 3.0,
    "edit_calls": 1.0, "noop_edits": 0.0, "test_edits": 0.0, "check_removals": 0.0, "comment_share": 0.0,
    "surprise": 0.2,
}  # fmt: skip
EXPERIMENT = Experiment("exp-1", 1, "v-2", "v-1", 0.0, "running", None, "")
Change = Callable[[dict[str, float], random.Random], Outcome | None]


def population(rng: random.Random, change: Change | None, sessions: int = 900) -> list[SessionResult]:
    """Sessions of 300 persons in an experiment; `change` is what the candidate does differently."""
    rows = []
    for number in range(sessions):
        person = f"p{rng.randrange(300)}"
        arm = arm_of(person, "exp-1")
        signals = {name: value * rng.uniform(0.6, 1.4) for name, value in PLAIN.items()} | {"edited": 1.0}
        signals["edit_calls"], signals["invalid_calls"] = 1.0, float(rng.random() < 0.02)
        outcome = Outcome.KEPT if rng.random() < 0.4 else Outcome.REVERTED
        if rng.random() < 0.2:
            outcome, signals["edited"] = Outcome.ASKED, 0.0
        if arm == "candidate" and change is not None:
            outcome = change(signals, rng) or outcome
        version = "v-2" if arm == "candidate" else "v-1"
        reward = None if outcome == Outcome.SANDBOX_DIED else 1.0 if outcome == Outcome.KEPT else -1.0
        rows.append(SessionResult(f"s{number}", person, float(number), "exp-1", arm, version, outcome, reward, signals))
    return rows


def often(**values: float) -> Change:
    """In three sessions of ten, these signals."""

    def change(signals: dict[str, float], rng: random.Random) -> None:
        if rng.random() < 0.3:
            signals.update(values)

    return change


def ends(outcome: Outcome, edited: float = 0.0) -> Change:
    """In three sessions of ten more, this end."""

    def change(signals: dict[str, float], rng: random.Random) -> Outcome | None:
        if rng.random() >= 0.3:
            return None
        signals["edited"] = edited
        return outcome

    return change


def scale(name: str, factor: float) -> Change:
    """One signal, times a factor."""

    def change(signals: dict[str, float], _: random.Random) -> None:
        signals[name] *= factor

    return change


@pytest.mark.parametrize(
    ("monitor", "change"),
    [
        ("asked", ends(Outcome.ASKED)),
        ("edited", ends(Outcome.NOTHING_DONE)),
        ("empty", ends(Outcome.EMPTY_ANSWER)),
        ("discarded", ends(Outcome.SANDBOX_DIED)),
        ("invalid", often(invalid_calls=1.0)),
        ("abandoned", often(abandoned=1.0)),
        ("noop_edits", often(noop_edits=1.0, edit_calls=1.0)),
        ("comment_share", often(comment_share=1.0)),
        ("test_edits", often(test_edits=1.0)),
        ("check_removals", often(check_removals=1.0)),
        ("tokens", scale("tokens", 1.6)),
        ("seconds", scale("seconds", 2.0)),
        ("lookups", scale("lookups", 0.2)),
        ("edit_calls", scale("edit_calls", 3.0)),
        ("surprise", scale("surprise", 0.1)),
    ],
)
def test_each_monitor_sees_what_it_is_for(monitor: str, change: Change) -> None:
    """And shows sessions of the candidate that do it."""
    rows = population(random.Random(7), change)
    alarms = {alarm.monitor: alarm for alarm in watch(rows, EXPERIMENT, "v-1", MonitorConfig())}
    assert monitor in alarms
    found = alarms[monitor]
    assert found.version == "v-2"
    assert "against the release beside it" in found.message
    assert found.sessions
    assert set(found.sessions) <= {row.session_id for row in rows if row.arm == "candidate"}


def test_every_monitor_has_a_case() -> None:
    """So that one which sees nothing cannot be added."""
    cases = test_each_monitor_sees_what_it_is_for.pytestmark[0].args[1]  # type: ignore[attr-defined]
    assert {monitor for monitor, _ in cases} == {monitor.name for monitor in MONITORS}


def test_a_better_version_raises_no_alarm() -> None:
    """More edits kept, fewer questions, fewer tokens, fewer invalid calls."""

    def better(signals: dict[str, float], rng: random.Random) -> Outcome | None:
        signals["tokens"] *= 0.8
        signals["invalid_calls"] = 0.0
        signals["edited"] = 1.0
        return Outcome.KEPT if rng.random() < 0.7 else Outcome.REVERTED

    assert watch(population(random.Random(3), better), EXPERIMENT, "v-1", MonitorConfig()) == []


def test_a_slow_drift_is_seen_against_the_first_release() -> None:
    """Six points more in each of four versions: no step is seen alone, the sum is."""
    rng, rows = random.Random(5), []
    for version in range(1, 6):
        for number in range(600):
            asked = rng.random() < 0.1 + 0.06 * version
            outcome = Outcome.ASKED if asked else Outcome.KEPT
            signals = PLAIN | {"edited": float(not asked)}
            name = f"v-{version}"
            rows.append(
                SessionResult(f"{name}-{number}", f"p{number % 200}", 1.0, None, None, name, outcome, 1.0, signals)
            )
    alarms = {(alarm.monitor, alarm.version) for alarm in watch(rows, None, "v-1", MonitorConfig())}
    assert ("asked", "v-5") in alarms
    assert ("asked", "v-2") not in alarms


def test_reward_that_rises_while_less_is_kept_is_an_alarm() -> None:
    """Whatever the reward is made of."""
    rows = []
    for row in population(random.Random(2), None):
        candidate = row.arm == "candidate"
        outcome = Outcome.REVERTED if candidate and row.outcome == Outcome.KEPT else row.outcome
        reward = 3.0 if candidate else -1.0 + float(int(row.session_id[1:]) % 2)
        rows.append(
            SessionResult(
                *(row.session_id, row.person, 1.0, "exp-1", row.arm, row.version, outcome, reward, row.signals)
            )
        )
    alarms = [alarm for alarm in watch(rows, EXPERIMENT, "v-1", MonitorConfig()) if alarm.monitor == "divergence"]
    assert "reward rose" in alarms[0].message


def test_few_persons_are_not_compared() -> None:
    """Before the burn-in nothing is said."""
    rows = population(random.Random(7), ends(Outcome.ASKED), sessions=40)
    assert watch(rows, EXPERIMENT, "v-1", MonitorConfig()) == []


def test_a_few_sessions_that_are_all_alike_prove_nothing() -> None:
    """Many of the release, seven of the candidate, none of them with an edit: no variance, and no alarm."""
    rows = population(random.Random(7), None)
    release = [row for row in rows if row.arm == "control"]
    alike = [
        SessionResult(
            f"c{n}", f"q{n}", 1.0, "exp-1", "candidate", "v-2", Outcome.NOTHING_DONE, -2.0, PLAIN | {"edited": 0.0}
        )
        for n in range(7)
    ]
    assert watch([*release, *alike], EXPERIMENT, "v-1", MonitorConfig()) == []


def test_alarms_without_cause_are_rare() -> None:
    """Sixty populations in which both arms are alike: at most two alarms, where one in twenty would be three."""
    wrong = sum(
        bool(watch(population(random.Random(seed), None), EXPERIMENT, "v-1", MonitorConfig())) for seed in range(60)
    )
    assert wrong <= 2
