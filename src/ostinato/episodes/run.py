"""Running the agent on tasks: fork, work, and judge by hidden tests in a fresh fork that the agent never saw."""

import asyncio
import time
from collections.abc import Callable, Iterable

import aiohttp
from msgspec import Struct

from ostinato.agent import AgentConfig, AgentRun, ChatClient, SandboxWorkspace, run_agent
from ostinato.envs.client import EnvClient
from ostinato.records import EpisodeResult, OstinatoError, Outcome, Task, new_id

TEST_TIMEOUT_S = 20.0
ENDS = {
    "turn_limit": Outcome.TURN_LIMIT,
    "context_full": Outcome.CONTEXT_FULL,
    "time_limit": Outcome.TIME_LIMIT,
    "invalid_calls": Outcome.INVALID_CALLS,
    "empty_answer": Outcome.EMPTY_ANSWER,
    "sandbox_died": Outcome.SANDBOX_DIED,
    "model_error": Outcome.MODEL_ERROR,
}
OURS = {"sandbox_died", "model_error"}
"""Ends that are no fault of the model: such an episode is recorded, and left out of comparisons."""


class EpisodeConfig(Struct, frozen=True):
    """Where and how episodes run. `model` names the slot (`ostinato@evaluation`), `version` what that slot holds,
    `concurrency` how many run at once."""

    gateway_url: str
    envs_url: str
    model: str
    version: str
    agent: AgentConfig = AgentConfig()
    concurrency: int = 16


class Judgement(Struct, frozen=True):
    """What an episode came to."""

    solved: bool
    edited: bool
    outcome: Outcome


async def run_episodes(
    tasks: Iterable[Task], config: EpisodeConfig, on_result: Callable[[EpisodeResult], None] = lambda _: None
) -> list[EpisodeResult]:
    """Run every task once, `concurrency` at a time. One that fails does not disturb its siblings."""
    gate = asyncio.Semaphore(config.concurrency)
    async with EnvClient(config.envs_url) as envs, aiohttp.ClientSession() as http:

        async def one(task: Task) -> EpisodeResult:
            async with gate:
                result = await run_episode(task, config, envs, http)
            on_result(result)
            return result

        return list(await asyncio.gather(*(one(task) for task in tasks)))


async def run_episode(task: Task, config: EpisodeConfig, envs: EnvClient, http: aiohttp.ClientSession) -> EpisodeResult:
    """One episode. Whatever breaks is recorded in `error`, as `boundary: what was said`."""
    begin, session_id = time.monotonic(), new_id("ep-")
    run: AgentRun | None = None
    error, judgement = "", Judgement(solved=False, edited=False, outcome=Outcome.SANDBOX_DIED)
    try:
        base = task.base or await envs.import_base(task.files)
        sandbox = await envs.fork(base, purpose="episode")
        try:
            chat = ChatClient(config.gateway_url, config.model, "", session_id, sandbox=sandbox.sandbox_id, http=http)
            run = await run_agent(config.agent, task.request, SandboxWorkspace(sandbox, task.test_command), chat)
            changed = (await sandbox.diff()).files
        finally:
            await sandbox.destroy()
        if run.end in OURS:
            error = f"{run.end}: {run.error}"
        judgement = await _judge(task, base, run, changed, envs)
    except OstinatoError as failure:
        error = f"sandbox: {failure}"
    return EpisodeResult(
        task_id=task.task_id,
        version=config.version,
        session_id=session_id if run and run.turns else "",
        solved=judgement.solved,
        edited=judgement.edited,
        outcome=judgement.outcome,
        turns=run.turns if run else 0,
        tool_calls=run.tool_calls if run else 0,
        invalid_calls=run.invalid_calls if run else 0,
        tokens=run.tokens if run else 0,
        seconds=time.monotonic() - begin,
        error=error,
    )


async def _judge(task: Task, base: str, run: AgentRun, changed: dict[str, str | None], envs: EnvClient) -> Judgement:
    edited = bool(changed)
    if task.wants_edit:
        solved = edited and await passes(envs, base, changed, task.tests, task.test_command)
    else:
        solved = not edited and task.answer in run.reply
    return Judgement(solved, edited, _outcome(task, run, edited=edited, solved=solved))


async def passes(
    envs: EnvClient, base: str, changed: dict[str, str | None], tests: dict[str, str], command: tuple[str, ...]
) -> bool:
    """Whether the tests pass on `base` with `changed` applied, in a fork of their own."""
    async with await envs.fork(base, files=changed | tests, purpose="tests") as sandbox:
        result = await sandbox.exec(command, timeout=TEST_TIMEOUT_S)
        return result.exit_code == 0 and not result.timed_out


def _outcome(task: Task, run: AgentRun, *, edited: bool, solved: bool) -> Outcome:
    if run.end in ENDS:
        return ENDS[run.end]
    if edited:
        return Outcome.KEPT if solved else Outcome.REVERTED
    if solved:
        return Outcome.ANSWERED
    return Outcome.ASKED if task.wants_edit and run.reply.endswith("?") else Outcome.NOTHING_DONE
