"""The controller: what it does at each end of a candidate, and that it goes on where it stopped.

The other processes are scripted; the ledger and the statistics are real.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ostinato.cycle import Controller, CycleState
from ostinato.deploy import ExperimentConfig, MonitorConfig
from ostinato.envs.client import EnvClient
from ostinato.evals import GateResult
from ostinato.records import (
    AgentEnded,
    EditProposed,
    EditReverted,
    EditSurvival,
    Experiment,
    FeedbackEvent,
    SessionClosed,
    SessionRow,
    Task,
    Turn,
    TurnTrace,
    VersionSpan,
    arm_of,
    in_held_out_group,
)
from ostinato.records.feedback import Payload
from ostinato.render import ChatFormat, ParsedReply
from ostinato.rewards import Distiller
from ostinato.settings import CycleConfig
from ostinato.store import Ledger, Transaction

CONFIG = CycleConfig(
    cycles=1,
    first_sessions=20,
    sessions=20,
    bench_tasks=20,
    damaged_cycle=0,
    attribution_s=0.0,
    experiment=ExperimentConfig(burn_in=30, horizon=700),
    monitors=MonitorConfig(burn_in=10),
)
PASSED = GateResult("passed", "good", 0.4, 0.5, 0.1, 0.0, 0.2, 150)
BLOCKED = GateResult("blocked", "bad", 0.4, 0.1, -0.3, -0.4, -0.2, 150)
INCONCLUSIVE = GateResult("inconclusive", "unclear", 0.4, 0.4, 0.0, -0.2, 0.2, 10)


class Replies:
    """A chat format that reads every reply as a plain sentence."""

    def parse(self, _ids: list[int], _tools: tuple[object, ...]) -> ParsedReply:
        return ParsedReply("Fixed it.", (), "")


class World:
    """Persons who answer at once: their sessions appear in the ledger whenever the controller looks."""

    def __init__(self, ledger: Ledger, gates: list[GateResult], kept: dict[str, float]) -> None:
        self.ledger, self.gates, self.kept = ledger, gates, kept
        self.calls: list[str] = []
        self.number = 0
        self.breaking = 0.0

    async def train(
        self, parent: str, run: str, progress: Callable[[int, int], None], *, damaged: bool
    ) -> dict[str, Any]:
        progress(1, 1)
        assert damaged == run.endswith("damaged")
        self.calls.append(f"train {parent} {run}")
        return {"version": f"v-{run}", "trained": [], "steps": 1, "stats": {"mismatch_tokens": 0.0}}

    async def evaluate(self, candidate: str, release: str, progress: Callable[[int, int], None]) -> GateResult:
        self.calls.append(f"evaluate {candidate} {release}")
        progress(1, 1)
        return self.gates.pop(0)

    async def load(self, slot: str, version: str) -> None:
        self.calls.append(f"load {slot} {version}")

    async def drop(self, slot: str) -> None:
        self.calls.append(f"drop {slot}")

    def check(self) -> None:
        experiment = self.ledger.running_experiment()

        def write(tx: Transaction) -> None:
            for _ in range(80):
                self.session(tx, experiment)

        self.ledger.commit(write)

    def session(self, ledger: Transaction, experiment: Experiment | None) -> None:
        """One finished session of the next person, in their arm."""
        person, number = f"p{self.number % 300}", self.number
        self.number += 1
        arm = arm_of(person, experiment.experiment_id) if experiment else None
        kept = (number * 37 % 100) / 100 < self.kept[arm or "control"]
        broken = 2 if arm == "candidate" and (number * 61 % 100) / 100 < self.breaking else 0
        add_session(
            ledger,
            f"s{number}",
            person,
            kept=kept,
            experiment=experiment.experiment_id if experiment else None,
            invalid=broken,
        )


def add_session(
    ledger: Transaction, name: str, person: str, *, kept: bool, experiment: str | None = None, invalid: int = 0
) -> None:
    """A whole session, as the gateway records one."""
    now, response = time.time(), f"r-{name}"
    arm = arm_of(person, experiment) if experiment else None
    ledger.open_session(SessionRow(name, person, "live", now, now, experiment, arm, "header"))
    spans = (VersionSpan(0, "v-0"),)
    trace = TurnTrace(0, [1, 2], [3, 4], [-0.1, -0.2])
    turn = Turn(response, name, 0, 0, "first turn", "release", spans, "stop", 1.0, now, now, now, True, "", trace)
    ledger.begin_turn(turn, b'[{"role":"user","content":"fix it"}]')
    ledger.finish_turn(turn)
    payloads: list[Payload] = [EditProposed(["a.py"], 1, 1), AgentEnded("done", 1, 1, invalid)]
    payloads += [EditSurvival(900.0, 1.0, 1.0)] if kept else [EditReverted(1.0)]
    for index, payload in enumerate([*payloads, SessionClosed()]):
        ledger.add_feedback(FeedbackEvent(f"{name}-{index}", response, now + index, payload), name)
    ledger.close_session(name, now)


class Quiet:
    """A watcher that keeps the sentences."""

    def __init__(self) -> None:
        self.sentences: list[str] = []

    def phase(self, number: int, name: str, done: int, total: int, note: str = "") -> None:
        """Nothing to show."""

    def said(self, sentence: str) -> None:
        self.sentences.append(sentence)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """A ledger with a first release and a bench."""
    held = Ledger.open(tmp_path, owner=True)
    held.put_release("v-0", time.time())
    for index in range(20):
        held.put_bench_task(Task(f"t{index}", "fix it"), accepted=True)
    return held


async def turn(
    ledger: Ledger, gates: list[GateResult], kept: dict[str, float], config: CycleConfig = CONFIG
) -> tuple[World, Quiet]:
    """Turn the loop to its end."""
    world, quiet = World(ledger, gates, kept), Quiet()
    await turn_world(ledger, world, quiet, config)
    return world, quiet


async def turn_world(ledger: Ledger, world: World, quiet: Quiet, config: CycleConfig = CONFIG) -> None:
    """Turn the loop of a world to its end."""
    reader: ChatFormat = Replies()  # type: ignore[assignment]
    async with EnvClient("http://127.0.0.1:9") as envs:
        await Controller(ledger, Distiller(ledger, reader), envs, world, config, quiet).run()


@pytest.fixture(autouse=True)
def quick_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller need not wait between looks: the persons of these tests answer at once."""
    monkeypatch.setattr("ostinato.cycle.POLL_S", 0.01)
    monkeypatch.setattr("ostinato.cycle.LOOK_S", 0.01)


