"""The environment server as a command."""

import json
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ostinato.envs import bubblewrap
from ostinato.envs.journal import SandboxJournal
from ostinato.envs.limits import Limits
from ostinato.loopback import listen

if TYPE_CHECKING:
    from starlette.applications import Starlette

IDLE_S = 900.0
"""Seconds after which a sandbox that nobody used is ended."""


def run_envs(
    data: Path,
    port: int = 0,
    journal: SandboxJournal | None = None,
    *,
    limits: Limits | None = None,
    idle_s: float = IDLE_S,
) -> None:
    """Serve on loopback until SIGINT or SIGTERM. Bases lie in `data`/bases. Port 0 takes a free one; one JSON line
    `{"ready": true, "url": ..., "port": ...}` goes to standard output once requests are answered. Raises
    `UnavailableError` where no sandbox can be started, `ConflictError` where the port is taken."""
    from ostinato.envs.app import Server
    from ostinato.envs.supervisor import Supervisor

    bubblewrap.find()
    with listen(port) as listener:
        _serve(Server(Supervisor(data, limits or Limits()), journal, idle_s).app(), listener)


def _serve(app: "Starlette", listener: socket.socket) -> None:
    import uvicorn

    port = listener.getsockname()[1]

    class Announced(uvicorn.Server):
        """Says that it is ready once it is."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            sys.stdout.write(json.dumps({"ready": True, "url": f"http://127.0.0.1:{port}", "port": port}) + "\n")
            sys.stdout.flush()

    config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=2)
    Announced(config).run(sockets=[listener])
