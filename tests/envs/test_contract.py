"""What every environment promises, held against the real server and against the one in memory."""

from collections.abc import AsyncIterator, Sequence

import pytest

from ostinato.envs.client import Changes, EnvClient, Environment, SandboxDiedError
from ostinato.envs.local import LocalEnvironment
from ostinato.records import BadInputError, ExecResult, MissingError

FILES = {"pkg/one.py": "def one():\n    return 1\n", "two.txt": "zwei — två\n"}


def run_cat(files: dict[str, str], argv: Sequence[str]) -> ExecResult:
    """The one command that the environment in memory knows."""
    assert argv[0] == "cat"
    return ExecResult(0, files[argv[1]])


@pytest.fixture(params=["server", "memory"])
async def envs(request: pytest.FixtureRequest, url: str) -> AsyncIterator[Environment]:
    """Each implementation in turn."""
    if request.param == "memory":
        yield LocalEnvironment(run_cat)
        return
    async with EnvClient(url) as client:
        yield client


async def test_same_files_same_base(envs: Environment) -> None:
    """A base is named by its content, whatever the order of its files."""
    first = await envs.import_base(FILES)
    assert first == await envs.import_base(dict(reversed(FILES.items())))
    assert first != await envs.import_base({**FILES, "two.txt": "zwei"})


async def test_reads_lists_and_searches_the_base(envs: Environment) -> None:
    """A fork shows the files of its base."""
    workspace = await envs.fork(await envs.import_base(FILES))
    assert await workspace.list() == ["pkg/one.py", "two.txt"]
    assert await workspace.read("two.txt") == FILES["two.txt"]
    assert await workspace.search("return") == "pkg/one.py:2: return 1"
    assert await workspace.search("absent") == "no match"
    assert await workspace.diff() == Changes({})
    await workspace.destroy()


async def test_diff_holds_changed_new_and_deleted_files(envs: Environment) -> None:
    """A diff gives whole new texts, None for what is gone, and nothing for what was written back as it was."""
    base = await envs.import_base({**FILES, "three.txt": "3", "four.txt": "4"})
    workspace = await envs.fork(base, files={"three.txt": None, "new/deep/file.py": "x = 1\n"})
    await workspace.write({"pkg/one.py": "changed\n", "two.txt": "other"})
    await workspace.write({"two.txt": FILES["two.txt"]})
    wanted: dict[str, str | None] = {"new/deep/file.py": "x = 1\n", "pkg/one.py": "changed\n", "three.txt": None}
    assert await workspace.diff() == Changes(wanted)
    assert (await workspace.exec(["cat", "pkg/one.py"])).output == "changed\n"
    await workspace.destroy()


async def test_forks_of_one_base_are_apart(envs: Environment) -> None:
    """What one fork writes, no other fork sees, and the base stays as it was."""
    base = await envs.import_base(FILES)
    one, two = await envs.fork(base), await envs.fork(base)
    assert one.base == two.base == base
    assert one.sandbox_id != two.sandbox_id
    await one.write({"two.txt": "mine"})
    assert await two.read("two.txt") == FILES["two.txt"]
    three = await envs.fork(base)
    assert await three.read("two.txt") == FILES["two.txt"]
    for workspace in (one, two, three):
        await workspace.destroy()


@pytest.mark.parametrize("path", ["/etc/passwd", "../up", "a/../../up", "", ".", "a//b", "nul\0"])
async def test_paths_outside_are_refused(envs: Environment, path: str) -> None:
    """No path outside the work tree is read, written or imported."""
    workspace = await envs.fork(await envs.import_base(FILES))
    with pytest.raises(BadInputError):
        await workspace.write({path: "x", "fine.txt": "x"})
    assert "fine.txt" not in await workspace.list()
    with pytest.raises(BadInputError):
        await workspace.read(path)
    with pytest.raises(BadInputError):
        await envs.import_base({path: "x"})
    await workspace.destroy()


async def test_missing_things_are_named(envs: Environment) -> None:
    """Unknown files and bases are missing, by name."""
    workspace = await envs.fork(await envs.import_base(FILES))
    with pytest.raises(MissingError, match=r"nowhere\.txt"):
        await workspace.read("nowhere.txt")
    with pytest.raises(MissingError, match=r"nowhere\.txt"):
        await workspace.write({"nowhere.txt": None})
    with pytest.raises(MissingError, match="b-0123456789abcdef"):
        await envs.fork("b-0123456789abcdef")
    await workspace.destroy()


async def test_destroyed_is_gone_for_good(envs: Environment) -> None:
    """After destroy every use says so, and destroying again changes nothing."""
    workspace = await envs.fork(await envs.import_base(FILES))
    await workspace.destroy()
    await workspace.destroy()
    with pytest.raises(SandboxDiedError, match=workspace.sandbox_id):
        await workspace.read("two.txt")


async def test_bad_commands_are_refused(envs: Environment) -> None:
    """A command needs words and time."""
    workspace = await envs.fork(await envs.import_base(FILES))
    with pytest.raises(BadInputError):
        await workspace.exec([])
    with pytest.raises(BadInputError):
        await workspace.exec(["cat"], timeout=0)
    await workspace.destroy()
