"""Chat requests: what clients get, and what the ledger holds afterwards."""

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx
import openai
import pytest

from ostinato.engine import ScriptedEngine
from ostinato.records import Message, ToolCall, ToolSpec, VersionSpan
from ostinato.render import TinyFormat
from ostinato.store import Ledger

Start = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]

TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "read_file",
            "description": "Read.",
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
        },
    }
]
SPEC = (ToolSpec("read_file", "Read.", TOOLS[0]["function"]["parameters"]),)


def _says(tiny: TinyFormat, *replies: str) -> Callable[[list[int]], list[int]]:
    """An engine's script: the replies one after another. `path?` at the end of one is a call of read_file."""
    waiting = list(replies)

    def emit(_: list[int]) -> list[int]:
        text = waiting.pop(0)
        calls = (ToolCall("", "read_file", {"path": "a.py"}),) if text.endswith("path?") else ()
        return tiny.message_ids(Message("assistant", text.removesuffix("path?"), calls), SPEC)[1:]

    return emit


def _body(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": "ostinato", "messages": list(messages), **more}


USER: Any = {"role": "user", "content": "please fix"}


async def test_the_openai_client_works_whole_and_streamed(start: Start, tiny: TinyFormat) -> None:
    """The official client, with tools: the same reply both ways, with usage and log-probabilities."""
    engine = ScriptedEngine(_says(tiny, "Look. path?", "Look. path?", "done"))
    async with start(engine) as http, openai.AsyncOpenAI(base_url=f"{http.base_url}/v1", api_key="none") as client:
        names = [model.id async for model in client.models.list()]
        assert names == ["ostinato", "ostinato@release", "ostinato@candidate", "ostinato@evaluation"]
        headers = {"X-Ostinato-Session": "a"}
        whole = await client.chat.completions.create(
            model="ostinato",
            messages=[USER],
            tools=TOOLS,
            logprobs=True,
            extra_headers=headers,
        )
        choice = whole.choices[0]
        assert choice.finish_reason == "tool_calls"
        assert choice.message.content == "Look. "
        (made,) = choice.message.tool_calls or []
        assert made.type == "function"
        assert json.loads(made.function.arguments) == {"path": "a.py"}
        assert whole.usage is not None
        assert whole.system_fingerprint == "v-scripted"
        rows = choice.logprobs.content if choice.logprobs else None
        assert rows is not None
        assert len(rows) == whole.usage.completion_tokens
        assert {row.logprob for row in rows} == {-0.5}
        text, name, arguments, ends, streamed_rows, total = "", "", "", [], 0, 0
        stream = await client.chat.completions.create(
            model="ostinato",
            messages=[USER],
            tools=TOOLS,
            stream=True,
            logprobs=True,
            stream_options={"include_usage": True},
        )
        async for event in stream:
            total = event.usage.total_tokens if event.usage else total
            for part in event.choices:
                text += part.delta.content or ""
                streamed_rows += len(part.logprobs.content or []) if part.logprobs else 0
                for call in part.delta.tool_calls or []:
                    name += call.function.name or "" if call.function else ""
                    arguments += call.function.arguments or "" if call.function else ""
                ends += [part.finish_reason] if part.finish_reason else []
        assert (text, name, json.loads(arguments), ends) == ("Look. ", "read_file", {"path": "a.py"}, ["tool_calls"])
        assert (streamed_rows, total) == (len(rows), whole.usage.total_tokens)


async def test_turns_are_token_exact_over_a_restart(start: Start, tiny: TinyFormat, ledger: Ledger) -> None:
    """A tool session of four turns, the gateway restarted in the middle: each context begins with all earlier ids."""
    engine = ScriptedEngine(_says(tiny, "path?", "ok path?", "path?", "done"), experts_shape=(2, 2))
    messages: list[dict[str, Any]] = [USER]
    headers = {"X-Ostinato-Session": "s1", "X-Ostinato-Person": "ann"}

    async def turn(client: httpx.AsyncClient) -> None:
        answer = await client.post("/v1/chat/completions", json=_body(*messages, tools=TOOLS), headers=headers)
        assert answer.status_code == 200, answer.text
        assert answer.headers["x-ostinato-session"] == "s1"
        reply = answer.json()["choices"][0]["message"]
        messages.append(reply)
        result = {"role": "tool", "content": "error: no such file a.py"}
        messages.extend(result | {"tool_call_id": call["id"]} for call in reply.get("tool_calls", []))

    for _ in range(2):
        async with start(engine) as client:
            await turn(client)
            await turn(client)
    turns = ledger.turns("s1")
    row = ledger.session("s1")
    assert row is not None
    assert (row.person, row.purpose, row.found_by) == ("ann", "live", "header")
    assert [(turn.index, turn.segment, turn.trainable, turn.untrainable_reason) for turn in turns] == [
        (i, 0, True, "") for i in range(4)
    ]
    held: list[int] = []
    for number, (one, request) in enumerate(zip(turns, engine.requests, strict=True)):
        assert one.trace is not None
        assert one.trace.context_len == len(held)
        assert request.ids == held + one.trace.prompt_ids
        # The last sampled token's choices come with the next turn: no position is asked twice, none is left out.
        assert request.experts_from == (len(held) - 1 if number else 0)
        assert len(one.trace.experts) == 2 * 2 * 2 * (len(request.ids) + len(one.trace.ids) - 1 - request.experts_from)
        assert one.versions == (VersionSpan(0, "v-scripted"),)
        held = request.ids + one.trace.ids


async def test_a_rewritten_history_opens_a_segment(start: Start, tiny: TinyFormat, ledger: Ledger) -> None:
    """The turn says why, keeps recorded ids that still hold, and asks for all experts of the new segment."""
    engine = ScriptedEngine(_says(tiny, "one", "two", "three"), experts_shape=(1, 1))
    headers = {"X-Ostinato-Session": "s1"}
    one, two = {"role": "assistant", "content": "one"}, {"role": "assistant", "content": "changed"}
    async with start(engine) as client:
        for messages in ([USER], [USER, one, USER], [USER, one, USER, two, USER]):
            answer = await client.post("/v1/chat/completions", json=_body(*messages), headers=headers)
            assert answer.status_code == 200
    last = ledger.turns("s1")[-1]
    assert (last.segment, last.segment_reason) == (1, "history rewritten at message 4")
    assert last.trace is not None
    assert (last.trace.context_len, engine.requests[-1].experts_from) == (0, 0)
    first = engine.requests[0].ids + tiny.tokenizer.encode("one") + [tiny.end]
    assert engine.requests[-1].ids[: len(first)] == first


async def test_sessions_are_found_by_their_messages(start: Start, tiny: TinyFormat, ledger: Ledger) -> None:
    """Without a header: what extends a session joins it, also after a restart; another person's does not."""
    engine = ScriptedEngine(_says(tiny, "one", "two", "three", "four", "five", "six"))
    one, two = {"role": "assistant", "content": "one"}, {"role": "assistant", "content": "two"}
    seen: list[str] = []

    async def ask(client: httpx.AsyncClient, *messages: dict[str, Any], user: str = "ann") -> None:
        answer = await client.post("/v1/chat/completions", json=_body(*messages, user=user))
        seen.append(answer.headers["x-ostinato-session"])

    async with start(engine) as client:
        await ask(client, USER)
        await ask(client, USER, one, USER)
        await ask(client, USER)
    async with start(engine) as client:
        await ask(client, USER, one, USER, two, USER)
        await ask(client, USER, one, USER, user="bob")
        await ask(client, USER)
    assert seen[0] == seen[1] == seen[3]
    assert len({seen[0], seen[2], seen[4], seen[5]}) == 4
    assert [turn.segment_reason for turn in ledger.turns(seen[0])] == ["", "", ""]
    assert ledger.counters()["chat.unattributed"] == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_stop_texts_cut_the_reply_and_the_session_goes_on(
    start: Start, tiny: TinyFormat, ledger: Ledger, stream: bool
) -> None:
    """The client sees the text before the stop text; the ids are kept as drawn; the echo extends the segment."""
    engine = ScriptedEngine(_says(tiny, "abcSTOPdef", "x"))
    headers = {"X-Ostinato-Session": "s1"}
    async with start(engine) as client:
        body = _body(USER, stop=["STOP", "zzz"], stream=stream)
        answer = await client.post("/v1/chat/completions", json=body, headers=headers)
        echo = {"role": "assistant", "content": "abc"}
        assert "STOP" not in answer.text
        again = await client.post("/v1/chat/completions", json=_body(USER, echo, USER), headers=headers)
        assert again.status_code == 200
    first, second = ledger.turns("s1")
    assert (first.finish_reason, first.trainable, second.segment_reason) == ("stop", True, "")
    assert engine.cancelled == 1


async def test_the_limit_on_tokens_is_length(start: Start, tiny: TinyFormat) -> None:
    """`max_completion_tokens` reaches the engine, and the reply says that it was cut."""
    engine = ScriptedEngine(_says(tiny, "a long reply"))
    async with start(engine) as client:
        body = _body(USER, max_completion_tokens=3, temperature=0, seed=5, top_p=0.5)
        answer = (await client.post("/v1/chat/completions", json=body)).json()
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 3
    sampling = engine.requests[0].sampling
    assert (sampling.max_tokens, sampling.temperature, sampling.seed, sampling.top_p) == (3, 0.0, 5, 0.5)


async def test_no_chunk_is_final_before_the_turn_is_stored(start: Start, tiny: TinyFormat, ledger: Ledger) -> None:
    """When a client reads the finish reason, another process already reads the whole turn."""
    engine = ScriptedEngine(_says(tiny, "hello"))
    async with start(engine) as client:
        body = _body(USER, stream=True)
        async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
            session_id = answer.headers["x-ostinato-session"]
            async for line in answer.aiter_lines():
                if '"role"' in line:
                    assert ledger.turns(session_id)[0].turn_id == json.loads(line[6:])["id"]
                    assert json.loads(ledger.request(ledger.turns(session_id)[0].turn_id)) == [USER]
                if '"finish_reason":"stop"' in line:
                    assert ledger.turns(session_id)[0].trainable


async def test_arms_are_sticky_and_explicit_slots_are_episodes(start: Start, tiny: TinyFormat, ledger: Ledger) -> None:
    """Persons keep their arm; a session opened before the experiment stays with the release; a slot by name is no
    person's use; a candidate that has gone is answered by the release, and the turn says so."""
    from ostinato.records import Experiment, arm_of

    versions = {"release": "v-r", "candidate": "v-c", "evaluation": "v-e"}
    engine = ScriptedEngine(lambda _: [*tiny.tokenizer.encode("ok"), tiny.end], versions=versions)
    people = [f"p{i}" for i in range(20)]
    experiment = Experiment("x1", 1, "v-c", "v-r", 0.0, "running")

    async def ask(client: httpx.AsyncClient, person: str, session: str, model: str = "ostinato") -> str:
        headers = {"X-Ostinato-Person": person, "X-Ostinato-Session": session}
        answer = await client.post("/v1/chat/completions", json=_body(USER) | {"model": model}, headers=headers)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["system_fingerprint"])

    candidates = [person for person in people if arm_of(person, "x1") == "candidate"]
    async with start(engine) as client:
        assert await ask(client, candidates[0], "before") == "v-r"
        ledger.put_experiment(experiment)
        assert (await client.post("/admin/refresh")).json()["experiment"]["experiment_id"] == "x1"
        for person in people * 2:
            expected = "v-c" if person in candidates else "v-r"
            assert await ask(client, person, f"s-{person}") == expected
        assert await ask(client, candidates[0], "before") == "v-r"
        assert await ask(client, "us", "episode", "ostinato@evaluation") == "v-e"
        del versions["candidate"]
        assert await ask(client, candidates[0], f"s-{candidates[0]}") == "v-r"
        gone = ledger.turns(f"s-{candidates[0]}")[-1]
        episode = ledger.session("episode")
        row = ledger.session(f"s-{candidates[0]}")
    assert 0 < len(candidates) < len(people)
    assert (gone.slot, gone.versions, gone.trainable) == ("release", (VersionSpan(0, "v-r"),), True)
    assert episode is not None
    assert row is not None
    assert (episode.purpose, episode.arm, episode.experiment_id) == ("episode", None, None)
    assert (row.arm, row.experiment_id) == ("candidate", "x1")


