"""Secrets in requests, answers and feedback: served, and nowhere on disk."""

import base64
import random
import string
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from ostinato.dashboard import write_report
from ostinato.engine import ScriptedEngine
from ostinato.gateway.secrets import MARK, MessageCleaner, clean, clean_text
from ostinato.render import TinyFormat
from ostinato.store import Ledger

Start = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]
LETTERS = string.ascii_letters + string.digits
rng = random.Random(20261)


def some(count: int, letters: str = LETTERS) -> str:
    return "".join(rng.choices(letters, k=count - 2)) + "a7"


def token(*parts: str) -> str:
    """Put together here, so that no scanner takes this file for one that holds a secret."""
    return "".join(parts)


def pem() -> str:
    body = "\n".join(some(64) for _ in range(3))
    return token("-----BEGIN RSA PRIVATE", f" KEY-----\n{body}\n-----END RSA PRIVATE", " KEY-----")


def jwt() -> str:
    parts = [
        base64.urlsafe_b64encode(f'{{"{key}":"{some(20)}"}}'.encode()).decode().rstrip("=") for key in ("alg", "u")
    ]
    return f"{parts[0]}.{parts[1]}.{some(40)}"


FORMS: list[Callable[[], tuple[str, str]]] = [
    # What is written, with {} for the secret, and the secret.
    lambda: ("use {} here", token("AK", "IA", some(16, string.ascii_uppercase + string.digits).upper())),
    lambda: ("GH={}", token("gh", "p_", some(36))),
    lambda: ("{}", token("github_", "pat_", some(60))),
    lambda: ("token is {}.", token("glp", "at-", some(20))),
    lambda: ("slack: {}", token("xo", "xb-", some(12, string.digits + "12"), "-", some(24))),
    lambda: ("key={}&x=1", token("AI", "za", some(35))),
    lambda: ("stripe {}", token("sk_", "live_", some(24))),
    lambda: ("OPENAI_API_KEY={}", token("sk-", "proj-", some(48))),
    lambda: ("claude {}", token("sk-", "ant-api03-", some(40))),
    lambda: ("login with {}", token("hf", "_", some(34))),
    lambda: ("//registry.npmjs.org/:_authToken={}", token("npm", "_", some(36))),
    lambda: ("password = {}", token("py", "pi-", some(60))),
    lambda: ("mail {}", token("SG", ".", some(22), ".", some(43))),
    lambda: ("cookie {}", jwt()),
    lambda: ("key file:\n{}\n", pem()),
    lambda: ("postgres://app:{}@db.internal:5432/app", some(14)),
    lambda: ("curl -H 'Authorization: Bearer {}'", some(40)),
    lambda: ('password = "{}"', some(18)),
    lambda: ("client_secret: {}", some(32)),
    lambda: ('{{"apiKey": "{}"}}', some(24)),
    lambda: ("export AWS_SECRET_ACCESS_KEY={}", some(40, LETTERS + "/+")),
]
PLANTED = [FORMS[number % len(FORMS)]() for number in range(500)]
HARMLESS = [
    "fix add in calc.py, the tests fail with KeyError: 'token'",
    "password = input('password: ')",
    "token = tokens[index]; key = keys[0]",
    "def secret_santa(names): return dict(zip(names, names[1:]))",
    "see https://example.com:8080/path@2x.png and git@github.com:me/repo.git",
    "commit 3aacb3b1f0c4d5e6a7b8c9d0e1f2a3b4c5d6e7f8",
    "api_key = os.environ['API_KEY']",
    "sk-learn and task-runner-configuration",
    "token_count: number_of_tokens",
]


def test_each_form_is_found_and_only_the_secret_goes() -> None:
    """What stands around a secret stays."""
    for text, secret in PLANTED:
        cleaned, found = clean_text(text.format(secret))
        assert found == 1 and secret not in cleaned and MARK in cleaned, text
        assert clean_text(cleaned) == (cleaned, 0)


@pytest.mark.parametrize("text", HARMLESS)
def test_code_and_prose_are_left_alone(text: str) -> None:
    """No false alarm, and the request's bytes stay as they came."""
    assert clean_text(text) == (text, 0)
    raw = b'[ {"role":"user","content":' + msgspec.json.encode(text) + b"} ]"
    cleaner = MessageCleaner()
    assert cleaner.clean(raw) == cleaner.clean(raw) == (raw, 0)


