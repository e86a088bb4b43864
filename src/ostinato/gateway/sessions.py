"""Live sessions: found by header or message prefix, their token logs in memory, read back from the ledger at need."""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Literal

import msgspec

from ostinato.gateway.access import Caller
from ostinato.gateway.arms import Arms, Target
from ostinato.gateway.config import GatewayConfig
from ostinato.gateway.counts import Counts
from ostinato.gateway.wire import ChatCall, read_messages
from ostinato.records import ConflictError, Message, SessionRow, new_id
from ostinato.render import ChatFormat, ParsedReply, TokenLog
from ostinato.store import Ledger

FoundBy = Literal["header", "prefix", "new"]
PrefixKind = Literal["reply", "request", "failed"]
OPTED_OUT = "opted out"
HELD_SECRET = "held a secret"
"""Why a turn whose tokens were not kept cannot be trained on."""
_MOST_PREFIXES = 50_000
_pack = msgspec.msgpack.Encoder(order="deterministic").encode


class _Prefix(msgspec.Struct, frozen=True):
    """Where messages lead. `kind` says what the messages end with, and so what may follow them: after a reply anything;
    after a request whose reply is not at hand, a reply; after a request that failed, a reply or nothing (a retry)."""

    session_id: str
    at: float
    kind: PrefixKind

    def leads(self, following: Message | None) -> bool:
        if self.kind == "reply":
            return True
        if following is None:
            return self.kind == "failed"
        return following.role == "assistant"


class Live:
    """A session that is being used. `lock` is held by the turn under way."""

    __slots__ = ("experts_until", "lock", "log", "next_index", "private", "row", "stored")

    def __init__(self, row: SessionRow, log: TokenLog) -> None:
        self.row = row
        self.log = log
        self.lock = asyncio.Lock()
        self.next_index = 0
        self.experts_until = 0
        """Expert choices are held for segment positions before this one."""
        self.stored = False
        """Whether the ledger has the session's row."""
        self.private = False
        """Somebody opted out: nothing that is said from here on is kept."""