async def test_turns_that_swap_versions_midway_say_where(start: Start, tiny: TinyFormat, ledger: Ledger) -> None:
    """Each token's version is stored."""
    engine = ScriptedEngine(_says(tiny, "abcdef"))
    engine.versions = _Swapping(3)
    async with start(engine) as client:
        answer = await client.post("/v1/chat/completions", json=_body(USER), headers={"X-Ostinato-Session": "s1"})
        assert answer.status_code == 200
    assert ledger.turns("s1")[0].versions == (VersionSpan(0, "v-1"), VersionSpan(3, "v-2"))


class _Swapping(dict[str, str]):
    """Holds v-1 for so many looks, then v-2."""

    def __init__(self, looks: int) -> None:
        super().__init__(release="v-1")
        self._looks = looks

    def __getitem__(self, slot: str) -> str:
        self._looks -= 1
        return "v-1" if self._looks >= 0 else "v-2"


async def test_a_conversation_that_does_not_fit_is_refused_before_it_is_a_turn(
    start: Start, tiny: TinyFormat, ledger: Ledger
) -> None:
    """OpenAI's code says so; no turn begins, so what the session has stays exact and can be trained on."""
    async with start(ScriptedEngine(_says(tiny, "fine")), max_context=60) as client:
        headers = {"X-Ostinato-Session": "s1"}
        assert (await client.post("/v1/chat/completions", json=_body(USER), headers=headers)).status_code == 200
        said = {"role": "assistant", "content": "fine"}
        long = {"role": "user", "content": "many words " * 40}
        answer = await client.post("/v1/chat/completions", json=_body(USER, said, long), headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    (turn,) = ledger.turns("s1")
    assert turn.trainable
