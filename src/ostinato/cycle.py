"""One turn of the loop: collect, train, evaluate, release. Every step is in the ledger before the next begins, so that
a controller that was stopped goes on where it was.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Struct

from ostinato.deploy import METRICS, Decision, Observation, decide, watch
from ostinato.envs.client import EnvClient
from ostinato.evals import GateResult, grow_bench
from ostinato.records import Experiment, Look, new_id
from ostinato.rewards import Distiller, live_metrics, rule_name
from ostinato.settings import CycleConfig
from ostinato.store import Ledger

Stage = Literal["collect", "train", "evaluate", "experiment", "done"]
POLL_S = 1.0
LOOK_S = 2.0
WATCH_S = 15.0
"""Between two rounds of the monitors in an experiment; there is one before every promotion too."""


class CycleState(Struct, frozen=True):
    """Where the loop is. `parent` is what the next candidate is trained from; `damaged` marks a candidate that was
    made to be refused; `experiment_id` names the candidate's trial, from its evaluation on; `unpromoted` counts
    candidates in a row that training went on from although they were not released."""

    number: int = 1
    stage: Stage = "collect"
    parent: str = ""
    candidate: str = ""
    damaged: bool = False
    experiment_id: str = ""
    experiment_at: float = 0.0
    unpromoted: int = 0


class Watcher(Protocol):
    """Who is told how far the loop is."""

    def phase(self, number: int, name: str, done: int, total: int, note: str = "") -> None:
        """The loop is in phase `name` of cycle `number`, `done` of `total` steps on."""
        ...

    def said(self, sentence: str) -> None:
        """One sentence worth keeping on the screen."""
        ...


class Hands(Protocol):
    """What the controller makes happen in other processes."""

    async def train(
        self, parent: str, run: str, progress: Callable[[int, int], None], *, damaged: bool
    ) -> dict[str, Any]:
        """Train a candidate from `parent` on what has been collected; the trainer's result. The same `run` again gives
        the same result."""
        ...

    async def evaluate(self, candidate: str, release: str, progress: Callable[[int, int], None]) -> GateResult:
        """Run both on the bench."""
        ...

    async def load(self, slot: str, version: str) -> None:
        """Put a version into a slot of the engine, and tell the gateway."""
        ...

    async def drop(self, slot: str) -> None:
        """Empty a slot of the engine, and tell the gateway."""
        ...

    def check(self) -> None:
        """Raise if a process has died."""
        ...


class Controller:
    """Turns the loop. It alone writes rewards, fates of live sessions, versions, experiments and releases."""

    def __init__(
        self,
        ledger: Ledger,
        distiller: Distiller,
        envs: EnvClient,
        hands: Hands,
        config: CycleConfig,
        watcher: Watcher,
    ) -> None:
        self.ledger, self.distiller, self.envs, self.hands = ledger, distiller, envs, hands
        self.config, self.watcher = config, watcher
        held = ledger.progress().get("cycle")
        self.state = msgspec.convert(held.value, CycleState) if held else CycleState()
        self._stages: dict[Stage, Callable[[CycleState], Awaitable[CycleState]]] = {
            "collect": self._collect,
            "train": self._train,
            "evaluate": self._evaluate,
            "experiment": self._experiment,
        }

    async def run(self) -> None:
        """Turn the loop until all cycles are done."""
        self._close_outdated()
        while self.state.stage != "done":
            self._enter(await self._stages[self.state.stage](self.state))

    def _enter(self, state: CycleState) -> None:
        self.state = state
        self.ledger.put_progress("cycle", state)

    # Each stage does its work and says what comes next.

    async def _collect(self, state: CycleState) -> CycleState:
        """Wait for enough sessions that can be trained on, and for a bench."""
        config = self.config
        wanted = config.first_sessions if state.number == 1 else config.sessions
        while True:
            await self.settle()
            ready = await asyncio.to_thread(self.ledger.trainable_count)
            bench = await grow_bench(self.ledger, self.envs, config.bench_tasks)
            self.watcher.phase(state.number, "collect", ready, wanted, f"{bench} bench tasks")
            if ready >= wanted and bench >= min(config.bench_tasks, 20):
                break
            await asyncio.sleep(POLL_S)
        await asyncio.to_thread(self._watch, None)
        return msgspec.structs.replace(state, stage="train", parent=state.parent or self.release)

    async def _train(self, state: CycleState) -> CycleState:
        """Make the candidate. The damaged one is made of sign-flipped rewards, with the data, steps and learning rate
        of any other, and leaves no fates behind."""
        damaged = state.number == self.config.damaged_cycle
        candidate = await self._trained(state, damaged=damaged)
        return msgspec.structs.replace(
            state, stage="evaluate", candidate=candidate, damaged=damaged, experiment_id=new_id("exp-")
        )

    async def _evaluate(self, state: CycleState) -> CycleState:
        """The gate decides whether people may meet the candidate."""
        number, release = state.number, self.release
        await self.hands.load("evaluation", state.candidate)

        def progress(done: int, total: int) -> None:
            self.watcher.phase(number, "evaluate", done, total, "damaged candidate" if state.damaged else "")

        gate = await self._while_settling(self.hands.evaluate(state.candidate, release, progress))
        bench = {
            key: float(value) for key, value in msgspec.to_builtins(gate).items() if isinstance(value, int | float)
        }
        admitted = gate.answer == "passed"
        experiment = Experiment(
            experiment_id=state.experiment_id,
            cycle=number,
            candidate=state.candidate,
            release=release,
            started_at=time.time(),
            verdict="running" if admitted else "blocked" if gate.answer == "blocked" else "undecided",
            ended_at=None if admitted else time.time(),
            reason=gate.reason,
            bench=bench,
        )
        if admitted:
            await self.hands.load("candidate", state.candidate)
        await asyncio.to_thread(self.ledger.put_experiment, experiment)
        name = "damaged candidate" if state.damaged else "candidate"
        self.watcher.said(f"cycle {number}: gate {gate.answer} the {name} {state.candidate}: {gate.reason}")
        if admitted:
            return msgspec.structs.replace(state, stage="experiment", experiment_at=experiment.started_at)
        return self._next_cycle(state, promoted=False, harmful=gate.answer == "blocked")

    async def _experiment(self, state: CycleState) -> CycleState:
        """Half of the persons meet the candidate, until there is a verdict."""
        experiment = next(e for e in self.ledger.experiments() if e.experiment_id == state.experiment_id)
        await self.hands.load("candidate", state.candidate)
        watched_at = 0.0
        while True:
            await self.settle()
            decision = await asyncio.to_thread(self._look, experiment)
            if decision.verdict == "promoted" or time.monotonic() - watched_at > WATCH_S:
                await asyncio.to_thread(self._watch, experiment)
                watched_at = time.monotonic()
            decision = self._held(decision, state.candidate)
            self.watcher.phase(
                state.number, "experiment", decision.sessions, self.config.experiment.horizon, decision.reason
            )
            if decision.verdict != "running":
                break
            await asyncio.sleep(LOOK_S)
        live = {
            f"{name}.{key}": float(getattr(interval, key))
            for name, interval in decision.intervals.items()
            for key in ("control", "candidate", "difference", "low", "high")
            if math.isfinite(getattr(interval, key))
        }
        ended = msgspec.structs.replace(
            experiment,
            verdict=decision.verdict,
            ended_at=time.time(),
            reason=decision.reason,
            live=live | {"sessions": float(decision.sessions)},
        )
        if decision.verdict == "promoted":
            await asyncio.to_thread(self.ledger.put_release, state.candidate, time.time(), experiment.experiment_id)
            await self.hands.load("release", state.candidate)
        await asyncio.to_thread(self.ledger.put_experiment, ended)
        await self.hands.drop("candidate")
        self.watcher.said(f"cycle {state.number}: {decision.verdict} {state.candidate}: {decision.reason}")
        return self._next_cycle(state, promoted=decision.verdict == "promoted", harmful=decision.verdict == "stopped")

    # The parts that stages share.

    @property
    def release(self) -> str:
        """The version that people are served."""
        held = self.ledger.current_release()
        assert held is not None, "services put the first release"
        return held.version

    async def settle(self) -> None:
        """Reward what has closed."""
        self.hands.check()
        await asyncio.to_thread(self.distiller.distil, time.time())

    async def _trained(self, state: CycleState, *, damaged: bool) -> str:
        """Train, and the version that came of it."""
        note, run = (
            ("sign-flipped rewards", f"cycle-{state.number}-damaged") if damaged else ("", f"cycle-{state.number}")
        )

        def progress(done: int, total: int) -> None:
            self.watcher.phase(state.number, "train", done, total, note)

        progress(0, 1)
        work = self.hands.train(state.parent, run, progress, damaged=damaged)
        result: dict[str, Any] = await self._while_settling(work)
        sentence = f"{len(result['trained'])} sessions in {result['steps']} steps; {_mismatch(result['stats'])}"
        self.watcher.said(f"cycle {state.number}: trained on {sentence}")
        return str(result["version"])

    async def _while_settling(self, work: Awaitable[Any]) -> Any:
        """Wait for work of another process; meanwhile sessions go on and are settled."""
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                await self.settle()
                await asyncio.wait({task}, timeout=POLL_S)
            return task.result()
        finally:
            task.cancel()  # of no effect on work that is done

    def _look(self, experiment: Experiment) -> Decision:
        """Compare the arms on sessions that began in the experiment, and keep the figures."""
        observations = [
            Observation(row.person, row.arm, {k: v for k, v in live_metrics(row).items() if v is not None})
            for row in self.ledger.person_sessions(experiment.experiment_id)
            if row.reward is not None and row.opened_at <= time.time() - self.config.attribution_s
        ]
        decision = decide(observations, self.config.experiment)
        for metric in METRICS:
            interval = decision.intervals[metric.name]
            if interval.persons >= self.config.experiment.burn_in and math.isfinite(interval.low):
                self.ledger.put_look(
                    Look(
                        experiment_id=experiment.experiment_id,
                        metric=metric.name,
                        at=time.time(),
                        persons=interval.persons,
                        sessions=decision.sessions,
                        control=interval.control,
                        candidate=interval.candidate,
                        difference=interval.difference,
                        low=interval.low,
                        high=interval.high,
                    )
                )
        return decision

    def _watch(self, experiment: Experiment | None) -> None:
        """Open an incident for each new alarm of the monitors. One that somebody closed is not opened again."""
        rule = rule_name(self.config.distil.rewards)
        known = {(incident.kind, incident.version, incident.rule) for incident in self.ledger.incidents()}
        first = self.ledger.releases()[0].version
        until = time.time() - self.config.attribution_s
        rows = [row for row in self.ledger.results() if row.opened_at <= until]
        for alarm in watch(rows, experiment, first, self.config.monitors):
            kind = f"monitor.{alarm.monitor}"
            if (kind, alarm.version, rule) not in known:
                self.ledger.put_incident(
                    kind, alarm.message, time.time(), version=alarm.version, rule=rule, sessions=alarm.sessions
                )
                self.watcher.said(f"incident: {alarm.version}: {alarm.message}. See: ostinato incidents")

    def _held(self, decision: Decision, candidate: str) -> Decision:
        """No candidate with an open incident is promoted: it waits until somebody closes the incident, at most until
        the horizon."""
        open_ones = [one for one in self.ledger.incidents(only_open=True) if one.version == candidate]
        if decision.verdict != "promoted" or not open_ones:
            return decision
        reason = f"held by incident {open_ones[0].incident_id}: {open_ones[0].message}"
        late = decision.sessions >= self.config.experiment.horizon
        return msgspec.structs.replace(decision, verdict="undecided" if late else "running", reason=reason)

    def _close_outdated(self) -> None:
        """Incidents about rewards that are not given any more are closed."""
        rule = rule_name(self.config.distil.rewards)
        for incident in self.ledger.incidents(only_open=True):
            if incident.rule not in ("", rule):
                self.ledger.close_incident(incident.incident_id, "the rewards were changed", time.time())

    def _next_cycle(self, state: CycleState, *, promoted: bool, harmful: bool) -> CycleState:
        """Training goes on from a candidate that was merely not decided, but not from a second one in a row: people's
        sessions are drawn by the release, and grow too old for its grandchildren. After a damaged candidate it goes on
        from where it was."""
        stage: Stage = "done" if state.number >= self.config.cycles else "collect"
        if state.damaged and not promoted:
            return CycleState(number=state.number + 1, stage=stage, parent=state.parent, unpromoted=state.unpromoted)
        goes_on = not promoted and not harmful and state.unpromoted == 0
        parent = state.candidate if promoted or goes_on else self.release
        return CycleState(number=state.number + 1, stage=stage, parent=parent, unpromoted=int(goes_on))


def _mismatch(stats: dict[str, float]) -> str:
    """How far the engine's recorded log-probabilities are from the trainer's, in words."""
    if not stats["mismatch_tokens"]:
        return "engine against trainer not measured (no tokens of the parent itself)"
    return f"engine against trainer {stats['mismatch_mean_abs']:.1e} in log-probability"
