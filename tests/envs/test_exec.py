"""Commands in real sandboxes: what comes back, and what is left running."""

from collections.abc import AsyncIterator

import pytest

from ostinato.envs.client import EnvClient, Sandbox

FILES = {
    "a.py": "def f(x):\n    return x\n",
    "select.py": "MINE = True\n",
    "run_tests.py": "import a, select\nassert select.MINE\nprint('passed' if a.f(1) == 1 else 'failed')\n",
    "boom.py": "def f():\n    1 / 0\n\n\nf()\n",
    "leave.py": (
        "import atexit, sys\natexit.register(print, 'bye')\n"
        "open('kept.txt', 'w').write('kept')\nsys.exit(int(sys.argv[1]) if sys.argv[1:] else 'sorry')\n"
    ),
    "thread.py": "import threading, time\nthreading.Thread(target=lambda: (time.sleep(.2), print('late'))).start()\n",
    "about.py": "import sys\nprint(sys.argv, __name__, __file__, sys.path[0], sorted(sys.modules))\n",
    "bad.py": "def f(:\n",
}


@pytest.fixture
async def sandbox(client: EnvClient) -> AsyncIterator[Sandbox]:
    """A fork of the files above."""
    async with await client.fork(await client.import_base(FILES)) as workspace:
        yield workspace


async def test_exit_code_and_output(sandbox: Sandbox) -> None:
    """The exit code, and stdout and stderr in the order in which they were written."""
    result = await sandbox.exec(["sh", "-c", "echo one; echo two >&2; echo three; exit 7"])
    assert (result.exit_code, result.output, result.timed_out, result.truncated) == (
        7,
        "one\ntwo\nthree\n",
        False,
        False,
    )
    assert (await sandbox.exec(["sh", "-c", "kill -TERM $$"])).exit_code == 128 + 15
    assert (await sandbox.exec(["no-such-command"])).exit_code == 127


async def test_long_output_is_cut_and_said_so(sandbox: Sandbox) -> None:
    """Output beyond the limit is dropped, not the command."""
    result = await sandbox.exec(["sh", "-c", "head -c 1000000 /dev/zero | tr '\\0' x; exit 3"])
    assert result.exit_code == 3
    assert result.truncated
    assert result.output == "x" * (64 << 10)


async def test_time_out_kills_the_tree(sandbox: Sandbox) -> None:
    """A command over its time is killed with all its children, also those that left its session."""
    script = "setsid sh -c 'while true; do date +%N > alive.txt; done' & echo started; sleep 100"
    result = await sandbox.exec(["sh", "-c", script], timeout=1.0)
    assert (result.timed_out, result.output) == (True, "started\n")
    assert (await sandbox.exec(["sh", "-c", "ls /proc | grep -c '^[0-9]'"])).output.strip() in ("3", "4")
    before = await sandbox.read("alive.txt")
    assert (await sandbox.exec(["sleep", "0.2"])).exit_code == 0
    assert await sandbox.read("alive.txt") == before


async def test_nothing_runs_on_after_a_command(sandbox: Sandbox) -> None:
    """A background process neither holds the reply back nor lives on to meddle with the next command."""
    result = await sandbox.exec(["sh", "-c", "(sleep 100; echo late > late.txt) & echo done"], timeout=60)
    assert (result.output, result.timed_out) == ("done\n", False)
    assert "sleep" not in (await sandbox.exec(["sh", "-c", "cat /proc/[0-9]*/comm"])).output


@pytest.mark.parametrize(
    "argv",
    [
        ["run_tests.py"],
        ["boom.py"],
        ["bad.py"],
        ["leave.py", "3"],
        ["leave.py"],
        ["thread.py"],
        ["about.py", "x", "-y"],
        ["./about.py"],
        ["absent.py"],
    ],
)
async def test_scripts_behave_as_under_a_new_interpreter(sandbox: Sandbox, argv: list[str]) -> None:
    """`python3 -S` scripts, which run in a fork of the guest, say and leave what a new interpreter would."""
    quick = await sandbox.exec(["python3", "-S", "-B", *argv])
    left = (await sandbox.diff()).files
    if "kept.txt" in left:
        await sandbox.write({"kept.txt": None})
    new = await sandbox.exec(["env", "python3", "-S", "-B", *argv])
    assert (quick.exit_code, quick.output) == (new.exit_code, new.output)
    assert left == (await sandbox.diff()).files


async def test_runs_do_not_share_memory(sandbox: Sandbox) -> None:
    """What one run of a script does to the interpreter, the next does not see."""
    await sandbox.write({"poison.py": "import builtins, sys\nbuiltins.print = None\nsys.path.clear()\nsys.exit(0)\n"})
    assert (await sandbox.exec(["python3", "-S", "-B", "poison.py"])).exit_code == 0
    assert (await sandbox.exec(["python3", "-S", "-B", "run_tests.py"])).output == "passed\n"


async def test_search_leaves_no_trace_in_scripts(sandbox: Sandbox) -> None:
    """Modules that the guest loads for itself are not importable from a script."""
    assert (await sandbox.search("return x")) == "a.py:2: return x"
    await sandbox.write({"probe.py": "import lexical\n"})
    assert "ModuleNotFoundError" in (await sandbox.exec(["python3", "-S", "-B", "probe.py"])).output


async def test_diff_of_odd_things(sandbox: Sandbox) -> None:
    """Replaced folders, links, binary files and caches each appear as what they are."""
    base = await sandbox._client.import_base({"d/one.py": "1", "d/two.py": "2", "e/x.py": "x", "f.py": "f"})
    script = (
        "rm -r d && mkdir d && echo new > d/three.py; rm -r e && echo e > e; mkfifo pipe; mv d moved;"
        "rm f.py && mkdir f.py && echo g > f.py/g.py; ln -s /etc/passwd link; printf '\\377' >> bin;"
        "mkdir __pycache__; echo > __pycache__/a.pyc"
    )
    async with await sandbox._client.fork(base) as workspace:
        assert (await workspace.exec(["sh", "-c", script])).output == ""
        changes = await workspace.diff()
    gone = {"d/one.py": None, "d/two.py": None, "e/x.py": None, "f.py": None}
    assert changes.files == {**gone, "e": "e\n", "f.py/g.py": "g\n", "moved/three.py": "new\n"}
    assert changes.unreadable == ["bin", "link", "pipe"]
