"""Who must know of every sandbox."""

from typing import Protocol

from ostinato.records import SandboxInfo


class SandboxJournal(Protocol):
    """Hears of every sandbox. What is told is durable when the call returns."""

    async def created(self, info: SandboxInfo, purpose: str) -> None:
        """A sandbox runs; called before its id is given to anybody."""
        ...

    async def destroyed(self, sandbox_id: str, reason: str) -> None:
        """It is over: "asked", "idle", "died" or "shutdown"."""
        ...