async def test_a_better_candidate_becomes_the_release(ledger: Ledger) -> None:
    """Promoted: release record first, then the engine's slot, then the candidate's slot is emptied."""
    world, _ = await turn(ledger, [PASSED], {"control": 0.3, "candidate": 0.7})
    (experiment,) = ledger.experiments()
    assert experiment.verdict == "promoted"
    held = ledger.current_release()
    assert held is not None
    assert (held.version, held.experiment_id) == ("v-cycle-1", experiment.experiment_id)
    assert world.calls[-2:] == ["load release v-cycle-1", "drop candidate"]
    assert experiment.live["persistence.low"] > -0.05
    assert {look.metric for look in ledger.looks()} == {"persistence", "dissatisfied", "tokens"}


async def test_a_worse_candidate_is_stopped(ledger: Ledger) -> None:
    """Stopped: the release stays, and the next candidate starts from the release."""
    world, quiet = await turn(ledger, [PASSED], {"control": 0.7, "candidate": 0.2})
    assert ledger.experiments()[0].verdict == "stopped"
    held = ledger.current_release()
    assert held is not None
    assert held.version == "v-0"
    assert not any(call.startswith("load release") for call in world.calls)
    assert "stopped" in quiet.sentences[-1]


async def test_a_blocked_candidate_meets_nobody(ledger: Ledger) -> None:
    """The gate's refusal is recorded with its figures; the candidate's slot is never loaded."""
    world, _ = await turn(ledger, [BLOCKED], {"control": 0.5})
    (experiment,) = ledger.experiments()
    assert experiment.verdict == "blocked"
    assert experiment.bench["high"] < -0.08
    assert not any(call.startswith("load candidate") for call in world.calls)


async def test_want_of_evidence_is_not_called_blocked(ledger: Ledger) -> None:
    """An inconclusive gate admits nobody either, and is recorded as undecided."""
    await turn(ledger, [INCONCLUSIVE], {"control": 0.5})
    assert ledger.experiments()[0].verdict == "undecided"


