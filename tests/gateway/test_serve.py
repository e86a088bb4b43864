"""The gateway as a process."""

import json
import os
import signal
import socket
import subprocess
import sys
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
run_gateway(GatewayConfig(), folder / "data", ScriptedEngine(lambda ids: [9, 8]), frame)
"""


def test_it_announces_itself_keeps_others_out_and_ends_cleanly(tmp_path: Path, frame: dict[str, bytes]) -> None:
    """A ready line with the port; a second gateway on the folder is refused by pid; SIGTERM writes all counts."""
    (tmp_path / "frame").mkdir()
    for name, content in frame.items():
        (tmp_path / "frame" / name).write_bytes(content)
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert ready["ready"] is True
        with httpx.Client(base_url=f"http://127.0.0.1:{ready['port']}", timeout=60) as client:
            body = {"model": "ostinato", "messages": [{"role": "user", "content": "hi"}]}
            assert client.post("/v1/chat/completions", json=body).status_code == 200
            assert client.get("/healthz").json()["status"] == "ok"
        with pytest.raises(ConflictError, match=str(process.pid)):
            run_gateway(GatewayConfig(), tmp_path / "data", ScriptedEngine(lambda _: [8]), frame)
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(60) in (0, -signal.SIGTERM)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
    with Ledger.open(tmp_path / "data") as ledger:
        assert ledger.counters()["http.requests"] == 2
        assert ledger.counters()["http.requests.chat"] == 1


def test_a_port_in_use_is_named(tmp_path: Path, frame: dict[str, bytes]) -> None:
    """The error says which port, and how to take a free one."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConflictError, match=rf"Port {port} .*--port 0"):
            run_gateway(GatewayConfig(port=port), tmp_path / "data", ScriptedEngine(lambda _: [8]), frame)
