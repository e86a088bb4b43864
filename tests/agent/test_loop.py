"""The loop against a scripted Chat Completions server over HTTP."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from ostinato.agent import AgentConfig, AgentRun, ChatClient, FilesWorkspace, read_reply, run_agent
from ostinato.records import BadInputError, MissingError, UnavailableError

FILES = {"a.py": "def f(x):\n    return x - 1\n"}
Say = dict[str, Any]


def call(name: str, **arguments: str) -> Say:
    return calls((name, json.dumps(arguments)))


def calls(*pairs: tuple[str, str]) -> Say:
    made = [
        {"id": f"call_{n}", "type": "function", "function": {"name": name, "arguments": text}}
        for n, (name, text) in enumerate(pairs)
    ]
    return {"role": "assistant", "content": None, "tool_calls": made}


def reply(text: str) -> Say:
    return {"role": "assistant", "content": text}


class Server:
    """Says one scripted message after the other (the last one again and again) and keeps what it was asked."""

    def __init__(self, script: list[Say | int]) -> None:
        self.script, self.asked, self.headers = script, list[Say](), list[dict[str, str]]()

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(await request.json())
        self.headers.append(dict(request.headers))
        said = self.script[min(len(self.asked), len(self.script)) - 1]
        if isinstance(said, int):
            return web.json_response({"error": {"message": "no", "type": "x"}}, status=said)
        choice = {"index": 0, "message": said, "finish_reason": "stop"}
        body = {"id": f"r{len(self.asked)}", "choices": [choice], "usage": {"completion_tokens": 5}}
        return web.json_response(body)


@asynccontextmanager
async def serving(server: Server) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/v1/chat/completions", server.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def judged(files: Any) -> str:
    return "passed" if "x + 1" in files["a.py"] else "failed: f"


async def run(script: list[Say | int], config: AgentConfig | None = None) -> tuple[AgentRun, Server, FilesWorkspace]:
    server, place = Server(script), FilesWorkspace(FILES, judged)
    async with serving(server) as url, ChatClient(url, "ostinato", "ann", "s1", key="k", sandbox="sb") as chat:
        done = await run_agent(config or AgentConfig(), "f is off", place, chat)
    return done, server, place


GOOD: list[Say | int] = [
    call("search", pattern="def f"),
    call("edit_file", path="a.py", old="x - 1", new="x + 1"),
    call("run_tests"),
    reply("Fixed f."),
]


async def test_a_whole_run() -> None:
    """Calls are carried out, results go back, the reply ends the run; headers name person, session and sandbox."""
    done, server, place = await run(GOOD)
    assert (done.end, done.reply, done.edited) == ("done", "Fixed f.", True)
    assert (done.turns, done.tool_calls, done.invalid_calls, done.tokens) == (4, 3, 0, 20)
    assert done.response_ids == ("r1", "r2", "r3", "r4")
    assert place.files["a.py"] == "def f(x):\n    return x + 1\n"
    assert [m.content for m in done.messages if m.role == "tool"] == ["a.py:1: def f(x):", "ok", "passed"]
    assert server.headers[0]["X-Ostinato-Session"] == "s1"
    assert server.headers[0]["X-Ostinato-Person"] == "ann"
    assert server.headers[0]["X-Ostinato-Sandbox"] == "sb"
    assert server.headers[0]["Authorization"] == "Bearer k"
    assert [tool["function"]["name"] for tool in server.asked[0]["tools"]] == [
        "search", "read_file", "edit_file", "run_tests",
    ]  # fmt: skip
    assert done.ended("sb").tool_calls == 3


async def test_history_is_sent_back_as_it_came() -> None:
    """Each request holds the earlier messages unchanged, assistant messages exactly as the server said them."""
    _, server, _ = await run(GOOD)
    for before, after in zip(server.asked, server.asked[1:], strict=False):
        assert after["messages"][: len(before["messages"])] == before["messages"]
    assert server.asked[1]["messages"][1] == GOOD[0]


async def test_a_system_prompt_comes_first() -> None:
    """Where one is set."""
    done, server, _ = await run([reply("hi")], AgentConfig(system_prompt="Be brief.", temperature=0.3, max_tokens=7))
    assert server.asked[0]["messages"][0] == {"role": "system", "content": "Be brief."}
    assert (server.asked[0]["temperature"], server.asked[0]["max_tokens"]) == (0.3, 7)
    assert done.messages[0].role == "system"


async def test_several_calls_in_one_turn_run_in_order() -> None:
    """Both edits of one turn are made, with a result for each."""
    one = ("edit_file", json.dumps({"path": "a.py", "old": "x - 1", "new": "x * 1"}))
    two = ("edit_file", json.dumps({"path": "a.py", "old": "x * 1", "new": "x + 1"}))
    done, server, place = await run([calls(one, two), reply("Done.")])
    assert "x + 1" in place.files["a.py"]
    assert (done.turns, done.tool_calls) == (2, 2)
    assert [m["tool_call_id"] for m in server.asked[1]["messages"][2:]] == ["call_0", "call_1"]


@pytest.mark.parametrize(
    ("script", "config", "end"),
    [
        ([call("run_tests")], AgentConfig(max_turns=3), "turn_limit"),
        ([call("run_tests")], AgentConfig(time_limit_s=-1.0), "time_limit"),
        ([call("fly")], AgentConfig(), "invalid_calls"),
        ([calls(("search", "not json"))], AgentConfig(), "invalid_calls"),
        ([calls(("search", "[1]"))], AgentConfig(max_invalid=1), "invalid_calls"),
        ([reply("  \n")], AgentConfig(), "empty_answer"),
        ([call("run_tests"), 503], AgentConfig(), "model_error"),
        ([404], AgentConfig(), "model_error"),
    ],
)
async def test_every_end_has_its_name(script: list[Say | int], config: AgentConfig, end: str) -> None:
    """Limits and failures end the run by name, and nothing is raised."""
    done, _, _ = await run(script, config)
    assert done.end == end
    assert bool(done.error) is (end == "model_error")
    if end == "invalid_calls":
        assert done.invalid_calls == config.max_invalid


async def test_a_dead_workspace_ends_the_run() -> None:
    """The sandbox dies in the middle."""

    class Dead(FilesWorkspace):
        async def run_tests(self) -> str:
            raise UnavailableError("sandbox sb is gone.")

    server = Server([call("run_tests")])
    async with serving(server) as url, ChatClient(url, "m", "p", "s") as chat:
        done = await run_agent(AgentConfig(), "go", Dead(FILES, judged), chat)
    assert (done.end, done.error) == ("sandbox_died", "sandbox sb is gone.")


async def test_an_absent_gateway_is_a_model_error() -> None:
    """Nobody listens."""
    async with ChatClient("http://127.0.0.1:9", "m", "p", "s") as chat:
        done = await run_agent(AgentConfig(), "go", FilesWorkspace(FILES, judged), chat)
        assert done.end == "model_error"
        with pytest.raises(UnavailableError, match=r"127\.0\.0\.1:9"):
            await chat.query([], tools=(), max_tokens=1, temperature=1.0)


async def test_refusals_keep_the_servers_words() -> None:
    """A 404 is a missing thing, a 400 bad input, both with the message."""
    async with serving(Server([404, 400])) as url, ChatClient(url, "m", "p", "s") as chat:
        with pytest.raises(MissingError, match="404: no"):
            await chat.query([], tools=(), max_tokens=1, temperature=1.0)
        with pytest.raises(BadInputError, match="400: no"):
            await chat.query([], tools=(), max_tokens=1, temperature=1.0)


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"choices": []}', b'{"id": "r", "choices": [{"message": 3}]}'])
def test_strange_answers_are_bad_input(text: bytes) -> None:
    """Whatever a wrong server says, the error shows it."""
    with pytest.raises(BadInputError, match="Chat Completions"):
        read_reply(text)
