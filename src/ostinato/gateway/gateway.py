"""What the endpoints share."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, runtime_checkable

from ostinato.gateway.access import Access
from ostinato.gateway.arms import Arms
from ostinato.gateway.config import GatewayConfig
from ostinato.gateway.counts import Counts
from ostinato.gateway.secrets import MessageCleaner
from ostinato.gateway.sessions import SessionBook
from ostinato.records import Engine, UnavailableError
from ostinato.render import format_for
from ostinato.store import AsyncWriter, Ledger, ResponseIds

_SEAL_AT_ONCE = 64
_log = logging.getLogger("ostinato.gateway")


@runtime_checkable
class _Closes(Protocol):
    """An engine that holds connections of the loop it runs in."""

    async def close(self) -> None: ...


class Gateway:
    """The parts behind the endpoints, and the work that goes on in the background."""

    def __init__(self, config: GatewayConfig, ledger: Ledger, engine: Engine, frame: Mapping[str, bytes]) -> None:
        """`frame` holds the small files of the model's folder by name (tokenizer.json, tokenizer_config.json, ...)."""
        self.config = config
        self.ledger = ledger
        self.engine = engine
        self.writer = AsyncWriter(ledger)
        self.format = format_for(dict(frame))
        self.ids = ResponseIds(ledger.folder)
        self.counts = Counts()
        self.arms = Arms(ledger)
        self.access = Access(ledger)
        self.book = SessionBook(ledger, self.format, self.arms, config, self.counts)
        self.cleaner = MessageCleaner()
        self.started_at = time.time()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begin the background work."""
        self.book.recall()
        for work, every_s in (
            (self._refresh, self.config.refresh_s),
            (self._flush, self.config.flush_s),
            (self._seal, self.config.seal_s),
        ):
            self._tasks.append(asyncio.create_task(_repeat(work, every_s)))

    async def stop(self) -> None:
        """End the background work; what was counted is written, and the engine's connections are closed."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.counts.flush(self.writer)
        if isinstance(self.engine, _Closes):
            await self.engine.close()

    async def _refresh(self) -> None:
        self.arms.refresh()

    async def _flush(self) -> None:
        await self.counts.flush(self.writer)

    async def _seal(self) -> None:
        """Move traces of closed sessions out of the ledger, many at once."""
        sessions = await asyncio.to_thread(self.ledger.unsealed_sessions, _SEAL_AT_ONCE)
        if sessions:
            await asyncio.to_thread(self.ledger.seal_traces, sessions)


async def _repeat(work: Callable[[], Awaitable[None]], every_s: float) -> None:
    while True:
        await asyncio.sleep(every_s)
        try:
            await work()
        except UnavailableError:
            # The disk refuses for now; the requests that meet it say so, and the next round tries again.
            continue
        except Exception:
            # One bad round must not end the rounds after it.
            _log.exception("background work failed; it goes on")
