"""The distiller: sessions that are over become rewards, and those that cannot be trained on get their fate."""

from collections import Counter
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from ostinato.records import Fate, RewardRecord, SessionRow, Turn, in_held_out_group
from ostinato.render import ChatFormat
from ostinato.rewards.behaviour import behaviour_of
from ostinato.rewards.compose import RewardConfig, reward_of
from ostinato.rewards.signals import signals_of
from ostinato.store import CorruptTraceError, Ledger, Transaction


class DistilConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """rewards: the weights. window_s: seconds of silence after which a session that was not closed counts as over."""

    rewards: RewardConfig = RewardConfig()
    window_s: float = 120.0


class DistilCounts(Struct, frozen=True):
    """What one pass did: sessions rewarded, excluded and filtered, and how many are still open; `outcomes` by name."""

    rewarded: int = 0
    excluded: int = 0
    filtered: int = 0
    waiting: int = 0
    outcomes: dict[str, int] = {}


class Distiller:
    """Gives each live session of a ledger its reward when it is over, and another one where feedback came later but
    before the session had its fate. `chat_format` reads the last reply."""

    def __init__(self, ledger: Ledger, chat_format: ChatFormat, config: DistilConfig | None = None) -> None:
        self._ledger = ledger
        self._format = chat_format
        self._config = config or DistilConfig()
        self._done = set(ledger.latest_rewards())

    def distil(self, now: float) -> DistilCounts:
        """One pass at time `now` (Unix seconds). A session that is excluded, or that has a turn without exact tokens,
        gets the fate "filtered" with the reason, one of a held-out person the fate "held out"; the others wait for the
        trainer."""
        outcomes: Counter[str] = Counter()
        excluded = filtered = waiting = 0
        late = self._ledger.rewarded_before_feedback()
        for session in self._ledger.sessions_without_fate("live"):
            if session.session_id in self._done and session.session_id not in late:
                continue
            turns = self._turns(session, now)
            if turns is None:
                waiting += 1
                continue
            record = judge(self._ledger, self._format, session.session_id, turns, self._config.rewards, now)
            filtered += settle(self._ledger, record, session.person, turns)
            self._done.add(session.session_id)
            outcomes[record.outcome.value] += 1
            excluded += record.reward is None
        return DistilCounts(outcomes.total() - excluded, excluded, filtered, waiting, dict(outcomes))

    def _turns(self, session: SessionRow, now: float) -> list[Turn] | None:
        """The session's turns with traces, or None while more may come."""
        if session.closed_at is None and now - session.last_at < self._config.window_s:
            return None
        turns = turns_of(self._ledger, session.session_id)
        return None if any(turn.ended_at is None for turn in turns) else turns


def turns_of(ledger: Ledger, session_id: str) -> list[Turn]:
    """A session's turns with their traces, without them where they are damaged."""
    try:
        return ledger.turns(session_id)
    except CorruptTraceError:
        return ledger.turns(session_id, traces=False)


def judge(
    ledger: Ledger, chat_format: ChatFormat, session_id: str, turns: Sequence[Turn], rewards: RewardConfig, now: float
) -> RewardRecord:
    """The reward record that a session deserves by what the ledger knows now. Nothing is stored."""
    trace = turns[-1].trace if turns else None
    reply = "" if trace is None else chat_format.parse(trace.ids, ()).content
    reports = ledger.feedback(session_id)
    record = reward_of(session_id, signals_of(reports, turns, reply), rewards, now)
    behaviour = behaviour_of(ledger.request(turns[-1].turn_id), turns) if turns else {}
    return msgspec.structs.replace(record, signals=record.signals | behaviour, reports=len(reports))


def settle(ledger: Ledger, record: RewardRecord, person: str, turns: Sequence[Turn]) -> bool:
    """Store the reward of a session without a fate, and together with it the fate that follows from it, if one does.
    True where the session was filtered."""
    reason = record.exclusion or _not_exact(turns)
    held_out = in_held_out_group(person)
    if not reason and not held_out:
        ledger.put_reward(record)
        return False
    fate = Fate.FILTERED if reason else Fate.HELD_OUT

    def write(transaction: Transaction) -> None:
        transaction.put_reward(record)
        transaction.put_fate(record.session_id, fate, reason or "held-out person")

    ledger.commit(write)
    return bool(reason)


def _not_exact(turns: Sequence[Turn]) -> str:
    """Why the session cannot be trained on, "" if every turn has its exact tokens."""
    bad = next((turn for turn in turns if not turn.trainable), None)
    return f"turn {bad.index}: {bad.untrainable_reason}" if bad is not None else ""
