"""Candidate against release on the bench: run what is missing, look, and stop as soon as the gate has an answer."""

from collections.abc import Callable

from msgspec import Struct

from ostinato.agent import AgentConfig
from ostinato.episodes import EpisodeConfig, run_episodes
from ostinato.evals.gate import GateConfig, GateResult, judge_gate
from ostinato.records import ConflictError, EpisodeResult, Fate, Task
from ostinato.store import Ledger


class EvaluationConfig(Struct, frozen=True):
    """Where the two sides answer. `tasks` bounds the bench; `agent` is the harness that people use."""

    gateway_url: str
    envs_url: str
    candidate: str
    release: str
    tasks: int = 150
    concurrency: int = 16
    agent: AgentConfig = AgentConfig()
    gate: GateConfig = GateConfig()


class Side(Struct, frozen=True):
    """One side of the comparison: a version, and the model name under which it is served."""

    version: str
    model: str


async def evaluate(
    ledger: Ledger, config: EvaluationConfig, on_progress: Callable[[int, int], None] = lambda _done, _all: None
) -> GateResult:
    """Run both sides on the bench, look by look. Results are in the ledger as they come, and those already there (of
    the release from when it was a candidate, or of an evaluation that was cut short) are used, not run again."""
    tasks = [row.task for row in ledger.bench_tasks(accepted=True)][: config.tasks]
    if not tasks:
        raise ConflictError("The bench has no task yet.", hint="Held-out persons must commit first: ostinato status")
    sides = (Side(config.candidate, "ostinato@evaluation"), Side(config.release, "ostinato@release"))
    result = judge_gate([], [], config.gate)
    for look in range(1, config.gate.looks + 1):
        for side in sides:
            await _bring_up_to(look * config.gate.repeats, side, tasks, ledger, config, on_progress)
        candidate, release = (ledger.episodes(version=side.version) for side in sides)
        known = {task.task_id for task in tasks}
        result = judge_gate(_of(release, known), _of(candidate, known), config.gate)
        if result.answer != "inconclusive":
            break
    return result


async def _bring_up_to(
    repeats: int,
    side: Side,
    tasks: list[Task],
    ledger: Ledger,
    config: EvaluationConfig,
    on_progress: Callable[[int, int], None],
) -> None:
    """Run each task until it has `repeats` results of this version."""
    have: dict[str, int] = {}
    for result in ledger.episodes(version=side.version):
        have[result.task_id] = have.get(result.task_id, 0) + 1
    missing = [task for task in tasks for _ in range(repeats - have.get(task.task_id, 0))]
    done = 0

    def record(result: EpisodeResult) -> None:
        nonlocal done
        done += 1
        ledger.put_episode(f"bench-{config.candidate}", result)
        if result.session_id:
            ledger.put_fate(result.session_id, Fate.HELD_OUT, "bench episode", side.version)
        on_progress(done, len(missing))

    where = EpisodeConfig(
        gateway_url=config.gateway_url,
        envs_url=config.envs_url,
        model=side.model,
        version=side.version,
        agent=config.agent,
        concurrency=config.concurrency,
    )
    await run_episodes(missing, where, record)


def _of(results: list[EpisodeResult], known: set[str]) -> list[EpisodeResult]:
    return [result for result in results if result.task_id in known]
