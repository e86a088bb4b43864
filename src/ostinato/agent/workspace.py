"""Where the tools act: a sandbox, or a dictionary of files."""

from collections.abc import Callable, Mapping
from typing import Protocol

from ostinato.agent.tools import apply_edit, invalid_reason, invalid_reply, missing_file, test_reply
from ostinato.envs.client import Workspace as Sandbox
from ostinato.records import BadInputError, MissingError, ToolCall
from ostinato.search import search_files


class Workspace(Protocol):
    """The four things that tools do. Paths are relative to the work tree. Each may raise `UnavailableError` (or another
    `OstinatoError`) when the workspace has died."""

    async def read(self, path: str) -> str | None:
        """The file's text, or None where there is no such file."""
        ...

    async def write(self, path: str, text: str) -> None:
        """Put a whole file."""
        ...

    async def search(self, pattern: str) -> str:
        """The reply of the search tool."""
        ...

    async def run_tests(self) -> str:
        """What the test command printed."""
        ...


class SandboxWorkspace:
    """A workspace inside a sandbox of the environment server."""

    def __init__(self, sandbox: Sandbox, test_command: tuple[str, ...], test_timeout_s: float = 20.0) -> None:
        self.sandbox = sandbox
        self._command = test_command
        self._timeout_s = test_timeout_s

    async def read(self, path: str) -> str | None:
        """See `Workspace.read`; a path outside the work tree, or of a file that is no text, counts as absent."""
        try:
            return await self.sandbox.read(path)
        except (MissingError, BadInputError):
            return None

    async def write(self, path: str, text: str) -> None:
        """See `Workspace.write`."""
        await self.sandbox.write({path: text})

    async def search(self, pattern: str) -> str:
        """See `Workspace.search`."""
        return await self.sandbox.search(pattern)

    async def run_tests(self) -> str:
        """See `Workspace.run_tests`; a command that ran too long says so."""
        result = await self.sandbox.exec(self._command, timeout=self._timeout_s)
        return f"{result.output}\nfailed: timed out after {self._timeout_s:g} s" if result.timed_out else result.output


class FilesWorkspace:
    """A workspace in memory; `tests` judges the files. Nothing is isolated: for our own tests."""

    def __init__(self, files: Mapping[str, str], tests: Callable[[Mapping[str, str]], str]) -> None:
        self.files = dict(files)
        self._tests = tests

    async def read(self, path: str) -> str | None:
        """See `Workspace.read`."""
        return self.files.get(path)

    async def write(self, path: str, text: str) -> None:
        """See `Workspace.write`."""
        self.files[path] = text

    async def search(self, pattern: str) -> str:
        """See `Workspace.search`."""
        return search_files(self.files.items(), pattern)

    async def run_tests(self) -> str:
        """See `Workspace.run_tests`."""
        return self._tests(self.files)


async def call_tool(workspace: Workspace, call: ToolCall, unreadable: str = "") -> str:
    """Carry out one tool call and give the text that the model sees. Raises what the workspace raises."""
    reason = unreadable or invalid_reason(call)
    if reason:
        return invalid_reply(reason)
    args: dict[str, str] = call.arguments
    if call.name == "search":
        return await workspace.search(args["pattern"])
    if call.name == "run_tests":
        return test_reply(await workspace.run_tests())
    text = await workspace.read(args["path"])
    if text is None:
        return missing_file(args["path"])
    if call.name == "read_file":
        return text
    outcome = apply_edit(text, args["old"], args["new"])
    if outcome.text is not None:
        await workspace.write(args["path"], outcome.text)
    return outcome.reply
