"""What a hostile repository or a model gone wrong may try, as root's server and as an ordinary user's."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ostinato.envs.client import EnvClient, Sandbox
from ostinato.records import BadInputError, ConflictError, MissingError

FILES = {"a.py": "x = 1\n", "d/b.py": "y = 2\n"}


@pytest.fixture
async def sandbox(client: EnvClient) -> AsyncIterator[Sandbox]:
    """A fork of the files above."""
    async with await client.fork(await client.import_base(FILES)) as workspace:
        yield workspace


async def sh(sandbox: Sandbox, script: str, timeout: float = 60.0) -> str:
    """The output of a shell script."""
    return (await sandbox.exec(["sh", "-c", script], timeout=timeout)).output


async def test_fork_bomb_is_held(sandbox: Sandbox, client: EnvClient) -> None:
    """A fork bomb meets the limit on processes, ends with its command, and harms no other sandbox."""
    bomb = "import os, time\nn = 0\ntry:\n    while os.fork():\n        n += 1\n    time.sleep(100)\n"
    await sandbox.write({"bomb.py": f"{bomb}except OSError:\n    print(n)\n"})
    assert 1 <= int((await sandbox.exec(["python3", "-S", "bomb.py"], timeout=60)).output) <= 64
    async with await client.fork(sandbox.base) as other:
        assert await sh(other, "echo fine") == "fine\n"
    assert await sh(sandbox, "echo fine") == "fine\n"


async def test_disks_do_not_fill(sandbox: Sandbox) -> None:
    """The work tree, /tmp and /dev/shm end at their sizes, and a later write says that the tree is full."""
    fill = "for i in 1 2 3; do head -c 60000000 /dev/zero > {0}/fill$i; done 2>/dev/null; cat {0}/fill* | wc -c"
    for place, room in (("/tmp", 16 << 20), ("/dev/shm", 16 << 20), ("/work", 64 << 20)):
        assert int(await sh(sandbox, fill.format(place))) <= room
    with pytest.raises(ConflictError):
        await sandbox.write({"more.txt": "x" * 2_000_000})
    await sh(sandbox, "rm fill*")
    await sandbox.write({"more.txt": "x"})


async def test_a_million_files_do_not_fit(sandbox: Sandbox) -> None:
    """The number of files is limited too."""
    many = "try:\n    for i in range(10**6):\n        open(f'f{i}', 'w').close()\nexcept OSError:\n    print(i)\n"
    await sandbox.write({"many.py": many})
    assert int((await sandbox.exec(["python3", "-S", "many.py"], timeout=100)).output) <= 20_000


async def test_the_host_is_not_there(sandbox: Sandbox, tmp_path: Path) -> None:
    """No file of the host but the read-only system is visible, and nothing outside the work tree can be written."""
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    for path in ("/etc/shadow", "/etc/passwd", str(secret), "/home", "/mnt", "/var", "/sys"):
        assert "No such file" in await sh(sandbox, f"ls {path}")
    for path in ("/usr/x", "/x", "/guest/base/x", "/guest/upper/x", "/guest/code/x", "/proc/sys/kernel/core_pattern"):
        assert "cannot create" in await sh(sandbox, f"echo x > {path}")
    assert (await sh(sandbox, "id -u; grep -E 'CapEff|NoNewPrivs|Seccomp:' /proc/self/status")).split() == [
        "1000", "CapEff:", "0" * 16, "NoNewPrivs:", "1", "Seccomp:", "2",
    ]  # fmt: skip


async def test_other_sandboxes_are_not_there(sandbox: Sandbox, client: EnvClient) -> None:
    """One sandbox sees neither the files nor the processes of another, nor bases that it does not have."""
    async with await client.fork(await client.import_base({"other.py": "OTHER_SECRET = 1\n"})) as other:
        running = asyncio.create_task(sh(other, "sleep 1; echo woke"))
        assert "OTHER_SECRET" not in await sh(sandbox, "grep -rs OTHER_SECRET /work /guest /tmp /dev/shm")
        assert "sleep" not in await sh(sandbox, "cat /proc/[0-9]*/comm")
        await sh(sandbox, "kill -9 -1")
        assert await running == "woke\n"


async def test_no_network(sandbox: Sandbox, client: EnvClient) -> None:
    """Neither the host's loopback, nor the world, nor abstract sockets can be reached."""
    name = f"ostinato-{os.urandom(4).hex()}"
    with socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(f"\0{name}")
        abstract.listen()
        port = client.url.rpartition(":")[2]
        await sandbox.write({
            "net.py": "import socket\n"
            f"for kind, where in ((2, ('127.0.0.1', {port})), (2, ('1.1.1.1', 53)), (1, '\\0{name}')):\n"
            "    try:\n        socket.socket(kind).connect(where)\n        print('reached', where)\n"
            "    except OSError:\n        print('no')\n"
        })  # fmt: skip
        assert (await sandbox.exec(["python3", "-S", "net.py"])).output == "no\nno\nno\n"


