"""A scripted environment in memory, for tests of whatever uses workspaces: no isolation, no processes. Commands are
answered by a function of the caller's."""

from collections.abc import Callable, Mapping, Sequence

from ostinato.envs.bases import base_id, check_paths
from ostinato.envs.client import EXEC_TIMEOUT, Changes, SandboxDiedError
from ostinato.records import BadInputError, ExecResult, MissingError, new_id
from ostinato.search import search_files

Runner = Callable[[dict[str, str], Sequence[str]], ExecResult]
"""Takes the files as they are and the command; may change the files."""


class LocalWorkspace:
    """A workspace that is a dictionary."""

    def __init__(self, base: str, start: Mapping[str, str], run: Runner) -> None:
        self.sandbox_id = new_id("sb-")
        self.base = base
        self._start = dict(start)
        self._files: dict[str, str] | None = dict(start)
        self._run = run

    def _live(self) -> dict[str, str]:
        if self._files is None:
            raise SandboxDiedError(f"Sandbox {self.sandbox_id} is gone (asked).", hint="Fork a new one.")
        return self._files

    async def exec(self, argv: Sequence[str], timeout: float = EXEC_TIMEOUT) -> ExecResult:
        """What the caller's function answers."""
        if not argv or timeout <= 0:
            raise BadInputError("`argv` needs a command and `timeout` must be positive.", param="argv")
        return self._run(self._live(), argv)

    async def read(self, path: str) -> str:
        """The text of a file."""
        files = self._live()
        check_paths({path: None})
        if path not in files:
            raise MissingError(f"There is no file {path!r}.")
        return files[path]

    async def write(self, files: Mapping[str, str | None]) -> None:
        """Write whole files; None deletes one."""
        check_paths(files)
        held = self._live()
        for path, text in files.items():
            if text is not None:
                held[path] = text
            elif held.pop(path, None) is None:
                raise MissingError(f"There is no file {path!r} to delete.")

    async def search(self, pattern: str) -> str:
        """The search tool's reply."""
        return search_files(self._live().items(), pattern)

    async def list(self) -> list[str]:
        """The paths of all files, sorted."""
        return sorted(self._live())

    async def diff(self) -> Changes:
        """What differs from the base."""
        files = self._live()
        changed = {path: files.get(path) for path in sorted({*files, *self._start})}
        return Changes({path: text for path, text in changed.items() if text != self._start.get(path)})

    async def destroy(self) -> None:
        """End it."""
        self._files = None


class LocalEnvironment:
    """An environment that is a dictionary of bases."""

    def __init__(self, run: Runner) -> None:
        self._bases: dict[str, dict[str, str]] = {}
        self._run = run

    async def import_base(self, files: Mapping[str, str]) -> str:
        """Keep files under the id that the real thing would give them."""
        check_paths(files)
        base = base_id({path: ("f", text.encode()) for path, text in files.items()})
        self._bases[base] = dict(files)
        return base

    async def fork(
        self, base: str, *, files: Mapping[str, str | None] | None = None, purpose: str = "live"
    ) -> LocalWorkspace:
        """A new workspace; `purpose` has nobody to be told to."""
        del purpose
        if base not in self._bases:
            raise MissingError(f"There is no base {base!r}.", hint="Import it first (POST /bases).", param="base")
        workspace = LocalWorkspace(base, self._bases[base], self._run)
        await workspace.write(files or {})
        return workspace
