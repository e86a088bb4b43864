"""The gateway as a process."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from ostinato.engine import ScriptedEngine
from ostinato.gateway import GatewayConfig, run_gateway
from ostinato.records import ConflictError
from ostinato.store import Ledger

SCRIPT = """
import sys
from pathlib import Path
from ostinato.engine import ScriptedEngine
from ostinato.gateway import GatewayConfig, run_gateway
folder = Path(sys.argv[1])
frame = {path.name: path.read_bytes() for path in (folder / "frame").iterdir()}
run_gateway(GatewayConfig(), folder / "data", ScriptedEngine(lambda ids: [40, 41, 8]), frame)
"""


@pytest.fixture
def launch(tmp_path: Path, frame: dict[str, bytes]) -> Iterator[Callable[[], tuple[subprocess.Popen[str], int]]]:
    """Start the process; it listens when this returns, and is gone when the test ends."""
    (tmp_path / "frame").mkdir()
    for name, content in frame.items():
        (tmp_path / "frame" / name).write_bytes(content)
    started: list[subprocess.Popen[str]] = []

    def run() -> tuple[subprocess.Popen[str], int]:
        process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert ready["ready"] is True
        return process, ready["port"]

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def test_a_process_serves_is_killed_goes_on_and_ends_cleanly(
    tmp_path: Path, frame: dict[str, bytes], launch: Callable[[], tuple[subprocess.Popen[str], int]]
) -> None:
    """A second gateway on the folder is refused by pid. After kill -9 the next one goes on with the very ids that were
    answered. SIGTERM writes all counts."""
    messages: list[dict[str, str]] = [{"role": "user", "content": "hi"}]

    def ask(port: int) -> None:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            body = {"model": "ostinato", "messages": messages}
            answer = client.post("/v1/chat/completions", json=body, headers={"X-Ostinato-Session": "s1"})
            assert answer.status_code == 200
            messages.extend([answer.json()["choices"][0]["message"], {"role": "user", "content": "more"}])

    first, port = launch()
    ask(port)
    with pytest.raises(ConflictError, match=str(first.pid)):
        run_gateway(GatewayConfig(), tmp_path / "data", ScriptedEngine(lambda _: [8]), frame)
    first.kill()
    first.wait()
    second, port = launch()
    ask(port)
    os.kill(second.pid, signal.SIGTERM)
    assert second.wait(60) == 0
    with Ledger.open(tmp_path / "data") as ledger:
        before, after = ledger.turns("s1")
        counters = ledger.counters()
    assert before.trace is not None
    assert after.trace is not None
    assert (after.segment, after.segment_reason) == (0, "")
    assert after.trace.context_len == len(before.trace.prompt_ids) + len(before.trace.ids)
    assert before.trace.ids == [40, 41, 8]
    assert counters["http.requests.chat"] >= 1


def test_a_port_in_use_is_named(tmp_path: Path, frame: dict[str, bytes]) -> None:
    """The error says which port, and how to take a free one."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConflictError, match=rf"Port {port} .*--port 0"):
            run_gateway(GatewayConfig(port=port), tmp_path / "data", ScriptedEngine(lambda _: [8]), frame)
