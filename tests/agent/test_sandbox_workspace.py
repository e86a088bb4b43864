"""The tools in a real sandbox answer as they do in memory."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ostinato.agent import FilesWorkspace, SandboxWorkspace, call_tool
from ostinato.envs.client import EnvClient
from ostinato.records import ToolCall, UnavailableError

FILES = {
    "a.py": "def f(x):\n    return x - 1\n",
    "run_tests.py": "from a import f\nprint('passed' if f(1) == 2 else 'failed: f(1) == 2')\n",
}
SERVE = "import sys; from pathlib import Path; from ostinato.envs import run_envs; run_envs(Path(sys.argv[1]))"
CALLS = [
    ToolCall("1", "search", {"pattern": "x - 1"}),
    ToolCall("2", "read_file", {"path": "a.py"}),
    ToolCall("3", "read_file", {"path": "b.py"}),
    ToolCall("4", "run_tests", {}),
    ToolCall("5", "edit_file", {"path": "a.py", "old": "x - 1", "new": "x + 1"}),
    ToolCall("6", "edit_file", {"path": "a.py", "old": "x - 1", "new": "x + 1"}),
    ToolCall("7", "run_tests", {}),
    ToolCall("8", "fly", {}),
    ToolCall("9", "read_file", {"path": "../../etc/passwd"}),
]


@pytest.fixture
async def env(tmp_path: Path) -> AsyncIterator[EnvClient]:
    """A client of an environment server of its own."""
    command = [sys.executable, "-c", SERVE, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        ready = json.loads(server.stdout.readline())
        async with EnvClient(ready["url"]) as client:
            yield client
        server.terminate()


def judged(files: object) -> str:
    assert isinstance(files, dict)
    return "passed\n" if "x + 1" in files["a.py"] else "failed: f(1) == 2\n"


async def test_a_sandbox_answers_as_memory_does(env: EnvClient) -> None:
    """Word for word, call by call; the edit is what differs from the base; a dead sandbox raises."""
    sandbox = await env.fork(await env.import_base(FILES))
    real = SandboxWorkspace(sandbox, ("python3", "-B", "run_tests.py"))
    memory = FilesWorkspace(FILES, judged)
    for call in CALLS:
        assert await call_tool(real, call) == await call_tool(memory, call)
    assert (await sandbox.diff()).files == {"a.py": "def f(x):\n    return x + 1\n"}
    await sandbox.destroy()
    with pytest.raises(UnavailableError):
        await call_tool(real, CALLS[0])


async def test_a_test_run_that_hangs_says_so(env: EnvClient) -> None:
    """The command is killed at its limit, and the model is told."""
    sandbox = await env.fork(await env.import_base({"run_tests.py": "while True:\n    pass\n"}))
    real = SandboxWorkspace(sandbox, ("python3", "-B", "run_tests.py"), test_timeout_s=0.5)
    assert await call_tool(real, ToolCall("1", "run_tests", {})) == "failed: timed out after 0.5 s"
    await sandbox.destroy()
