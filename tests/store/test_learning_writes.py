"""Rewards, fates, versions, experiments, bench, sandboxes and the rest; and the balance of accounts."""

import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ostinato.records import (
    BadInputError,
    ConflictError,
    EpisodeResult,
    Experiment,
    Fate,
    Look,
    MissingError,
    Outcome,
    Purpose,
    RewardRecord,
    SandboxInfo,
    SessionRow,
    Task,
    Version,
)
from ostinato.store import Ledger, Transaction


def reward(session_id: str, value: float | None, outcome: Outcome = Outcome.KEPT) -> RewardRecord:
    """A reward record with one part and one signal."""
    return RewardRecord(session_id, outcome, value, {"kept": 1.0}, {"survival": 0.5}, "r1", 5.0, "" if value else "why")


def test_the_latest_reward_counts_and_history_stays(ledger: Ledger) -> None:
    """Recomputing adds a record; nothing is overwritten."""
    first, second = reward("s1", 1.0), reward("s1", 0.5, Outcome.MENDED)
    ledger.put_reward(first)
    ledger.put_reward(second)
    assert ledger.rewards("s1") == [first, second]
    assert ledger.latest_rewards() == {"s1": second}
    assert ledger.latest_rewards("episode") == {}
    with pytest.raises(MissingError, match="'nobody'"):
        ledger.put_reward(reward("nobody", 1.0))


def test_a_session_has_one_fate(ledger: Ledger) -> None:
    """The same fate again is harmless, another is refused, but a person may take the session back."""
    ledger.put_fate("s1", Fate.TRAINED, "batch 1", "v-b")
    ledger.put_fate("s1", Fate.TRAINED, "batch 1 again", "v-c")
    with pytest.raises(ConflictError, match="'trained' already"):
        ledger.put_fate("s1", Fate.FILTERED, "late")
    held = ledger.fate("s1")
    assert held is not None and (held.fate, held.reason, held.version) == ("trained", "batch 1", "v-b")
    ledger.put_fate("s1", Fate.ERASED, "asked by the person")
    assert [row.fate for row in ledger.fates()] == ["erased"]
    assert ledger.fates(Fate.TRAINED) == []
    with pytest.raises(MissingError, match="'nobody'"):
        ledger.put_fate("nobody", Fate.TRAINED, "x")


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["open_live", "open_episode", "close", "fate", "reward"]),
        st.integers(0, 5),
        st.sampled_from(list(Fate)),
    ),
    max_size=30,
)


@settings(max_examples=20, deadline=None)
@given(STEPS)
def test_accounts_balance_whatever_happens(steps: list[tuple[str, int, Fate]]) -> None:
    """After any order of openings, closings, fates and rewards, sessions = open + sum over fates, for each purpose,
    and the numbers are those of a simple model."""
    purposes: dict[str, Purpose] = {}
    ends: dict[str, Fate] = {}

    def step(tx: Transaction, what: str, number: int, fate: Fate) -> None:
        name = f"s{number}"
        if what.startswith("open"):
            purpose: Purpose = "live" if what == "open_live" else "episode"
            tx.open_session(SessionRow(name, "p", purpose, 1.0, 1.0))
            purposes.setdefault(name, purpose)
        elif name not in purposes:
            with pytest.raises(MissingError):
                tx.put_fate(name, fate, "r")
        elif what == "close":
            tx.close_session(name, 2.0)
        elif what == "reward":
            tx.put_reward(reward(name, 1.0))
        elif ends.get(name, fate) == fate or fate in (Fate.OPTED_OUT, Fate.ERASED):
            tx.put_fate(name, fate, "r")
            ends[name] = fate
        else:
            with pytest.raises(ConflictError):
                tx.put_fate(name, fate, "r")

    def all_steps(tx: Transaction) -> None:
        for what, number, fate in steps:
            step(tx, what, number, fate)

    with tempfile.TemporaryDirectory() as folder, Ledger.open(Path(folder)) as ledger:
        ledger.commit(all_steps)
        kinds: tuple[Purpose, Purpose] = ("live", "episode")
        for kind in kinds:
            accounts = ledger.accounts(kind)
            names = [name for name, purpose in purposes.items() if purpose == kind]
            assert accounts.balanced
            assert accounts.sessions == len(names)
            assert accounts.open == sum(name not in ends for name in names)
            assert accounts.open == len(ledger.sessions_without_fate(kind))
            for fate in Fate:
                assert accounts.fates[fate.value] == sum(ends.get(name) == fate for name in names)


def test_releases_and_versions(ledger: Ledger) -> None:
    """Versions are stored once; the last release is the current one."""
    assert ledger.current_release() is None
    version = Version("v-a", None, "anchor", 1.0, 10, 20, 1.0, "f", {"loss": 0.5})
    ledger.put_version(version)
    ledger.put_version(msgspec.structs.replace(version, created_at=9.0))
    assert ledger.versions() == [version]
    ledger.put_release("v-a", 1.0)
    ledger.put_release("v-b", 2.0, "x1")
    current = ledger.current_release()
    assert current is not None and (current.version, current.experiment_id) == ("v-b", "x1")
    assert [release.version for release in ledger.releases()] == ["v-a", "v-b"]


