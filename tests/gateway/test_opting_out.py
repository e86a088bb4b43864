"""X-Ostinato-Train: no. The request is served, and nothing that was said is anywhere on disk."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx

from ostinato.engine import ScriptedEngine
from ostinato.records import Fate
from ostinato.render import TinyFormat
from ostinato.store import Ledger

Start = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]
ASKED, SAID, GRUMBLED = "the plan of the harbour", "keep it so", "useless, revert it"
OUT = {"X-Ostinato-Train": "no", "X-Ostinato-Session": "s1"}


def body(*contents: str) -> dict[str, Any]:
    roles = ("user", "assistant") * len(contents)
    messages = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=False)]
    return {"model": "ostinato", "messages": messages}


def grumble(response_id: str) -> dict[str, Any]:
    return {"event_id": "e1", "response_id": response_id, "at": 1.0, "payload": {"kind": "followup", "text": GRUMBLED}}


def on_disk(folder: Path, words: str, tiny: TinyFormat) -> list[str]:
    """The files that hold the words, as text or as token ids (16 or 32 bits, little-endian)."""
    ids = tiny.tokenizer.encode(words)
    forms = [words.encode(), *(b"".join(token.to_bytes(width, "little") for token in ids) for width in (2, 4))]
    return [
        str(path) for path in folder.rglob("*") if path.is_file() and any(form in path.read_bytes() for form in forms)
    ]


async def test_nothing_of_an_opted_out_session_is_kept(
    start: Start, tiny: TinyFormat, ledger: Ledger, data: Path
) -> None:
    """Two turns and a follow-up; the session is counted, its fate says why it is not trained on."""
    engine = ScriptedEngine(lambda _: [*tiny.tokenizer.encode(SAID), tiny.end])
    async with start(engine, seal_s=0.05) as client:
        first = (await client.post("/v1/chat/completions", json=body(ASKED), headers=OUT)).json()
        assert first["choices"][0]["message"]["content"] == SAID
        again = await client.post("/v1/chat/completions", json=body(ASKED, SAID, GRUMBLED), headers=OUT)
        assert again.status_code == 200
        told = await client.post("/v1/feedback", json=grumble(first["id"]))
        assert (told.status_code, told.json()["status"]) == (200, "opted_out")
    for words in (ASKED, SAID, GRUMBLED):
        assert on_disk(data, words, tiny) == []
    (fate,) = ledger.fates()
    assert (fate.fate, fate.session_id) == (Fate.OPTED_OUT.value, "s1")
    assert [turn.untrainable_reason for turn in ledger.turns("s1")] == ["opted out", "opted out"]
    assert ledger.accounts().balanced
    assert ledger.counters()["feedback.opted_out"] == 1


async def test_without_the_header_it_is_kept(start: Start, tiny: TinyFormat, data: Path) -> None:
    """So that the search on disk finds something where there is something."""
    engine = ScriptedEngine(lambda _: [*tiny.tokenizer.encode(SAID), tiny.end])
    async with start(engine) as client:
        await client.post("/v1/chat/completions", json=body(ASKED), headers={"X-Ostinato-Session": "s1"})
    assert on_disk(data, ASKED, tiny) != []


async def test_who_opts_out_midway_is_out_from_there_on(
    start: Start, tiny: TinyFormat, ledger: Ledger, data: Path
) -> None:
    """Also over a restart, and where the header is left out later."""
    engine = ScriptedEngine(lambda _: [*tiny.tokenizer.encode(SAID), tiny.end])
    async with start(engine) as client:
        await client.post("/v1/chat/completions", json=body("hello"), headers={"X-Ostinato-Session": "s1"})
        await client.post("/v1/chat/completions", json=body("hello", SAID, ASKED), headers=OUT)
    async with start(engine) as client:
        later = body("hello", SAID, ASKED, SAID, GRUMBLED)
        await client.post("/v1/chat/completions", json=later, headers={"X-Ostinato-Session": "s1"})
    assert on_disk(data, ASKED, tiny) == []
    assert on_disk(data, GRUMBLED, tiny) == []
    assert [row.fate for row in ledger.fates()] == ["opted_out"]


async def test_another_value_is_refused(start: Start, tiny: TinyFormat) -> None:
    """A header that is misspelt must not keep what was to be left out."""
    async with start(ScriptedEngine(lambda _: [tiny.end])) as client:
        answer = await client.post("/v1/chat/completions", json=body(ASKED), headers={"X-Ostinato-Train": "never"})
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "X-Ostinato-Train"
