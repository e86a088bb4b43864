"""Persons against a scripted gateway over HTTP and workspaces in memory: reports, records, fates of their sessions."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from ostinato.envs.client import Changes, Environment
from ostinato.records import (
    Abandoned,
    AgentEnded,
    Commit,
    EditProposed,
    EditSurvival,
    ExecResult,
    FeedbackEvent,
    SandboxInfo,
    SessionClosed,
    Task,
    UnavailableError,
)
from ostinato.search import search_files
from ostinato.tinyworld import persons
from ostinato.tinyworld.persons import PersonsConfig, RequestsConfig, run_persons, run_requests
from ostinato.tinyworld.population import Population
from ostinato.tinyworld.runner import run_tests
from ostinato.tinyworld.tasks import generate_task

Answer = Callable[[Task, int], dict[str, Any]]


class MemorySandbox:
    """One workspace of `MemoryEnv`."""

    def __init__(self, info: SandboxInfo, start: dict[str, str], files: Mapping[str, str | None]) -> None:
        self.sandbox_id, self.base, self.start = info.sandbox_id, info.base, start
        self.files = {path: text for path, text in (start | dict(files)).items() if text is not None}

    async def exec(self, argv: Sequence[str], timeout: float = 30.0) -> ExecResult:  # noqa: ARG002
        output = run_tests(self.files)
        return ExecResult(int(not output.endswith("passed\n")), output)

    async def read(self, path: str) -> str:
        return self.files[path]

    async def write(self, files: Mapping[str, str | None]) -> None:
        self.files |= {path: text for path, text in files.items() if text is not None}

    async def search(self, pattern: str) -> str:
        return search_files(self.files.items(), pattern)

    async def list(self) -> list[str]:
        return sorted(self.files)

    async def diff(self) -> Changes:
        return Changes({path: text for path, text in self.files.items() if self.start.get(path) != text})

    async def destroy(self) -> None:
        return


class MemoryEnv:
    """An environment in memory, in the place of `EnvClient`."""

    def __init__(self) -> None:
        self.bases: dict[str, dict[str, str]] = {}
        self.forks = 0

    async def __aenter__(self) -> "MemoryEnv":
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    async def import_base(self, files: Mapping[str, str]) -> str:
        base = f"b{abs(hash(json.dumps(files, sort_keys=True)))}"
        self.bases[base] = dict(files)
        return base

    async def fork(
        self,
        base: str,
        *,
        files: Mapping[str, str | None] | None = None,
        purpose: str = "live",  # noqa: ARG002
    ) -> MemorySandbox:
        self.forks += 1
        return MemorySandbox(SandboxInfo(f"sb{self.forks}", base), self.bases[base], files or {})


class Gateway:
    """Chat by `answer` (given the task and the turn, from 0), and intake of feedback."""

    def __init__(self, tasks: dict[str, Task], answer: Answer) -> None:
        self.tasks, self.answer = tasks, answer
        self.sessions: dict[str, list[str]] = {}
        self.events: dict[str, list[FeedbackEvent]] = {}
        self.chats = 0

    async def chat(self, request: web.Request) -> web.Response:
        body = await request.json()
        session = request.headers["X-Ostinato-Session"]
        turns = self.sessions.setdefault(session, [])
        said = self.answer(self.tasks[body["messages"][0]["content"]], len(turns))
        self.chats += 1
        turns.append(f"{session}/{len(turns)}")
        answer = {"id": turns[-1], "choices": [{"message": said}], "usage": {"completion_tokens": 20}}
        return web.json_response(answer)

    async def feedback(self, request: web.Request) -> web.Response:
        for event in msgspec.json.decode(await request.read(), type=list[FeedbackEvent]):
            self.events.setdefault(event.response_id.split("/")[0], []).append(event)
        return web.json_response({}, status=202)


@asynccontextmanager
async def serving(gateway: Gateway) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/v1/chat/completions", gateway.chat)
    app.router.add_post("/v1/feedback", gateway.feedback)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def call(name: str, **arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": "call_0", "function": function}]}


def able(task: Task, turn: int) -> dict[str, Any]:
    """An agent that knows the solution: one edit a turn, then a reply."""
    edits = sorted(task.reference.items()) if task.wants_edit else []
    if turn < len(edits):
        path, text = edits[turn]
        return call("edit_file", path=path, old=task.files[path], new=text)
    return {"role": "assistant", "content": "Done." if task.wants_edit else f"It is {task.answer}."}


def asking(_: Task, __: int) -> dict[str, Any]:
    return {"role": "assistant", "content": "Which behaviour do you expect?"}


def tasks_of(split: str, first: int, number: int) -> dict[str, Task]:
    visits = Population(split, 0).slice(first, number)  # type: ignore[arg-type]
    tasks = [generate_task(split, visit.task_seed) for visit in visits]  # type: ignore[arg-type]
    return {task.request: task for task in tasks}


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch) -> MemoryEnv:
    """Workspaces in memory in the place of the environment server."""
    made = MemoryEnv()
    typed: Environment = made
    monkeypatch.setattr(persons, "EnvClient", lambda _: typed)
    return made


async def run(
    tmp_path: Path, answer: Answer, sessions: int = 30
) -> tuple[Gateway, list[dict[str, Any]], dict[str, Any]]:
    gateway = Gateway(tasks_of("live", 0, sessions), answer)
    async with serving(gateway) as url:
        config = PersonsConfig(
            url, "", str(tmp_path), sessions=sessions, clock_rate=2000.0, progress=str(tmp_path / "progress")
        )
        await run_persons(config)
    truths = [json.loads(line) for line in (tmp_path / "persons-live-0.jsonl").read_text().splitlines()]
    lines = [json.loads(line) for line in (tmp_path / "progress").read_text().splitlines()]
    return gateway, truths, lines[-1]


def payloads(events: list[FeedbackEvent], kind: type[Any]) -> list[Any]:
    return [event.payload for event in events if isinstance(event.payload, kind)]


async def test_able_work_is_reported_and_kept(tmp_path: Path, env: MemoryEnv) -> None:
    """Each session ends with its close; edits are proposed, measured three times and committed; counts agree."""
    gateway, truths, done = await run(tmp_path, able)
    assert len(truths) == len(gateway.events) == 30
    assert all(truth["solved"] for truth in truths)
    wanted = [truth for truth in truths if truth["persistence"] is not None]
    assert sum(truth["persistence"] for truth in wanted) / len(wanted) > 0.8
    for truth in truths:
        events = gateway.events[truth["session_id"]]
        assert [isinstance(event.payload, SessionClosed) for event in events].index(True) == len(events) - 1
        assert len({event.event_id for event in events}) == len(events)
        ended = payloads(events, AgentEnded)[0]
        assert (ended.reason, ended.turns, ended.sandbox_id[:2]) == ("done", truth["turns"], "sb")
        survivals = payloads(events, EditSurvival)
        assert [item.delay_s for item in survivals] == ([30.0, 300.0, 900.0] if truth["edited"] else [])
        assert len(payloads(events, EditProposed)) == int(truth["edited"])
        if truth["outcome"] == "kept":
            assert survivals[-1].survival_rate_four_gram == survivals[-1].survival_rate_no_revert == 1.0
            assert truth["persistence"] == 1.0
            commit = payloads(events, Commit)[0]
            assert commit.files == generate_task("live", visit_seed(truth)).reference
            assert env.bases[commit.base]
        if truth["outcome"] == "reverted":
            assert survivals[-1].survival_rate_no_revert < 0.2
    assert done["event"] == "done"
    assert (done["sessions"], done["sandboxes"], done["chat_requests"]) == (30, env.forks, gateway.chats)


def visit_seed(truth: dict[str, Any]) -> int:
    return int(truth["task_id"].rsplit("-", 1)[1])


async def test_asking_is_disliked(tmp_path: Path, env: MemoryEnv) -> None:
    """Nothing is kept, and every session that wanted an edit ends with a complaint or a leave."""
    gateway, truths, _ = await run(tmp_path, asking)
    for truth in truths:
        if truth["persistence"] is not None:
            assert (truth["persistence"], truth["dissatisfied"], truth["asked"]) == (0.0, True, True)
            events = gateway.events[truth["session_id"]]
            assert bool(payloads(events, Abandoned)) is (truth["outcome"] == "abandoned")
            assert not payloads(events, EditSurvival)
            if truth["outcome"] != "abandoned":
                task = generate_task("live", visit_seed(truth))
                assert payloads(events, Commit)[0].files == task.reference
    assert env.forks == 30


@pytest.mark.usefixtures("env")
async def test_what_persons_know_never_reaches_the_gateway(tmp_path: Path) -> None:
    """No report names a kind of task, a verdict or a hidden check before the person commits."""
    gateway, truths, _ = await run(tmp_path, able, 12)
    for truth in truths:
        told = [e for e in gateway.events[truth["session_id"]] if not isinstance(e.payload, Commit)]
        text = msgspec.json.encode(told).decode()
        assert not any(word in text for word in ("solved", "persistence", "test_hidden", "mutation", truth["task_id"]))


@pytest.mark.usefixtures("env")
async def test_the_same_requests_for_every_model() -> None:
    """Held-out requests are paired, report nothing to the gateway, and give the truth in order."""
    gateway = Gateway(tasks_of("held_out", 5, 12), able)
    asks = Gateway(gateway.tasks, asking)
    async with serving(gateway) as one, serving(asks) as two:
        first = await run_requests(RequestsConfig(one, "", "ostinato@release", sessions=12, first=5))
        second = await run_requests(
            RequestsConfig(two, "", "ostinato@evaluation", sessions=12, first=5, temperature=0.0)
        )
    assert [truth.task_id for truth in first] == [truth.task_id for truth in second]
    assert all(truth.solved for truth in first)
    assert {truth.model for truth in second} == {"ostinato@evaluation"}
    assert {truth.temperature for truth in second} == {0.0}
    assert not any(truth.solved for truth in second if truth.persistence is not None)
    assert not gateway.events


@pytest.mark.usefixtures("env")
async def test_a_stop_ends_an_endless_run(tmp_path: Path) -> None:
    """No further session begins, and the record holds what was had."""
    gateway, stop = Gateway(tasks_of("live", 0, 400), able), asyncio.Event()
    async with serving(gateway) as url:
        config = PersonsConfig(url, "", str(tmp_path), progress=str(tmp_path / "progress"))
        task = asyncio.create_task(run_persons(config, stop))
        while gateway.chats < 20:
            await asyncio.sleep(0.01)
        stop.set()
        counts = await task
    assert 0 < counts.sessions < 400
    assert len((tmp_path / "persons-live-0.jsonl").read_text().splitlines()) == counts.sessions


async def test_absent_servers_end_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions that cannot begin are counted, and after many in a row the run says so."""
    monkeypatch.setattr(persons, "FAILURES_IN_A_ROW", 3)
    config = PersonsConfig("http://127.0.0.1:9", "http://127.0.0.1:9", str(tmp_path), progress=str(tmp_path / "p"))
    with pytest.raises(UnavailableError, match="3 sessions in a row"):
        await run_persons(config)
    assert json.loads((tmp_path / "p").read_text().splitlines()[-1])["failed_starts"] >= 3


@pytest.mark.usefixtures("env")
async def test_a_gateway_without_a_model_is_recorded(tmp_path: Path) -> None:
    """The agent's first request fails: a session without a response, told in the record, not reported."""
    config = PersonsConfig(
        "http://127.0.0.1:9", "", str(tmp_path), sessions=3, progress=str(tmp_path / "p"), clock_rate=2000.0
    )
    counts = await run_persons(config)
    assert counts.outcomes == {"model_error": 3}
    truths = [json.loads(line) for line in (tmp_path / "persons-live-0.jsonl").read_text().splitlines()]
    assert all(truth["end"] == "model_error" and truth["error"] for truth in truths)