async def test_a_candidate_with_an_open_incident_is_held(ledger: Ledger) -> None:
    """It keeps more edits, but breaks its tool calls: an incident, shown with sessions, and no promotion."""
    world, quiet = World(ledger, [PASSED], {"control": 0.3, "candidate": 0.7}), Quiet()
    world.breaking = 0.5
    await turn_world(ledger, world, quiet)
    (experiment,) = ledger.experiments()
    assert experiment.verdict == "undecided"
    assert experiment.reason.startswith("held by incident 1: sessions with an invalid tool call rose 0 -> 0.")
    (incident,) = ledger.incidents(only_open=True)
    assert (incident.kind, incident.version) == ("monitor.invalid", "v-cycle-1")
    assert len(incident.sessions) == 5
    for session_id in incident.sessions:
        assert ledger.rewards(session_id)[-1].signals["invalid_calls"] == 2
    assert any(sentence.startswith("incident: v-cycle-1: ") for sentence in quiet.sentences)


async def test_a_closed_incident_holds_nothing_and_stays_closed(ledger: Ledger) -> None:
    """Somebody looked and let it pass; the same alarm does not come again."""
    world, quiet = World(ledger, [PASSED], {"control": 0.3, "candidate": 0.7}), Quiet()
    world.breaking = 0.5
    said = quiet.said

    def close(sentence: str) -> None:
        said(sentence)
        if sentence.startswith("incident"):
            ledger.close_incident(1, "the tool was renamed", time.time())

    quiet.said = close  # type: ignore[method-assign]
    await turn_world(ledger, world, quiet)
    assert ledger.experiments()[0].verdict == "promoted"
    (incident,) = ledger.incidents()
    assert incident.closed_because == "the tool was renamed"


async def test_an_incident_ends_with_the_rewards_that_it_is_about(ledger: Ledger) -> None:
    """Another rule closes it when the loop starts; one about no rule stays."""
    ledger.put_incident("monitor.asked", "asks", 1.0, version="v-1", rule="an-older-rule")
    ledger.put_incident("damaged_trace", "broken", 1.0)
    await turn(ledger, [BLOCKED], {"control": 0.5})
    assert [(one.kind, one.closed_because) for one in ledger.incidents()] == [
        ("monitor.asked", "the rewards were changed"),
        ("damaged_trace", ""),
    ]


async def test_the_damaged_candidate_is_blocked_and_training_goes_on_from_its_parent(ledger: Ledger) -> None:
    """In its cycle the damaged candidate is offered and blocked; the next one comes from the same parent."""
    config = CycleConfig(
        cycles=2,
        first_sessions=20,
        bench_tasks=20,
        damaged_cycle=1,
        attribution_s=0.0,
        experiment=CONFIG.experiment,
    )
    world, _ = await turn(ledger, [BLOCKED, PASSED], {"control": 0.3, "candidate": 0.7}, config)
    assert [experiment.verdict for experiment in ledger.experiments()] == ["blocked", "promoted"]
    trained = [call for call in world.calls if call.startswith("train")]
    assert trained == ["train v-0 cycle-1-damaged", "train v-0 cycle-2"]


async def test_a_stopped_controller_goes_on_where_it_was(ledger: Ledger) -> None:
    """With an evaluation under way in the ledger, nothing is collected or trained again."""
    ledger.put_progress("cycle", CycleState(stage="evaluate", parent="v-0", candidate="v-7", experiment_id="exp-1"))
    world, _ = await turn(ledger, [PASSED], {"control": 0.3, "candidate": 0.7})
    assert not any(call.startswith("train") for call in world.calls)
    assert ledger.experiments()[0].candidate == "v-7"


async def test_held_out_persons_are_never_left_for_training(ledger: Ledger) -> None:
    """Their sessions are rewarded and get the fate held out at once; the accounts balance."""
    await turn(ledger, [BLOCKED], {"control": 0.5})
    for session in ledger.sessions_without_fate("live"):
        assert not in_held_out_group(session.person)
    accounts = ledger.accounts()
    assert accounts.balanced
    assert accounts.fates["held_out"] > 0


async def test_work_of_another_process_is_let_go_when_the_controller_stops(ledger: Ledger) -> None:
    """Ctrl-C during training: nothing is left that could fail later, unheard."""
    world, let_go = World(ledger, [], {"control": 0.5}), asyncio.Event()

    async def for_ever() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            let_go.set()

    reader: ChatFormat = Replies()  # type: ignore[assignment]
    async with EnvClient("http://127.0.0.1:9") as envs:
        controller = Controller(ledger, Distiller(ledger, reader), envs, world, CONFIG, Quiet())
        waiting = asyncio.create_task(controller._while_settling(for_ever()))
        await asyncio.sleep(0.2)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    await asyncio.wait_for(let_go.wait(), 10)
