"""An environment server as its own process: as we are, and (where we are root) as an ordinary user too."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

import ostinato
from ostinato.envs.bubblewrap import interpreter
from ostinato.envs.client import EnvClient

RUN = "import sys; from pathlib import Path; from ostinato.envs import run_envs; run_envs(Path(sys.argv[1]))"
NOBODY = 65534
MODES = ["root", "user"] if os.geteuid() == 0 else ["user"]


def as_user(argv: list[str], paths: list[str]) -> list[str]:
    """The command that runs `argv` as an ordinary user, with `paths` reachable to it at their own places even where a
    folder above them is closed: in a mount namespace that ends with the command."""
    steps = ["mount -t tmpfs tmpfs /srv"]
    shut = {str(above) for path in paths for above in Path(path).parents if not above.stat().st_mode & 0o001}
    for number, path in enumerate(paths):
        steps.append(f"mkdir /srv/{number} && mount --bind {path} /srv/{number}")
    steps += [f"mount -t tmpfs -o mode=755 tmpfs {folder}" for folder in sorted(shut)[:1]]
    for number, path in enumerate(paths):
        if any(path.startswith(f"{folder}/") for folder in shut):
            steps.append(f"mkdir -p {path} && mount --bind /srv/{number} {path}")
    steps.append(f'cd / && exec setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups "$@"')
    return ["unshare", "-m", "sh", "-c", " && ".join(steps), "sh", *argv]


def start_server(data: Path, mode: str, program: str = RUN) -> tuple[subprocess.Popen[bytes], str]:
    """A server process and its URL. As root, the mode "user" gives root up before the server starts."""
    argv = [sys.executable, "-c", program, str(data)]
    env = dict(os.environ)
    if mode == "user" and os.geteuid() == 0:
        os.chown(data, NOBODY, NOBODY)
        prefix, python = interpreter()
        packages = [str(Path(ostinato.__file__).parents[1]), str(Path(pytest.__file__).parents[1])]
        env |= {"PYTHONPATH": ":".join(packages), "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/tmp"}
        argv = as_user([python, *argv[1:]], [prefix, *packages])
    server = subprocess.Popen(argv, stdout=subprocess.PIPE, env=env)
    assert server.stdout is not None
    line = server.stdout.readline()
    if not line:
        stop_server(server)
        pytest.fail("the server ended before it was ready")
    return server, json.loads(line)["url"]


def stop_server(server: subprocess.Popen[bytes]) -> None:
    """End the server by its id."""
    server.terminate()
    server.wait(60)
    assert server.stdout is not None
    server.stdout.close()


@pytest.fixture(scope="module", params=MODES)
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a running server, one for each module and mode."""
    # Not tmp_path: its parents are closed to other users.
    data = Path("/tmp") / f"ostinato-test-{os.getpid()}-{request.param}-{os.urandom(4).hex()}"
    data.mkdir()
    server, address = start_server(data, request.param)
    try:
        yield address
    finally:
        stop_server(server)
        shutil.rmtree(data)


@pytest.fixture
async def client(url: str) -> AsyncIterator[EnvClient]:
    """A client of that server."""
    async with EnvClient(url) as envs:
        yield envs


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., tuple[int, str, Path]]]:
    """Starts servers for one test; gives each one's process id, URL and data folder."""
    servers: list[subprocess.Popen[bytes]] = []

    def run(program: str = RUN) -> tuple[int, str, Path]:
        data = tmp_path / f"data-{len(servers)}"
        data.mkdir()
        server, address = start_server(data, MODES[0], program)
        servers.append(server)
        return server.pid, address, data

    yield run
    for server in servers:
        stop_server(server)