def test_one_experiment_runs_at_a_time(ledger: Ledger) -> None:
    """An experiment is updated in place; a second running one is refused until the first is decided."""
    first = Experiment("x1", 1, "v-b", "v-a", 10.0, "running")
    second = Experiment("x2", 2, "v-c", "v-a", 20.0, "running")
    ledger.put_experiment(first)
    assert ledger.running_experiment() == first
    with pytest.raises(ConflictError, match="'x2' cannot run"):
        ledger.put_experiment(second)
    done = msgspec.structs.replace(first, verdict="promoted", ended_at=15.0, live={"kept": 0.1})
    ledger.put_experiment(done)
    assert ledger.running_experiment() is None
    ledger.put_experiment(second)
    assert ledger.experiments() == [done, second]
    look = Look("x1", "kept", 11.0, 10, 40, 0.3, 0.5, 0.2, 0.1, 0.3)
    ledger.put_look(look)
    ledger.put_look(msgspec.structs.replace(look, experiment_id="x2"))
    assert ledger.looks("x1") == [look] and len(ledger.looks()) == 2


def test_person_sessions_carry_the_latest_reward(ledger: Ledger) -> None:
    """Sessions of the experiment, rewarded or not; episodes and other experiments stay out."""
    for name, purpose, experiment in (("a", "live", "x1"), ("b", "live", "x1"), ("c", "live", "x2")):
        ledger.open_session(SessionRow(name, "p-" + name, purpose, 1.0, 1.0, experiment, "candidate"))  # type: ignore[arg-type]
    ledger.open_session(SessionRow("d", "p-d", "episode", 1.0, 1.0, "x1", "candidate"))
    ledger.put_reward(reward("a", 1.0))
    ledger.put_reward(reward("a", 0.25, Outcome.MENDED))
    one, two = ledger.person_sessions("x1")
    assert (one.person, one.arm, one.outcome, one.reward) == ("p-a", "candidate", Outcome.MENDED, 0.25)
    assert one.signals == {"survival": 0.5}
    assert (two.session_id, two.outcome, two.reward, two.signals) == ("b", None, None, {})


def test_episodes_by_run_and_version(ledger: Ledger) -> None:
    """Bench results come back in order, by run, by version, or both."""
    result = EpisodeResult("task", "v-a", "s", True, True, Outcome.KEPT, 3, 2, 0, 60, 1.5)
    other = msgspec.structs.replace(result, version="v-b", solved=False, error="sandbox")
    ledger.put_episode("run1", result)
    ledger.put_episode("run1", other)
    ledger.put_episode("run2", result)
    assert ledger.episodes("run1") == [result, other]
    assert ledger.episodes(version="v-a") == [result, result]
    assert ledger.episodes("run1", "v-b") == [other]
    assert ledger.episodes("run9") == []


def test_bench_tasks_are_taken_or_refused_with_a_reason(ledger: Ledger) -> None:
    """A refused task says why; judging it again replaces the verdict."""
    task = Task("t1", "do it", {"a.py": "x = 1\n"})
    with pytest.raises(BadInputError, match="without a reason"):
        ledger.put_bench_task(task, accepted=False)
    ledger.put_bench_task(task, accepted=False, reason="the empty diff passes", source_session="s1")
    assert [row.reason for row in ledger.bench_tasks(accepted=False)] == ["the empty diff passes"]
    ledger.put_bench_task(task, accepted=True, source_session="s1")
    (row,) = ledger.bench_tasks()
    assert row.task == task and row.accepted and row.source_session == "s1"
    assert ledger.bench_tasks(accepted=False) == []


def test_sandboxes_counters_incidents_progress(ledger: Ledger) -> None:
    """The small tables keep what they are told."""
    ledger.put_sandbox(SandboxInfo("b1", "base"), "live", 1.0)
    ledger.put_sandbox(SandboxInfo("b2", "base"), "check", 2.0)
    ledger.end_sandbox("b1", 3.0)
    ledger.end_sandbox("b1", 9.0)
    assert [(row.sandbox_id, row.purpose, row.destroyed_at) for row in ledger.sandboxes()] == [
        ("b1", "live", 3.0),
        ("b2", "check", None),
    ]
    assert ledger.sandbox_count() == 2
    ledger.count("http.requests", 5)
    ledger.count("http.requests")
    assert ledger.counters() == {"http.requests": 6}
    ledger.put_incident("drift", "engine and trainer differ", 4.0, "s1")
    assert [(row.kind, row.session_id) for row in ledger.incidents()] == [("drift", "s1")]
    ledger.put_progress("trainer", {"step": 1})
    ledger.put_progress("trainer", {"step": 2, "loss": [0.5]})
    assert ledger.progress()["trainer"].value == {"step": 2, "loss": [0.5]}
