"""The simulated persons: many sessions at once, each a client of the gateway and of the environment server like any
other. Nothing else in the house knows that they are simulated.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import aiohttp
import msgspec
from msgspec import Struct

from ostinato.agent import AgentConfig
from ostinato.envs.client import EnvClient
from ostinato.feedback import FeedbackSender
from ostinato.records import OstinatoError, UnavailableError
from ostinato.tinyworld.names import Split
from ostinato.tinyworld.persons_reports import Reports
from ostinato.tinyworld.persons_session import Caller, Session, Truth, have_session
from ostinato.tinyworld.population import Population, Visit

FAILURES_IN_A_ROW = 40
"""So many sessions that could not begin, one after the other, end the run: the servers are gone."""


class PersonsConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """One run of the persons' process.

    gateway, envs: URLs. folder: where the queue of feedback and the persons' own record (`persons-SPLIT-SEED.jsonl`)
    lie. split, seed, population: who comes. first: visits to leave out, so that a run goes on where another stopped.
    sessions: how many, 0 without end. concurrency: sessions at a time. model, temperature, key: as sent to the gateway.
    clock_rate: seconds of the persons' clock in a real one. progress: file for one JSON line per session, "-" is
    standard output."""

    gateway: str
    envs: str
    folder: str
    split: Split = "live"
    seed: int = 0
    population: int = 200
    first: int = 0
    sessions: int = 0
    concurrency: int = 8
    model: str = "ostinato"
    temperature: float = 1.0
    key: str = ""
    clock_rate: float = 60.0
    progress: str = "-"


class RequestsConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The same requests for any model: visits `first` to `first + sessions` of a population, judged by its persons,
    without a report to the gateway. `model` names a slot ("ostinato@evaluation"). See `PersonsConfig` for the rest."""

    gateway: str
    envs: str
    model: str
    sessions: int
    split: Split = "held_out"
    seed: int = 0
    population: int = 200
    first: int = 0
    concurrency: int = 8
    temperature: float = 1.0
    key: str = ""


class PersonsCounts(Struct):
    """What a run did. `sandboxes`, `chat_requests` and `feedback_requests` are what this client asked of the servers;
    `failed_starts` are sessions for which no sandbox could be had."""

    sessions: int = 0
    failed_starts: int = 0
    sandboxes: int = 0
    chat_requests: int = 0
    feedback_requests: int = 0
    feedback_dropped: int = 0
    outcomes: dict[str, int] = {}


async def run_persons(config: PersonsConfig, stop: asyncio.Event | None = None) -> PersonsCounts:
    """Let persons use the agent until `config.sessions` sessions are had or `stop` is set, then wait for what they
    still have to report (a stop does not wait: what is due later is not reported; what was queued is kept in the
    folder). Raises `UnavailableError` when the servers stay away."""
    run = _Persons(config, stop or asyncio.Event())
    async with AsyncExitStack() as stack:
        await run.open(stack)
        await run.work()
    return run.counts


async def run_requests(config: RequestsConfig) -> list[Truth]:
    """Give the requests of `config` to its model and return what is true of each session, in order of the visits.
    Raises `OstinatoError` when a session cannot begin."""
    visits = Population(config.split, config.seed, config.population).slice(config.first, config.sessions)
    limit = asyncio.Semaphore(config.concurrency)
    async with EnvClient(config.envs) as env, _http() as http:
        agent = AgentConfig(temperature=config.temperature)
        caller = Caller(config.gateway, config.model, agent, env, http, config.key, purpose="episode")

        async def one(visit: Visit) -> Truth:
            async with limit:
                return (await have_session(caller, visit, config.split)).truth

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(visit)) for visit in visits]
    return [task.result() for task in tasks]


def _http() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))