class SessionBook:
    """All sessions that this gateway knows of."""

    def __init__(
        self, ledger: Ledger, chat_format: ChatFormat, arms: Arms, config: GatewayConfig, counts: Counts
    ) -> None:
        self._ledger = ledger
        self._format = chat_format
        self._arms = arms
        self._config = config
        self._counts = counts
        self._live: OrderedDict[str, Live] = OrderedDict()
        self._prefixes: OrderedDict[bytes, _Prefix] = OrderedDict()

    def find(self, caller: Caller, person: str, target: Target, call: ChatCall) -> Live:
        """The session of a request: by its header, else by its messages, else a new one.

        Raises `ConflictError` where a named session is closed, another person's, or of another purpose."""
        if caller.session_id is not None:
            live = self._get(caller.session_id, call) or self._new(caller.session_id, person, target, "header", caller)
            _check(live.row, person, target)
            return live
        found = self._by_prefix(person, target, call)
        if found is not None:
            return found
        if any(message.role == "assistant" for message in call.messages):
            self._counts.add("chat.unattributed")
        return self._new(new_id("s-"), person, target, "new", caller)

    def remember(self, live: Live, messages: Sequence[Message], kind: PrefixKind) -> None:
        """Let a later request that begins with these messages find this session."""
        self._index(live.row, messages, kind)

    def closed(self, session_id: str, at: float) -> None:
        """Note that a session was closed."""
        live = self._live.get(session_id)
        if live is not None and live.row.closed_at is None:
            live.row = msgspec.structs.replace(live.row, closed_at=at)

    def recall(self, limit: int = 256) -> None:
        """After a restart: make the latest open sessions that no header names findable by their messages."""
        rows = [row for row in self._ledger.open_sessions() if row.found_by != "header"]
        oldest = time.time() - self._config.session_idle_s
        for row in rows[-limit:]:
            turns = self._ledger.turns(row.session_id, traces=False) if row.last_at >= oldest else []
            messages = read_messages(self._ledger.request(turns[-1].turn_id)) if turns else []
            if messages:  # of an opted-out session none is kept
                self._index(row, messages, "request")

    def _index(self, row: SessionRow, messages: Sequence[Message], kind: PrefixKind) -> None:
        digest = _chain(row.person, row.purpose, messages)[-1]
        self._prefixes[digest] = _Prefix(row.session_id, time.monotonic(), kind)
        self._prefixes.move_to_end(digest)
        if len(self._prefixes) > _MOST_PREFIXES:
            self._prefixes.popitem(last=False)

    def _get(self, session_id: str, call: ChatCall) -> Live | None:
        live = self._live.get(session_id)
        if live is not None:
            self._live.move_to_end(session_id)
            return live
        row = self._ledger.session(session_id)
        if row is None:
            return None
        live = self._read_back(row, call)
        self._keep(live)
        return live

    def _new(self, session_id: str, person: str, target: Target, found_by: FoundBy, caller: Caller) -> Live:
        experiment_id, arm = self._arms.assign(person) if target.purpose == "live" else (None, None)
        now = time.time()
        row = SessionRow(
            session_id=session_id,
            person=person,
            purpose=target.purpose,
            opened_at=now,
            last_at=now,
            experiment_id=experiment_id,
            arm=arm,
            found_by=found_by,
            sandbox_id=caller.sandbox_id,
        )
        live = Live(row, TokenLog(self._format))
        self._keep(live)
        return live

    def _keep(self, live: Live) -> None:
        self._live[live.row.session_id] = live
        while len(self._live) > self._config.live_sessions:
            idle = next((key for key, one in self._live.items() if not one.lock.locked() and one is not live), None)
            if idle is None:
                return
            del self._live[idle]

    def _by_prefix(self, person: str, target: Target, call: ChatCall) -> Live | None:
        chain = _chain(person, target.purpose, call.messages)
        oldest = time.monotonic() - self._config.session_idle_s
        followers = (*call.messages[1:], None)
        for digest, following in zip(reversed(chain), reversed(followers), strict=True):
            prefix = self._prefixes.get(digest)
            if prefix is None or prefix.at < oldest or not prefix.leads(following):
                continue
            live = self._get(prefix.session_id, call)
            if live is not None and live.row.closed_at is None:
                return live
        return None

    def _read_back(self, row: SessionRow, call: ChatCall) -> Live:
        """A session's token log from the ledger. Tools and stop texts are not stored; those of the present request
        stand in for them, and where they differ the log sees another history and opens a segment."""
        live = Live(row, TokenLog(self._format))
        live.stored = True
        turns = self._ledger.turns(row.session_id)
        live.next_index = len(turns)
        live.private = any(turn.untrainable_reason == OPTED_OUT for turn in turns)
        last = next((turn for turn in reversed(turns) if turn.trace is not None and turn.trace.ids), None)
        if last is None or last.trace is None:
            return live
        ids: list[int] = []
        for turn in turns:
            if turn.segment == last.segment and turn.trace is not None:
                ids = ids[: turn.trace.context_len] + turn.trace.prompt_ids + turn.trace.ids
                if turn.trace.experts or turn.finish_reason in ("stop", "length"):
                    live.experts_until = len(ids) - 1
        reply = cut_at_stop(self._format.parse(last.trace.ids, call.tools, call_prefix(last.turn_id)), call.stop)
        messages = [*read_messages(self._ledger.request(last.turn_id)), reply.message()]
        live.log.restore(ids, messages, call.tools, last.segment)
        return live


def call_prefix(turn_id: str) -> str:
    """What the ids of a turn's tool calls begin with: derived, so that reading the turn again gives the same ids."""
    return f"call_{turn_id[-24:]}_"


def cut_at_stop(reply: ParsedReply, stops: Sequence[str]) -> ParsedReply:
    """The reply as shown: it ends before the first of the client's stop texts."""
    found = [at for at in (reply.content.find(stop) for stop in stops) if at >= 0]
    return ParsedReply(reply.content[: min(found)]) if found else reply


def _check(row: SessionRow, person: str, target: Target) -> None:
    if row.closed_at is not None:
        raise ConflictError(
            f"Session {row.session_id!r} is closed.",
            hint="Send another X-Ostinato-Session.",
            param="X-Ostinato-Session",
        )
    if row.person != person or row.purpose != target.purpose:
        raise ConflictError(
            f"Session {row.session_id!r} belongs to another person or model name.",
            hint="Keep one person and one model name in a session, or send another X-Ostinato-Session.",
            param="X-Ostinato-Session",
        )


def _chain(person: str, purpose: str, messages: Sequence[Message]) -> list[bytes]:
    """A digest after each message, over all messages up to it and who sent them."""
    digest = f"{person}\x00{purpose}\x00".encode()
    chain = []
    for message in messages:
        digest = hashlib.blake2b(digest + _pack(message), digest_size=16).digest()
        chain.append(digest)
    return chain
