"""The distiller: sessions that are over become rewards, and those that cannot be trained on get their fate."""

from collections import Counter

from msgspec import Struct

from ostinato.records import Fate, RewardRecord, SessionRow, Turn, in_held_out_group
from ostinato.render import ChatFormat
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
    """Gives each live session of a ledger its reward, once, when it is over. `format` reads the last reply."""

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
        rewarded = excluded = filtered = waiting = 0
        for session in self._ledger.sessions_without_fate("live"):
            if session.session_id in self._done:
                continue
            turns = self._turns(session, now)
            if turns is None:
                waiting += 1
                continue
            record = self._reward(session, turns, now)
            reason = record.exclusion or _not_exact(turns)
            self._store(record, session.person, reason)
            self._done.add(session.session_id)
            outcomes[record.outcome.value] += 1
            rewarded += record.reward is not None
            excluded += record.reward is None
            filtered += bool(reason)
        return DistilCounts(rewarded, excluded, filtered, waiting, dict(outcomes))

    def _turns(self, session: SessionRow, now: float) -> list[Turn] | None:
        """The session's turns with traces, or None while more may come. Without its traces where they are damaged."""
        if session.closed_at is None and now - session.last_at < self._config.window_s:
            return None
        try:
            turns = self._ledger.turns(session.session_id)
        except CorruptTraceError:
            turns = self._ledger.turns(session.session_id, traces=False)
        return None if any(turn.ended_at is None for turn in turns) else turns

    def _reward(self, session: SessionRow, turns: list[Turn], now: float) -> RewardRecord:
        trace = turns[-1].trace if turns else None
        reply = "" if trace is None else self._format.parse(trace.ids, ()).content
        signals = signals_of(self._ledger.feedback(session.session_id), turns, reply)
        return reward_of(session.session_id, signals, self._config.rewards, now)

    def _store(self, record: RewardRecord, person: str, reason: str) -> None:
        """The reward and the fate come into being together."""
        held_out = in_held_out_group(person)
        if not reason and not held_out:
            self._ledger.put_reward(record)
            return
        fate = Fate.FILTERED if reason else Fate.HELD_OUT

        def write(transaction: Transaction) -> None:
            transaction.put_reward(record)
            transaction.put_fate(record.session_id, fate, reason or "held-out person")

        self._ledger.commit(write)


def _not_exact(turns: list[Turn]) -> str:
    """Why the session cannot be trained on, "" if every turn has its exact tokens."""
    bad = next((turn for turn in turns if not turn.trainable), None)
    return f"turn {bad.index}: {bad.untrainable_reason}" if bad is not None else ""
