"""The seam between the harness and whatever isolates a workspace."""

from msgspec import Struct


class ForkRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A new sandbox from `base`; `files` (path -> text) are written into it first, None deletes a file."""

    base: str
    purpose: str = "live"
    files: dict[str, str | None] = {}


class SandboxInfo(Struct, frozen=True):
    """A live sandbox."""

    sandbox_id: str
    base: str


class ExecResult(Struct, frozen=True):
    """What one command did. `timed_out` commands were killed with all their children; `output` is stdout and stderr
    interleaved, cut at the limit (`truncated`)."""

    exit_code: int
    output: str
    timed_out: bool = False
    truncated: bool = False
    seconds: float = 0.0