def test_nested_texts_and_split_parts_are_read() -> None:
    """A tool call's arguments are JSON in JSON; the parts of a message are one text."""
    text, secret = PLANTED[17]
    arguments = msgspec.json.encode({"path": "a.py", "new": text.format(secret)}).decode()
    call = {"id": "c1", "type": "function", "function": {"name": "edit", "arguments": arguments}}
    parts = [{"type": "text", "text": half} for half in (f"my key {PLANTED[1][1][:9]}", PLANTED[1][1][9:])]
    raw = msgspec.json.encode([{"role": "assistant", "tool_calls": [call]}, {"role": "user", "content": parts}])
    kept, found = MessageCleaner().clean(raw)
    assert found == 2 and secret not in kept.decode() and PLANTED[1][1][9:] not in kept.decode()
    assert clean({"a": [f"{PLANTED[0][1]}", 1, None]}).content == {"a": [MARK, 1, None]}


def events(response_id: str, number: int, said: str) -> list[dict[str, Any]]:
    commit = {"base": "b", "request": "r", "files": {"a.py": said}, "tests": {}, "test_command": ["t"]}
    payloads = [
        {"kind": "followup", "text": said},
        {"kind": "comment", "text": said},
        {"kind": "commit", **commit},
        {"kind": "task.outcome", "succeeded": True, "detail": said},
    ]
    payload = payloads[number % len(payloads)]
    return [{"event_id": f"e{number}", "response_id": response_id, "at": 1.0, "payload": payload}]


async def plant(client: httpx.AsyncClient, number: int, says: Callable[[str], None]) -> None:
    """One secret, in one of five places: the request, its parts, a tool's result, the answer, the feedback."""
    text, secret = PLANTED[number]
    said = text.format(secret)
    place = number % 5
    half = len(said) // 2
    asked: list[dict[str, Any]] = [{"role": "user", "content": said if place == 0 else f"please work {number}"}]
    if place == 1:
        asked = [{"role": "user", "content": [{"type": "text", "text": t} for t in (said[:half], said[half:])]}]
    if place == 2:
        call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": '{"path": "a"}'}}
        asked += [{"role": "assistant", "content": None, "tool_calls": [call]}]
        asked += [{"role": "tool", "tool_call_id": "c", "content": said}]
    says(said if place == 3 else "done")
    body = {"model": "ostinato", "messages": asked, "stream": number % 2 == 0, "max_tokens": 2000}
    headers = {"X-Ostinato-Session": f"s{number}"}
    answer = await client.post("/v1/chat/completions", json=body, headers=headers)
    assert answer.status_code == 200
    if place == 3 and number % 2:
        assert answer.json()["choices"][0]["message"]["content"] == said, "people are served what was drawn"
    if place == 4:
        response_id = (await client.get(f"/v1/sessions/s{number}")).json()["turns"][0]["turn_id"]
        told = await client.post("/v1/feedback", json=events(response_id, number // 5, said))
        assert told.status_code == 200, told.text


async def test_five_hundred_planted_secrets_are_nowhere(
    start: Start, tiny: TinyFormat, ledger: Ledger, data: Path, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """In requests, split parts, tool results, answers drawn token by token, and feedback: not in the ledger, its
    journal, trace files, token ids, the log or the report. Turns that held one have no tokens; others have."""
    answer: list[int] = []

    def say(text: str) -> None:
        answer[:] = [*tiny.tokenizer.encode(text), tiny.end]

    async with start(ScriptedEngine(lambda _: list(answer)), seal_s=0.05) as client:
        for number in range(len(PLANTED)):
            await plant(client, number, say)
        for number in range(20):
            say("done")
            body = {"model": "ostinato", "messages": [{"role": "user", "content": HARMLESS[number % len(HARMLESS)]}]}
            await client.post("/v1/chat/completions", json=body, headers={"X-Ostinato-Session": f"clean{number}"})
    page = write_report(ledger, tmp_path / "page", title="t")
    files = [path.read_bytes() for folder in (data, page.parent) for path in folder.rglob("*") if path.is_file()]
    spelled = {}
    for row in ledger.sessions("live"):
        for turn in ledger.turns(row.session_id):
            ids = [] if turn.trace is None else [*turn.trace.prompt_ids, *turn.trace.ids]
            spelled[row.session_id] = tiny.tokenizer.decode(ids)
            held = not row.session_id.startswith("clean") and int(row.session_id[1:]) % 5 != 4
            assert turn.trainable != held and (turn.untrainable_reason == "held a secret") == held
    everything = " ".join(spelled.values()) + caplog.text
    for _, secret in PLANTED:
        forms = {secret.encode(), msgspec.json.encode(secret)[1:-1]}
        assert not any(form in content for form in forms for content in files)
        assert secret not in everything
    counted = ledger.counters()
    assert counted["turns.with_secrets"] == 400 and counted["feedback.with_secrets"] == 100
    assert all(spelled[f"clean{number}"] for number in range(20))
