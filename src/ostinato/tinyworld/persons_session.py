"""One session of one person: the agent works in a sandbox on their repository, they look at what came of it."""

import time
from collections.abc import Mapping

import aiohttp
from msgspec import Struct
from msgspec.structs import replace

from ostinato.agent import AgentConfig, AgentRun, ChatClient, SandboxWorkspace, run_agent
from ostinato.envs.client import Environment
from ostinato.feedback import EditTracker, Survival
from ostinato.records import OstinatoError, Task, new_id
from ostinato.tinyworld.memory import judge
from ostinato.tinyworld.names import Split
from ostinato.tinyworld.persons_choices import Choice, View, choose, files_after, needless_comments
from ostinato.tinyworld.population import Visit
from ostinato.tinyworld.repository import Repository
from ostinato.tinyworld.tasks import generate_task

TEST_TIMEOUT_S = 20.0


class Truth(Struct, frozen=True):
    """What is true about one session, known to the persons alone and never sent to the gateway.

    `persistence`: surviving share of the edit in the end, 0 where none is left or none was made, None where none was
    wanted. `dissatisfied`: complained or left. `solved`: the hidden tests pass on what the agent left (a question: the
    reply has the answer and nothing was edited). `error`: why there was no session to judge ("" if there was)."""

    session_id: str
    person: str
    session: int
    split: str
    task_id: str
    kind: str
    tags: dict[str, str]
    model: str
    temperature: float
    outcome: str
    solved: bool
    persistence: float | None
    dissatisfied: bool
    edited: bool
    asked: bool
    comment: bool
    tokens: int
    tool_calls: int
    invalid_calls: int
    turns: int
    seconds: float
    end: str
    request: str
    reply: str
    error: str = ""


class Session(Struct, frozen=True):
    """A session that has been had: all that its person knows. `repository` is theirs, at the commit that the agent
    began from; `base` is the id of that start state, `sandboxes` and `requests` count what it took: forks, and chat
    requests."""

    visit: Visit
    task: Task
    repository: Repository
    session_id: str
    sandbox_id: str
    base: str
    run: AgentRun
    changed: dict[str, str | None]
    solved: bool
    choice: Choice
    truth: Truth
    sandboxes: int
    requests: int


class Caller(Struct, frozen=True):
    """How sessions reach the product: the model's name and settings, and the connections."""

    gateway: str
    model: str
    agent: AgentConfig
    env: Environment
    http: aiohttp.ClientSession
    key: str = ""
    purpose: str = "live"


async def have_session(caller: Caller, visit: Visit, split: Split) -> Session:
    """Let the agent work on the visit's task and judge what it did. Raises `OstinatoError` when no sandbox can be had;
    what fails later is part of the session."""
    task = generate_task(split, visit.task_seed)
    session_id = new_id("s-")
    repository = Repository(task.files, visit.person.person_id, time.time())
    base = await caller.env.import_base(repository.files())
    sandbox = await caller.env.fork(base, purpose=caller.purpose)
    chat = ChatClient(
        caller.gateway, caller.model, visit.person.person_id, session_id, key=caller.key, sandbox=sandbox.sandbox_id,
        http=caller.http,
    )  # fmt: skip
    workspace = SandboxWorkspace(sandbox, task.test_command, TEST_TIMEOUT_S)
    run = await run_agent(caller.agent, task.request, workspace, chat)
    changed: dict[str, str | None] = {}
    try:
        if run.edited:
            changed = (await sandbox.diff()).files
        await sandbox.destroy()
    except OstinatoError as error:
        run = replace(run, end="sandbox_died", error=str(error))
    solved, checks = await _solved(caller, task, base, changed, run)
    view = _view(task, run, changed, solved)
    choice = choose(visit.person, view, visit.rng("choice"))
    truth = _truth(caller, visit, split, task, session_id, run, view, choice, changed)
    return Session(
        visit, task, repository, session_id, sandbox.sandbox_id, base, run, changed, solved, choice, truth, 1 + checks,
        chat.requests,
    )  # fmt: skip


def tracker_of(task: Task, changed: Mapping[str, str | None]) -> EditTracker:
    """Follows the agent's edit from the person's start state."""
    after = {path: text for path, text in (task.files | dict(changed)).items() if text is not None}
    return EditTracker(task.files, after)


async def _solved(
    caller: Caller, task: Task, base: str, changed: dict[str, str | None], run: AgentRun
) -> tuple[bool, int]:
    """Whether the task is done, by the person's own tests in a fresh sandbox that the agent never saw; and how many
    sandboxes that took."""
    if not task.wants_edit or not changed:
        files = {path: text for path, text in (task.files | changed).items() if text is not None}
        return not task.wants_edit and judge(task, files, run.reply), 0
    fresh = await caller.env.fork(base, files=changed | task.tests, purpose="check")
    try:
        result = await fresh.exec(task.test_command, timeout=TEST_TIMEOUT_S)
    finally:
        await fresh.destroy()
    return result.exit_code == 0 and not result.timed_out, 1


def _view(task: Task, run: AgentRun, changed: dict[str, str | None], solved: bool) -> View:
    return View(
        end=run.end,
        wants_edit=task.wants_edit,
        edited=bool(changed),
        passed=solved,
        comment=bool(needless_comments(task, changed)),
        answered=solved and not task.wants_edit,
        asked=run.reply.endswith("?") and not changed,
        tokens=run.tokens,
        tool_calls=run.tool_calls,
    )


def _truth(
    caller: Caller, visit: Visit, split: Split, task: Task, session_id: str, run: AgentRun, view: View, choice: Choice,
    changed: dict[str, str | None],
) -> Truth:  # fmt: skip
    failed = run.end in ("sandbox_died", "model_error")
    return Truth(
        session_id=session_id,
        person=visit.person.person_id,
        session=visit.session,
        split=split,
        task_id=task.task_id,
        kind=task.kind,
        tags={key: value for key, value in task.tags.items() if not key.startswith("slot_")},
        model=caller.model,
        temperature=caller.agent.temperature,
        outcome=_outcome(run, view, choice),
        solved=view.passed,
        persistence=_persistence(task, changed, choice),
        dissatisfied=choice.dissatisfied,
        edited=view.edited,
        asked=view.asked,
        comment=view.comment,
        tokens=run.tokens,
        tool_calls=run.tool_calls,
        invalid_calls=run.invalid_calls,
        turns=run.turns,
        seconds=run.model_s + run.tools_s,
        end=run.end,
        request=task.request,
        reply=run.reply,
        error=run.error or run.end if failed else "",
    )


def _persistence(task: Task, changed: dict[str, str | None], choice: Choice) -> float | None:
    if not task.wants_edit:
        return None
    if not changed or choice.action not in ("keep", "mend"):
        return 0.0
    last: Survival = tracker_of(task, changed).survival(files_after(task, changed, choice))
    return min(last.four_gram, last.no_revert)


def _outcome(run: AgentRun, view: View, choice: Choice) -> str:
    """In the person's words, for the record and the live view."""
    if run.end in ("sandbox_died", "model_error"):
        return run.end
    if choice.action != "none":
        return {"keep": "kept", "mend": "mended", "revert": "reverted", "abandon": "abandoned"}[choice.action]
    if view.answered:
        return "answered"
    return "asked" if view.asked else "nothing_done"
