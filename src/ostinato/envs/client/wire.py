"""What travels between the environment server and its clients, and the protocol that clients program against."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from ostinato.records import ExecResult, UnavailableError

EXEC_TIMEOUT = 30.0
"""Seconds that a command may take where the caller names no limit."""


class SandboxDiedError(UnavailableError):
    """The sandbox is gone: it was destroyed, killed, or left idle too long (HTTP 410). Fork a new one."""

    status = 410
    kind = "sandbox_died"


class Changes(Struct, frozen=True):
    """What differs from the base: path -> whole new text, None where the file was deleted. `unreadable` names changed
    files that are not UTF-8 text, not regular files, or larger than the limit. Bytecode caches are left out."""

    files: dict[str, str | None]
    unreadable: list[str] = []


class EnvStats(Struct, frozen=True):
    """Counts since the server started. `starting` are forks under way. `ended` counts destroyed sandboxes by why they
    ended ("asked", "idle", "died", "shutdown"); `failures` counts errors by name. created = live + the sum over
    `ended`, always."""

    created: int
    live: int
    ended: dict[str, int]
    failures: dict[str, int]
    starting: int = 0


class BaseRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Import a base: path -> text."""

    files: dict[str, str]


class BaseReply(Struct, frozen=True):
    """The content-addressed id of an imported base."""

    base: str


class ExecRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Run `argv` in the work tree for at most `timeout` seconds."""

    argv: list[str]
    timeout: float = EXEC_TIMEOUT


class ReadRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Read one file."""

    path: str


class WriteRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Write whole files; None deletes one."""

    files: dict[str, str | None]


class SearchRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Find lines that contain `pattern`."""

    pattern: str


class TextReply(Struct, frozen=True):
    """A text: of a file, or of a search."""

    text: str


class ErrorBody(Struct, frozen=True):
    """An error as OpenAI's API shapes it, and the `hint` that our errors carry."""

    message: str
    type: str
    param: str | None = None
    hint: str = ""


class ErrorReply(Struct, frozen=True):
    """The body of every answer with a status of 400 or above."""

    error: ErrorBody


class Workspace(Protocol):
    """One isolated work tree. Paths are relative to its root and use `/`."""

    @property
    def sandbox_id(self) -> str:
        """The id under which the server and the ledger know it."""
        ...

    @property
    def base(self) -> str:
        """The base that it was forked from."""
        ...

    async def exec(self, argv: Sequence[str], timeout: float = EXEC_TIMEOUT) -> ExecResult:
        """Run a command in the work tree; everything that it started is killed when it ends."""
        ...

    async def read(self, path: str) -> str:
        """The text of a file. Raises `MissingError` if there is none, `BadInputError` outside the work tree."""
        ...

    async def write(self, files: Mapping[str, str | None]) -> None:
        """Write whole files, making folders as needed; None deletes a file. Either every path is valid or none is
        written."""
        ...

    async def search(self, pattern: str) -> str:
        """The reply of the search tool: up to 8 lines `path:LINE: text`, or `no match`."""
        ...

    async def list(self) -> list[str]:
        """The paths of all regular files, sorted; bytecode caches are left out."""
        ...

    async def diff(self) -> Changes:
        """What differs from the base."""
        ...

    async def destroy(self) -> None:
        """End it and everything that runs in it. Doing so again changes nothing."""
        ...


class Environment(Protocol):
    """What makes workspaces."""

    async def import_base(self, files: Mapping[str, str]) -> str:
        """Store files as a base and give its id; the same files have the same id."""
        ...

    async def fork(
        self, base: str, *, files: Mapping[str, str | None] | None = None, purpose: str = "live"
    ) -> Workspace:
        """A new sandbox from a base, with `files` written into it first (None deletes)."""
        ...
