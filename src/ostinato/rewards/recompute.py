"""Rewards over history: what today's rule would have given, beside what was given then."""

from collections import Counter
from collections.abc import Iterator

from msgspec import Struct

from ostinato.records import RewardRecord
from ostinato.render import ChatFormat
from ostinato.rewards.compose import RewardConfig, rule_name
from ostinato.rewards.distil import judge, settle, turns_of
from ostinato.store import Ledger

SAME = 1e-9
"""Rewards nearer than this are the same."""


class Change(Struct, frozen=True):
    """A session whose outcome, reward or parts come out otherwise today. `fate`: "" while it has none."""

    person: str
    before: RewardRecord
    after: RewardRecord
    fate: str

    @property
    def by(self) -> float:
        """How much the reward rises; an excluded session counts as 0."""
        return (self.after.reward or 0.0) - (self.before.reward or 0.0)


class Recomputed(Struct, frozen=True):
    """What today's rule makes of all rewarded live sessions, oldest first."""

    rule: str
    sessions: int
    changes: list[Change]

    @property
    def moves(self) -> dict[tuple[str, str], int]:
        """How often an outcome became another one, most often first."""
        pairs = Counter(
            (change.before.outcome.value, change.after.outcome.value)
            for change in self.changes
            if change.before.outcome != change.after.outcome
        )
        return dict(pairs.most_common())


def recompute(ledger: Ledger, chat_format: ChatFormat, config: RewardConfig, now: float) -> Recomputed:
    """Judge every live session that has a reward again, at time `now` (Unix seconds). Nothing is stored."""
    held = ledger.latest_rewards()
    fates = {row.session_id: row.fate for row in ledger.fates()}
    people = {session.session_id: session.person for session in ledger.sessions("live")}

    def changes() -> Iterator[Change]:
        for session_id, before in held.items():
            after = judge(ledger, chat_format, session_id, turns_of(ledger, session_id), config, now)
            if _differs(before, after):
                yield Change(people[session_id], before, after, fates.get(session_id, ""))

    return Recomputed(rule_name(config), len(held), list(changes()))


def apply(ledger: Ledger, recomputed: Recomputed) -> int:
    """Store the changed rewards; the old ones stay as history. A session that is without a fate and is excluded now is
    filtered; one that has its fate keeps it, since what was trained cannot be taken back. How many were stored."""
    for change in recomputed.changes:
        if change.fate:
            ledger.put_reward(change.after)
        else:
            settle(ledger, change.after, change.person, turns_of(ledger, change.after.session_id))
    return len(recomputed.changes)


def _differs(before: RewardRecord, after: RewardRecord) -> bool:
    if (before.outcome, before.exclusion, set(before.parts)) != (after.outcome, after.exclusion, set(after.parts)):
        return True
    return any(abs(before.parts[name] - value) > SAME for name, value in after.parts.items())
