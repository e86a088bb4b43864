"""`ostinato serve` as a person uses it: typed, asked over HTTP, ended, typed again; and what it says to bad input."""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from ostinato.demo import go_on
from ostinato.records import Rating
from ostinato.services import Claim, first_release
from ostinato.store import Ledger
from ostinato.weights import WeightStore

Ostinato = Callable[..., subprocess.CompletedProcess[str]]
FORBIDDEN = """
import ctypes, os, sys
ready, go = os.pipe(), os.pipe()
root, child = os.getuid() == 0, os.fork()
if child == 0:
    assert ctypes.CDLL(None, use_errno=True).unshare(0x10000000) == 0, os.strerror(ctypes.get_errno())
    os.write(ready[1], b"x")
    os.read(go[0], 1)
    with open("/proc/sys/user/max_user_namespaces", "w") as file:
        file.write("0")
    os.execv(sys.executable, [sys.executable, "-m", "ostinato", *sys.argv[1:]])
os.read(ready[0], 1)
for name in ("uid_map", "gid_map"):
    if name == "gid_map" and not root:
        open(f"/proc/{child}/setgroups", "w").write("deny")
    own = os.getuid() if name == "uid_map" else os.getgid()
    open(f"/proc/{child}/{name}", "w").write("0 0 4294967295" if root else f"{own} {own} 1")
os.write(go[1], b"x")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
"""Runs the command in a user namespace that allows no further one, as a hardened kernel does."""


class Served(NamedTuple):
    """One `ostinato serve` that is up."""

    process: subprocess.Popen[str]
    url: str
    release: str
    words: str

    def end(self, number: signal.Signals) -> int:
        """Send a signal; the exit status."""
        self.process.send_signal(number)
        return self.process.wait(60)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """Start `ostinato serve` on a data folder; it answers when this returns, and is gone when the test ends."""
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: str | Path) -> Served:
        command = [sys.executable, "-m", "ostinato", "serve", "--port", "0", "--data", tmp_path / "data", *arguments]
        process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        words = ""
        while "Stop with Ctrl-C" not in words:
            line = process.stdout.readline()
            assert line, f"it ended: {words}"
            words += line
        found = re.search(r"Serving (v-\w+) at (http://[\d.:]+)/v1", words)
        assert found, words
        return Served(process, found[2], found[1], words)

    yield run
    for process in started:
        if process.poll() is None:
            process.terminate()
            process.wait(60)
        assert process.stdout is not None
        process.stdout.close()


def children_of(pid: int) -> list[int]:
    """The process ids of the children, as the kernel tells them."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def alive(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")")[-1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def send(words: list[str], base: str, **other: str) -> dict[str, Any]:
    """Do what `curl -s URL -H HEADER -d BODY` does, at another port, with some words of the body replaced."""
    assert words[:2] == ["curl", "-s"]
    header, body = words[words.index("-H") + 1], words[words.index("-d") + 1]
    for old, new in other.items():
        assert old in body
        body = body.replace(old, new)
    url = words[2].replace("http://127.0.0.1:8080", base)
    answer = httpx.post(url, content=body, headers=dict([header.split(": ")]), timeout=60)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def commands_in(text: str) -> list[list[str]]:
    """The words of each command in a text."""
    lines = text.replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.strip().startswith(("curl", "ostinato"))]


def test_the_readme_shows_the_commands_that_the_demo_prints() -> None:
    """So that the test below runs both."""
    shown = commands_in((Path(__file__).parents[1] / "README.md").read_text())
    assert all(command in shown for command in commands_in(go_on()))


def test_the_printed_commands_serve_chat_and_take_feedback(
    tmp_path: Path, model_folder: Path, serve: Callable[..., Served], ostinato: Ostinato
) -> None:
    """The three commands that the demo prints work as they stand; a second instance is refused and harms nothing; both
    SIGTERM and Ctrl-C end every process within 5 s; the next start serves the same release."""
    data = tmp_path / "data"
    first, chat, feedback = commands_in(go_on())
    assert first[:4] == ["ostinato", "serve", "--model", "DIR"]

    served = serve("--model", model_folder)
    answer = send(chat, served.url)
    assert answer["system_fingerprint"] == served.release
    send(feedback, served.url, ID=answer["id"])

    second = ostinato("serve", "--model", model_folder, "--port", "0", "--data", data)
    expected = (
        f"ostinato: The data folder {data} is in use by process {served.process.pid}, which serves at {served.url}"
    )
    assert (second.returncode, second.stdout) == (1, "")
    assert second.stderr.startswith(expected)
    assert "--data" in second.stderr
    assert send(chat, served.url, add="sub")["id"] != answer["id"]

    children = children_of(served.process.pid)
    assert len(children) == 3
    began = time.monotonic()
    assert served.end(signal.SIGTERM) == 0
    assert time.monotonic() - began < 5
    assert not any(map(alive, children))

    with Ledger.open(data) as ledger:
        sessions = {row.session_id: row for row in ledger.sessions("live")}
        assert len(sessions) == 2
        rated = ledger.turn_session(answer["id"])
        assert rated is not None
        assert sessions[rated].person == "me"
        (turn,) = ledger.turns(rated)
        assert (turn.trainable, turn.untrainable_reason) == (True, "")
        assert [event.payload for event in ledger.feedback(rated)] == [Rating(value=1)]

    again = serve("--model", model_folder)
    assert again.release == served.release
    assert "That is the release of this data folder" in again.words
    children = children_of(again.process.pid)
    assert again.end(signal.SIGINT) == 0
    assert not any(map(alive, children))


