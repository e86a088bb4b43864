"""The whole loop on this machine: the real processes, the real model, real sandboxes; small numbers.

Beside its end it is counted that nothing took a short cut: every sandbox (by a `bwrap` in front of the real one) and
every HTTP request (by a trace in every client process) is in the ledger, and no other.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from ostinato.records import Fate
from ostinato.store import Ledger

SETTINGS = """
cycles = 1
first_sessions = 48
bench_tasks = 8
damaged_cycle = 0
bench_concurrency = 4
[training]
threads = 1
[gate]
margin = 0.99
looks = 1
[experiment]
burn_in = 16
horizon = 60
"""
COUNT_CLIENTS = """
import os
import aiohttp

async def sent(session, context, params):
    with open(os.environ["REQUEST_LOG"], "a") as log:
        log.write(f"{params.method} {params.url.path}\\n")

begin = aiohttp.ClientSession.__init__

def counting(self, *args, **kwargs):
    trace = aiohttp.TraceConfig()
    trace.on_request_headers_sent.append(sent)
    begin(self, *args, trace_configs=[*(kwargs.pop("trace_configs", None) or []), trace], **kwargs)

aiohttp.ClientSession.__init__ = counting
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A `bwrap` that counts, and clients that count."""
    folder, real = tmp_path / "count", shutil.which("bwrap")
    assert real, "bubblewrap is missing. Next: apt-get install bubblewrap"
    folder.mkdir()
    folder.chmod(0o777)
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents:
        if parent.owner() == Path.home().owner() and parent.name.startswith("pytest"):
            parent.chmod(0o755)  # the count is written by the user that sandboxes run as
    (folder / "bwraps").touch()
    (folder / "bwraps").chmod(0o666)
    shim = folder / "bwrap"
    shim.write_text(f'#!/bin/sh\necho fork >> "{folder}/bwraps"\nexec {real} "$@"\n')
    shim.chmod(0o755)
    (folder / "sitecustomize.py").write_text(COUNT_CLIENTS)
    return os.environ | {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "PYTHONPATH": str(folder),
        "REQUEST_LOG": str(folder / "requests"),
    }


def demo(data: Path, *more: str) -> list[str]:
    """The command."""
    return [sys.executable, "-m", "ostinato", "demo", "--data", str(data), "--concurrency", "6", *more]


@pytest.mark.timeout(600)
def test_one_cycle_of_the_whole_loop(tmp_path: Path, environment: dict[str, str]) -> None:
    """It ends well; the ledger, the report and the counts agree; `status` tells the same afterwards."""
    data, settings = tmp_path / "data", tmp_path / "settings.toml"
    settings.write_text(SETTINGS)
    done = subprocess.run(
        demo(data, "--settings", str(settings)),
        env=environment,
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    with Ledger.open(data) as ledger:
        experiments = ledger.experiments()
        accounts, episodes = ledger.accounts("live"), ledger.accounts("episode")
        versions = {version.version: version for version in ledger.versions()}
        counters = ledger.counters()
        forks = ledger.sandbox_count()
        trained = len(ledger.fates(Fate.TRAINED))
    (experiment,) = experiments
    candidate = versions[experiment.candidate]
    assert (candidate.kind, candidate.parent) == ("delta", experiment.release)
    assert candidate.stored_bytes < candidate.full_bytes
    assert experiment.verdict in ("promoted", "stopped", "undecided")
    assert accounts.balanced
    assert accounts.fates["held_out"] > 0
    assert trained == accounts.fates["trained"] >= 48
    assert episodes.sessions == episodes.fates["held_out"] >= 16
    # No short cut.
    folder = Path(environment["REQUEST_LOG"]).parent
    probe = 1  # before the services start, to see whether sandboxes work here
    assert (folder / "bwraps").read_text().count("fork") == forks + probe
    requests = Counter((folder / "requests").read_text().splitlines())
    assert requests["POST /v1/chat/completions"] == counters["http.requests.chat"]
    assert requests["POST /v1/feedback"] == counters["http.requests.feedback"]
    # What a person sees.
    page = (data / "report.html").read_text()
    for version in versions:
        assert version in page
        assert version[:10] in done.stdout
    assert (data / "curves.png").stat().st_size > 10_000
    assert "first live session" in done.stdout
    assert f"{accounts.sessions} sessions =" in done.stdout
    told = subprocess.run(
        [sys.executable, "-m", "ostinato", "status", "--data", str(data)], capture_output=True, text=True, check=True
    )
    assert experiment.verdict in told.stdout
    assert f"{accounts.sessions} sessions =" in told.stdout


@pytest.mark.timeout(300)
def test_ctrl_c_ends_everything_and_the_same_command_goes_on(tmp_path: Path) -> None:
    """Within 5 seconds no process of the demo is left; the command that it prints continues in the same ledger."""
    data = tmp_path / "data"
    first = subprocess.Popen(demo(data), stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert first.stdout is not None
    for line in first.stdout:
        if "first live session" in line:
            break
    lists = [path.read_text() for path in Path(f"/proc/{first.pid}/task").glob("*/children")]
    children = [int(pid) for text in lists for pid in text.split()]
    assert len(children) == 4
    begin = time.monotonic()
    first.send_signal(signal.SIGINT)
    output = first.stdout.read()
    assert first.wait(30) == 130
    assert time.monotonic() - begin < 5
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]
    first.stdout.close()
    assert f"ostinato demo --data {data}" in output
    with Ledger.open(data) as ledger:
        before = {session.session_id for session in ledger.sessions()}
        assert ledger.accounts().balanced
    second = subprocess.Popen(demo(data), stdout=subprocess.PIPE, text=True)
    assert second.stdout is not None
    for line in second.stdout:
        if "first live session" in line:
            break
    second.send_signal(signal.SIGINT)
    second.stdout.read()
    assert second.wait(30) == 130
    second.stdout.close()
    with Ledger.open(data) as ledger:
        assert before < {session.session_id for session in ledger.sessions()}