class _Persons:
    def __init__(self, config: PersonsConfig, stop: asyncio.Event) -> None:
        self.config, self.stop = config, stop
        self.counts = PersonsCounts()
        self.outcomes: Counter[str] = Counter()
        self.failures = 0
        self.reports: set[asyncio.Task[None]] = set()

    async def open(self, stack: AsyncExitStack) -> None:
        config, folder = self.config, Path(self.config.folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.sender = await stack.enter_async_context(
            FeedbackSender(config.gateway, folder / f"queue-{config.split}-{config.seed}", key=config.key)
        )
        env = await stack.enter_async_context(EnvClient(config.envs))
        http = await stack.enter_async_context(_http())
        record = folder / f"persons-{config.split}-{config.seed}.jsonl"
        self.record: TextIO = stack.enter_context(record.open("a", encoding="utf-8"))
        self.progress: TextIO = sys.stdout
        if config.progress != "-":
            progress = Path(config.progress)
            self.progress = stack.enter_context(progress.open("a", encoding="utf-8"))
        agent = AgentConfig(temperature=config.temperature)
        self.caller = Caller(config.gateway, config.model, agent, env, http, config.key)

    async def work(self) -> None:
        """Sessions first, `concurrency` at a time; what persons report later goes on beside them."""
        config = self.config
        visits = Population(config.split, config.seed, config.population).visits()
        chosen = islice(visits, config.first, config.first + config.sessions if config.sessions else None)
        workers = [asyncio.create_task(self._worker(chosen)) for _ in range(config.concurrency)]
        everything = asyncio.create_task(self._everything(workers))
        stopped = asyncio.create_task(self.stop.wait())
        try:
            await asyncio.wait({everything, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if everything.done():
                everything.result()
        finally:
            tasks = (everything, stopped, *workers, *self.reports)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._close_counts()

    async def _everything(self, workers: list[asyncio.Task[None]]) -> None:
        await asyncio.gather(*workers)
        await asyncio.gather(*self.reports)
        await self.sender.flush()

    async def _worker(self, visits: Iterator[Visit]) -> None:
        for visit in visits:
            try:
                session = await have_session(self.caller, visit, self.config.split)
            except OstinatoError as error:
                await self._failed(error)
                continue
            self.failures = 0
            self._had(session)

    async def _failed(self, error: OstinatoError) -> None:
        self.failures += 1
        self.counts.failed_starts += 1
        self._line({"event": "failed", "error": str(error)})
        if self.failures >= FAILURES_IN_A_ROW:
            message = f"{self.failures} sessions in a row could not begin: {error}"
            raise UnavailableError(message, hint="See whether the servers run: ostinato status") from error
        await asyncio.sleep(0.25)

    def _had(self, session: Session) -> None:
        truth = session.truth
        self.counts.sessions += 1
        self.counts.sandboxes += session.sandboxes
        self.counts.chat_requests += session.requests
        self.outcomes[truth.outcome] += 1
        self.record.write(msgspec.json.encode(truth).decode() + "\n")
        self.record.flush()
        self._line(
            {
                "event": "session",
                "number": self.counts.sessions,
                "session": truth.session_id,
                "person": truth.person,
                "kind": truth.kind,
                "outcome": truth.outcome,
                "solved": truth.solved,
                "dissatisfied": truth.dissatisfied,
                "tokens": truth.tokens,
                "turns": truth.turns,
                "request": truth.request[:100],
                "reply": truth.reply[:100],
                "says": session.choice.says,
            }
        )
        task = asyncio.create_task(Reports(session, self.sender, self.config.clock_rate).run())
        self.reports.add(task)
        task.add_done_callback(self.reports.discard)

    def _line(self, value: dict[str, Any]) -> None:
        self.progress.write(msgspec.json.encode(value).decode() + "\n")
        self.progress.flush()

    def _close_counts(self) -> None:
        sent = self.sender.counts
        self.counts.outcomes = dict(self.outcomes)
        self.counts.feedback_requests = sent.requests
        self.counts.feedback_dropped = sent.unknown + sent.refused
        self._line({"event": "done"} | msgspec.to_builtins(self.counts))