def refused(result: subprocess.CompletedProcess[str]) -> str:
    """The error of a command that failed as it should: status 1, one or two lines, no traceback."""
    assert result.returncode == 1, result.stderr
    assert result.stderr.startswith("ostinato: ")
    assert len(result.stderr.strip().splitlines()) <= 2, result.stderr
    return result.stderr


def torn(folder: Path) -> None:
    """Half of the weights are missing."""
    weights = folder / "model.safetensors"
    os.truncate(weights, weights.stat().st_size // 2)


def foreign(folder: Path) -> None:
    """Another architecture."""
    change_config(folder, model_type="llama")


def mismatched(folder: Path) -> None:
    """Fewer rows of embeddings than the tokenizer has ids."""
    change_config(folder, vocab_size=100)


def wordless(folder: Path) -> None:
    """No tokenizer."""
    (folder / "tokenizer.json").unlink()


def gone(folder: Path) -> None:
    """No folder."""
    shutil.rmtree(folder)


def change_config(folder: Path, **fields: object) -> None:
    """Alter config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (gone, r"There is no model in .*\n.*ostinato serve --model DIR"),
        (torn, r"model\.safetensors is not a whole safetensors file.*\n.*again"),
        (foreign, r"model_type = 'llama'.* was read from .*\n.*Qwen3"),
        (mismatched, r"The tokenizer of version .* knows 300 ids, its weights 100\. .* was read from .*\n"),
        (wordless, r"no tokenizer\.json"),
    ],
)
def test_a_bad_model_is_named_and_leaves_no_release(
    tmp_path: Path, model_folder: Path, ostinato: Ostinato, harm: Callable[[Path], None], words: str
) -> None:
    """The error says which folder and what is wrong with it; the data folder can still take a good model."""
    bad = tmp_path / "bad-model"
    shutil.copytree(model_folder, bad)
    harm(bad)
    error = refused(ostinato("serve", "--model", bad, "--port", "0", "--data", tmp_path / "data"))
    assert re.search(words, error), error
    assert str(bad) in error
    with Ledger.open(tmp_path / "data") as ledger:
        assert ledger.current_release() is None
        assert ledger.versions() == []


def test_a_port_in_use_is_named(tmp_path: Path, model_folder: Path, ostinato: Ostinato) -> None:
    """Before anything is started."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        error = refused(ostinato("serve", "--model", model_folder, "--port", str(port), "--data", tmp_path / "data"))
    assert f"Port {port} on 127.0.0.1 cannot be used" in error
    assert "--port 0" in error


def test_missing_bubblewrap_says_how_to_get_it(tmp_path: Path, model_folder: Path, ostinato: Ostinato) -> None:
    """Both `serve` and `doctor`."""
    data = tmp_path / "data"
    error = refused(ostinato("serve", "--model", model_folder, "--port", "0", "--data", data, path=str(tmp_path)))
    assert "apt-get install bubblewrap" in error
    doctor = ostinato("doctor", path=str(tmp_path))
    assert doctor.returncode == 1
    assert "bubblewrap: missing. Next: apt-get install bubblewrap" in doctor.stdout


def test_forbidden_namespaces_say_which_setting_forbids_them(tmp_path: Path, model_folder: Path) -> None:
    """A kernel that lets ordinary users make no namespaces."""
    arguments = ["serve", "--model", str(model_folder), "--port", "0", "--data", str(tmp_path / "data")]
    command = [sys.executable, "-c", FORBIDDEN, *arguments]
    error = refused(subprocess.run(command, capture_output=True, text=True, timeout=120))
    assert "No isolation on this machine" in error
    assert "sysctl -w user.max_user_namespaces" in error


def test_a_failing_bwrap_is_quoted(tmp_path: Path, model_folder: Path, ostinato: Ostinato) -> None:
    """What bwrap itself says reaches the person."""
    # Not below tmp_path: sandboxes start as an ordinary user, whom pytest's folders keep out.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "bwrap").write_text("#!/bin/sh\necho 'bwrap: No permissions to create a namespace' >&2\nexit 1\n")
        (folder / "bwrap").chmod(0o755)
        path, data = f"{folder}:{os.environ['PATH']}", tmp_path / "data"
        error = refused(ostinato("serve", "--model", model_folder, "--port", "0", "--data", data, path=path))
    assert "bwrap: No permissions to create a namespace" in error


def test_the_first_release_is_kept(tmp_path: Path, model_folder: Path) -> None:
    """A data folder that has a release serves it, whatever model is named."""
    weights = WeightStore(tmp_path / "weights")
    with Ledger.open(tmp_path) as ledger:
        version = first_release(ledger, weights, model_folder)
        assert ledger.current_release() is None, "an engine must take it first"
        ledger.put_version(weights.get(version))
        ledger.put_release(version, 1.0)
        assert first_release(ledger, weights, tmp_path / "none") == version


def test_a_claim_is_free_again_after_its_release(tmp_path: Path) -> None:
    """And a released one may be released again."""
    claim = Claim(tmp_path)
    claim.say("process 1")
    claim.release()
    claim.release()
    Claim(tmp_path).release()
    assert (tmp_path / "services.lock").read_text() == f"process {os.getpid()}"
