"""The environment server as a command."""

from pathlib import Path

from ostinato.envs import bubblewrap
from ostinato.envs.journal import SandboxJournal
from ostinato.envs.limits import Limits
from ostinato.loopback import listen, serve

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
        serve(Server(Supervisor(data, limits or Limits()), journal, idle_s).app(), listener, lifespan="on")
