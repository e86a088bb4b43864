"""Delivery of feedback: events go to a file first, then to the gateway, again and again until it answers.

The queue outlives the process (it is written before `send` returns), not a power cut: what must survive one is what the
gateway acknowledged. Repeats are harmless, since the gateway knows each event by its `event_id`.
"""

import asyncio
import fcntl
import os
from pathlib import Path
from typing import Self

import aiohttp
import msgspec
from msgspec import Struct

from ostinato.records import ConflictError, FeedbackEvent, UnavailableError

BATCH = 64
"""Events in one request."""

COMPACT_BYTES = 1 << 20
"""Delivered bytes after which an empty queue file is cut to nothing."""


class SenderCounts(Struct):
    """What became of the events: delivered (stored, parked or duplicate), and dropped by reason (unknown to the
    gateway, refused by it). `requests` counts HTTP requests that it answered, `retries` those to be sent again."""

    delivered: int = 0
    unknown: int = 0
    refused: int = 0
    retries: int = 0
    requests: int = 0


class FeedbackSender:
    """A durable queue of feedback in `folder`, sent to `url` + /v1/feedback. One sender per folder.

    Use as an async context manager; leaving it stops delivery and keeps what is still queued for the next start.
    Raises `ConflictError` when another process holds the folder.
    """

    def __init__(self, url: str, folder: Path, *, key: str = "", retry_s: float = 0.2, timeout_s: float = 30.0) -> None:
        self.url = url.rstrip("/") + "/v1/feedback"
        self.counts = SenderCounts()
        self.last_refusal = ""
        self._folder = folder
        self._retry_s = retry_s
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._open()
        self._http = aiohttp.ClientSession(timeout=self._timeout)
        self._task = asyncio.create_task(self._deliver())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._http.close()
        self._file.close()
        self._lock.close()

    @property
    def pending(self) -> int:
        """Events that the gateway has not answered yet."""
        return len(self._queue)

    def send(self, *events: FeedbackEvent) -> None:
        """Queue events; they are in the file when this returns, and are delivered in order."""
        if not events:
            return
        lines = [msgspec.json.encode(event) for event in events]
        self._file.write(b"".join(line + b"\n" for line in lines))
        self._file.flush()
        self._queue.extend(lines)
        self._idle.clear()
        self._wake.set()

    async def flush(self, timeout_s: float = 60.0) -> None:
        """Wait until everything queued was answered. Raises `UnavailableError` after `timeout_s` seconds."""
        try:
            await asyncio.wait_for(self._idle.wait(), timeout_s)
        except TimeoutError:
            message = f"the gateway at {self.url} has not taken {self.pending} feedback events in {timeout_s:g} s."
            raise UnavailableError(message, hint=f"They stay in {self._folder}; start the gateway again.") from None

    def _open(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock = (self._folder / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            message = f"another process sends feedback from {self._folder}."
            raise ConflictError(message, hint="Give each client a queue folder of its own.") from None
        self._path, self._mark = self._folder / "queue.jsonl", self._folder / "delivered"
        self._file = self._path.open("ab")
        self._offset = int(self._mark.read_text()) if self._mark.exists() else 0
        data = self._path.read_bytes()
        end = data.rfind(b"\n") + 1
        if end < len(data):
            self._file.truncate(end)  # the process died while it wrote this line: `send` never returned for it
        self._offset = min(self._offset, end)
        self._queue = data[self._offset : end].splitlines()
        self._wake.set()

    async def _deliver(self) -> None:
        wait_s = self._retry_s
        while True:
            if not self._queue:
                self._idle.set()
                self._wake.clear()
                await self._wake.wait()
                continue
            batch = self._queue[:BATCH]
            status, text = await self._post(b"[" + b",".join(batch) + b"]")
            if _must_wait(status):
                self.counts.retries += 1
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, 5.0)
                continue
            wait_s = self._retry_s
            if status >= 400:
                if await self._deliver_singly(batch):
                    continue
            else:
                unknown = _unknown(text)
                self.counts.unknown += unknown
                self.counts.delivered += len(batch) - unknown
                self._done(len(batch))

    async def _deliver_singly(self, batch: list[bytes]) -> bool:
        """One event a request, so that one bad event does not take its neighbours along. True if one must wait."""
        for line in batch:
            status, text = await self._post(line)
            if _must_wait(status):
                return True
            if status < 400:
                self.counts.delivered += 1
            elif status == 404:
                self.counts.unknown += 1
            else:
                self.counts.refused += 1
                self.last_refusal = text
            self._done(1)
        return False

    async def _post(self, body: bytes) -> tuple[int, str]:
        """Status and text of one request; status 0 where the gateway could not be reached."""
        try:
            async with self._http.post(self.url, data=body, headers=self._headers) as reply:
                text = await reply.text()
                self.counts.requests += 1
                return reply.status, text
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return 0, str(error)

    def _done(self, count: int) -> None:
        self._offset += sum(len(line) + 1 for line in self._queue[:count])
        del self._queue[:count]
        if not self._queue and self._offset > COMPACT_BYTES:
            self._file.truncate(0)
            self._offset = 0
        draft = self._mark.with_suffix(".new")
        draft.write_text(str(self._offset))
        os.replace(draft, self._mark)  # noqa: PTH105


def _must_wait(status: int) -> bool:
    """Whether the gateway could not judge the request (0: not reached), so that it is to be sent again."""
    return status >= 500 or status in (0, 408, 429)


class _Result(Struct):
    status: str = ""


class _Results(Struct):
    results: list[_Result] = []


def _unknown(text: str) -> int:
    """How many events of an accepted batch belong to responses that the gateway does not know, by its answer; none
    where it does not list results."""
    try:
        answer = msgspec.json.decode(text, type=_Results)
    except msgspec.MsgspecError:
        return 0
    return sum(result.status == "unknown" for result in answer.results)