async def test_links_lead_nowhere(sandbox: Sandbox) -> None:
    """A link out of the work tree is neither read nor written through, and a diff names it without following it."""
    await sh(sandbox, "ln -s /usr/bin/env leak; ln -s /usr dir; ln -s a.py in; ln -sf /guest/code/guest.pyc d/b.py")
    for path in ("leak", "dir/bin/env"):
        with pytest.raises(BadInputError, match="symbolic link"):
            await sandbox.read(path)
    with pytest.raises(BadInputError):
        await sandbox.write({"dir/x": "x"})
    assert await sandbox.read("in") == FILES["a.py"]
    changes = await sandbox.diff()
    assert (changes.files, changes.unreadable) == ({}, ["d/b.py", "dir", "in", "leak"])
    await sandbox.write({"leak": "mine"})
    assert await sandbox.read("leak") == "mine"
    assert (await sandbox.exec(["env", "true"])).exit_code == 0


async def test_files_that_block_do_not(sandbox: Sandbox) -> None:
    """Fifos and devices neither hang a read nor a search."""
    await sh(sandbox, "mkfifo pipe; rm a.py; mkfifo a.py")
    with pytest.raises(BadInputError):
        await sandbox.read("pipe")
    assert await sandbox.search("y = 2") == "d/b.py:1: y = 2"
    await sandbox.write({"a.py": "z"})
    assert await sandbox.read("a.py") == "z"


async def test_the_guest_cannot_be_reached(sandbox: Sandbox) -> None:
    """A command can neither signal the guest, nor write its memory, nor take its socket: its exit status is its own."""
    await sh(sandbox, "kill -9 1; kill -STOP 1; kill -9 -1")
    await sandbox.write({
        "forge.py": "import ctypes, os, sys\n"
        "for name in ('/proc/1/mem', '/proc/1/fd/3', '/proc/self/fd/3'):\n"
        "    try:\n        os.open(name, os.O_RDWR)\n        print('opened', name)\n"
        "    except OSError:\n        print('no')\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "print(libc.ptrace(16, 1, 0, 0), libc.syscall(438, os.pidfd_open(1), 3, 0), libc.unshare(0x10000000))\n"
        "print('{\"exit_code\": 0}', flush=True)\nsys.exit(5)\n"
    })  # fmt: skip
    for python in (["python3", "-S"], ["env", "python3", "-S"]):
        result = await sandbox.exec([*python, "forge.py"])
        assert result.output == 'no\nno\nno\n-1 -1 -1\n{"exit_code": 0}\n'
        assert result.exit_code == 5


async def test_modules_of_the_work_tree_do_not_enter_the_guest(sandbox: Sandbox) -> None:
    """Files named like modules of the guest change nothing."""
    await sandbox.write(dict.fromkeys(("os.py", "lexical.py", "json.py", "atexit.py"), "raise SystemExit(9)\n"))
    assert await sandbox.search("y = 2") == "d/b.py:1: y = 2"
    assert await sh(sandbox, "echo fine") == "fine\n"


async def test_huge_files_are_refused(sandbox: Sandbox) -> None:
    """A file that is too large, or not text, is refused by name and the sandbox goes on."""
    await sh(sandbox, "head -c 9000000 /dev/zero > large; printf '\\377' > binary")
    for path in ("large", "binary"):
        with pytest.raises(BadInputError, match=path):
            await sandbox.read(path)
    assert (await sandbox.diff()).unreadable == ["binary", "large"]
    with pytest.raises(MissingError):
        await sandbox.read("d/none.py")
