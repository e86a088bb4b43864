"""The server's own life: accounts, deaths, ends, and bad input."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from ostinato.envs.client import EnvClient, SandboxDiedError
from ostinato.records import UnavailableError

FILES = {"a.py": "x = 1\n"}
JOURNALED = """
import sys
from pathlib import Path
from ostinato.envs import Limits, run_envs

class Journal:
    def write(self, *words):
        with open(Path(sys.argv[1], "journal"), "a") as file:
            print(*words, file=file)

    async def created(self, info, purpose):
        self.write("created", info.sandbox_id, purpose)

    async def destroyed(self, sandbox_id, reason):
        self.write("destroyed", sandbox_id, reason)

run_envs(Path(sys.argv[1]), 0, Journal(), idle_s=IDLE)
"""


def descendants(pid: int) -> list[int]:
    """The process ids of all below one."""
    found = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        found += [int(child), *descendants(int(child))]
    return found


async def eventually(holds: Callable[[], bool]) -> None:
    """Wait until something holds; the test's own time-out is the limit."""
    while not holds():
        await asyncio.sleep(0.02)


def is_gone(pid: int) -> bool:
    """Is there no such process, or only what its parent has not read yet?"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


async def test_accounts_and_journal_agree(start: Callable[..., tuple[int, str, Path]]) -> None:
    """Every sandbox is journalled before its id is given out, and every end with its reason."""
    _, url, data = start(JOURNALED.replace("IDLE", "900"))
    journal = data / "journal"
    async with EnvClient(url) as client:
        base = await client.import_base(FILES)
        first = await client.fork(base, purpose="episode")
        assert journal.read_text() == f"created {first.sandbox_id} episode\n"
        second = await client.fork(base)
        assert [info.sandbox_id for info in await client.sandboxes()] == [first.sandbox_id, second.sandbox_id]
        await first.destroy()
        with pytest.raises(SandboxDiedError, match="asked"):
            await first.list()
        stats = await client.stats()
    assert (stats.created, stats.live, stats.ended) == (2, 1, {"asked": 1})
    assert stats.failures == {"sandbox_died": 1}
    assert journal.read_text().splitlines()[2:] == [f"destroyed {first.sandbox_id} asked"]


async def test_shutdown_ends_and_journals_what_lives(start: Callable[..., tuple[int, str, Path]]) -> None:
    """A server that is told to end leaves no process and no sandbox unaccounted for."""
    pid, url, data = start(JOURNALED.replace("IDLE", "900"))
    async with EnvClient(url) as client:
        sandbox = await client.fork(await client.import_base(FILES))
    below = descendants(pid)
    os.kill(pid, signal.SIGTERM)
    await eventually(lambda: all(map(is_gone, [pid, *below])))
    assert (data / "journal").read_text().splitlines()[1:] == [f"destroyed {sandbox.sandbox_id} shutdown"]


async def test_idle_sandboxes_end(start: Callable[..., tuple[int, str, Path]]) -> None:
    """A sandbox that nobody uses ends, is counted, and says so; one in use does not."""
    _, url, data = start(JOURNALED.replace("IDLE", "0.6"))
    async with EnvClient(url) as client:
        base = await client.import_base(FILES)
        idle, busy = await client.fork(base), await client.fork(base)
        assert (await busy.exec(["sleep", "2"])).exit_code == 0
        with pytest.raises(SandboxDiedError, match="idle"):
            await idle.list()
        assert await busy.list() == ["a.py"]
    assert f"destroyed {idle.sandbox_id} idle" in (data / "journal").read_text()


async def test_a_killed_sandbox_is_410_and_the_rest_live(start: Callable[..., tuple[int, str, Path]]) -> None:
    """When a guest is killed from outside, whoever waits on it hears of it, and it is counted as died."""
    pid, url, _ = start()
    async with EnvClient(url) as client:
        base = await client.import_base(FILES)
        other = await client.fork(base)
        before = set(descendants(pid))
        doomed = await client.fork(base)
        waiting = asyncio.create_task(doomed.exec(["sleep", "100"], timeout=200))
        await asyncio.sleep(0.5)
        for victim in set(descendants(pid)) - before:
            os.kill(victim, signal.SIGKILL)
        with pytest.raises(SandboxDiedError):
            await waiting
        with pytest.raises(SandboxDiedError, match="died"):
            await doomed.list()
        assert await other.list() == ["a.py"]
        assert (await client.stats()).ended == {"died": 1}


async def test_a_lost_spawner_is_started_again(start: Callable[..., tuple[int, str, Path]]) -> None:
    """Sandboxes end with the process that started them, and the next fork works."""
    pid, url, _ = start()
    async with EnvClient(url) as client:
        base = await client.import_base(FILES)
        lost = await client.fork(base)
        below = descendants(pid)
        os.kill(below[0], signal.SIGKILL)
        await eventually(lambda: all(map(is_gone, below)))
        with pytest.raises(SandboxDiedError):
            await lost.list()
        async with await client.fork(base) as fresh:
            assert await fresh.list() == ["a.py"]


async def test_kill_9_leaves_nothing(start: Callable[..., tuple[int, str, Path]]) -> None:
    """When the server is killed, every process below it ends, also in the middle of a command."""
    pid, url, _ = start()
    async with EnvClient(url) as client:
        base = await client.import_base(FILES)
        sandboxes = [await client.fork(base) for _ in range(3)]
        running = [asyncio.create_task(one.exec(["sleep", "100"], timeout=200)) for one in sandboxes]
        await asyncio.sleep(0.5)
        below = descendants(pid)
        assert len(below) >= 1 + 3 * 3
        os.kill(pid, signal.SIGKILL)
        await eventually(lambda: all(map(is_gone, below)))
        for task in running:
            with pytest.raises(UnavailableError, match=url):
                await task


async def test_many_at_once(client: EnvClient) -> None:
    """Sandboxes that start and run at the same time keep to their own files."""
    base = await client.import_base({"who.py": "print(open('me.txt').read())\n"})

    async def one(number: int) -> str:
        async with await client.fork(base, files={"me.txt": f"{number}"}) as sandbox:
            return (await sandbox.exec(["python3", "-S", "who.py"])).output

    assert await asyncio.gather(*map(one, range(16))) == [f"{number}\n" for number in range(16)]


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/sandboxes", b"{", 400, "cannot be read"),
        ("/sandboxes", b'{"base": 3}', 400, "base"),
        ("/sandboxes", b'{"base": "b-00", "colour": "red"}', 400, "colour"),
        ("/sandboxes", b'{"base": "../../etc"}', 404, "../../etc"),
        ("/bases", b'{"files": {"/etc/x": "x"}}', 400, "/etc/x"),
        ("/bases", b'{"files": {"a": "x", "a/b": "y"}}', 400, "a/b"),
        ("/sandboxes/sb-none/exec", b'{"argv": ["true"]}', 404, "sb-none"),
    ],
)
async def test_bad_requests(url: str, path: str, body: bytes, status: int, words: str) -> None:
    """Each gets one error that names the thing, in OpenAI's shape."""
    async with httpx.AsyncClient() as http:
        answer = await http.post(url + path, content=body)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert words in error["message"]
    assert error["type"] == ("invalid_request_error" if status == 400 else "not_found_error")


async def test_large_bodies_are_refused(url: str) -> None:
    """A body beyond the limit is refused without being kept."""
    async with httpx.AsyncClient(timeout=60) as http:
        answer = await http.post(url + "/bases", content=b'{"files": {"a": "' + b"x" * (33 << 20) + b'"}}')
    assert answer.status_code == 400
    assert "larger than 32 MiB" in answer.json()["error"]["message"]


async def test_no_server_is_said_plainly() -> None:
    """A client without a server names the address and the next command."""
    async with EnvClient("http://127.0.0.1:9") as client:
        with pytest.raises(UnavailableError, match=r"127\.0\.0\.1:9.*ostinato envs"):
            await client.bases()
