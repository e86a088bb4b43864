"""`ostinato rewards`: one session's reward taken apart, and what another rule would make of all of them."""

import time
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from ostinato.records import FollowUp, MissingError, RewardRecord
from ostinato.render import ChatFormat, format_for
from ostinato.rewards import Change, RewardConfig, apply, recompute, shipped
from ostinato.services import Claim
from ostinato.settings import existing_ledger
from ostinato.store import Ledger
from ostinato.view import plainly
from ostinato.weights import WeightStore

TELLING = 6
"""Words of a follow-up that are shown with their weights."""
EXAMPLES = 5
"""Sessions that are named where many change."""


def explain_reward(data: Path, session_id: str, console: Console) -> None:
    """Print the reward that counts with its parts, the signals, what the follow-ups said, and the fate."""
    with existing_ledger(data) as ledger:
        session = ledger.session(session_id)
        if session is None:
            raise MissingError(
                f"The ledger has no session {session_id!r}.", hint="Session ids stand in the output of: ostinato report"
            )
        lines = [f"session {session_id} of {session.person or 'an unnamed person'}"]
        held = ledger.rewards(session_id)
        lines += _reward_lines(held[-1]) if held else ["no reward yet: the session is not over"]
        lines += [line for text in _follow_ups(ledger, session_id) for line in _follow_up_lines(text)]
        if len(held) > 1:
            lines.append(f"earlier rewards: {', '.join(_worth(record) for record in held[:-1])}")
        fate = next((row for row in ledger.fates() if row.session_id == session_id), None)
        lines.append(f"fate: {' '.join(filter(None, (fate.fate, fate.version, fate.reason))) if fate else 'none yet'}")
    _print(console, lines)


def recompute_rewards(data: Path, config: RewardConfig, store: bool, console: Console) -> None:
    """Print what `config` and today's code would change in the rewards that were given; store it where asked to."""
    with ExitStack() as held:
        ledger = held.enter_context(existing_ledger(data))
        if store:  # while the loop turns, it alone writes rewards
            held.callback(Claim(data).release)
        found = recompute(ledger, _chat_format(data, ledger), config, time.time())
        lines = [f"{len(found.changes)} of {found.sessions} rewards would come out otherwise by rule {found.rule}."]
        lines += [f"  {count} sessions: {before} -> {after}" for (before, after), count in found.moves.items()]
        trained = sum(change.fate == "trained" for change in found.changes)
        if found.changes:
            mean = sum(change.by for change in found.changes) / len(found.changes)
            lines.append(f"Their mean change is {mean:+.3f}; {trained} of them were trained on and stay so.")
            largest = sorted(found.changes, key=lambda change: -abs(change.by))[:EXAMPLES]
            lines += [_change_line(change) for change in largest]
        if store:
            lines.append(f"Stored {apply(ledger, found)} rewards; the earlier ones stay as history.")
        elif found.changes:
            lines.append("Nothing was stored. To store it: add --apply")
    _print(console, lines)


def _chat_format(data: Path, ledger: Ledger) -> ChatFormat:
    release = ledger.current_release()
    if release is None:
        raise MissingError(f"{data} has no release yet.", hint="Next: ostinato serve --model DIR")
    return format_for(dict(WeightStore(data / "weights").frame(release.version)))


def _follow_ups(ledger: Ledger, session_id: str) -> list[str]:
    return [event.payload.text for event in ledger.feedback(session_id) if isinstance(event.payload, FollowUp)]


def _worth(record: RewardRecord) -> str:
    worth = f"excluded ({record.exclusion})" if record.reward is None else f"{record.reward:+.3f}"
    return f"{record.outcome.value} {worth}"


def _reward_lines(record: RewardRecord) -> list[str]:
    lines = [f"{_worth(record)} by rule {record.rule}"]
    lines += [f"  {value:+.3f} {name}" for name, value in record.parts.items()]
    told = ", ".join(f"{name} {value:g}" for name, value in record.signals.items() if value)
    return [*lines, f"signals: {told or 'none'}"]


def _follow_up_lines(text: str) -> list[str]:
    classifier = shipped()
    telling = sorted(classifier.parts(text).items(), key=lambda part: -abs(part[1]))[:TELLING]
    said = ", ".join(f"{name} {value:+.2f}" for name, value in telling)
    return [f'follow-up "{text:.80}": dissatisfied with probability {classifier.probability(text):.2f}', f"  {said}"]


def _change_line(change: Change) -> str:
    return f"  {change.before.session_id}: {_worth(change.before)} -> {_worth(change.after)}"


def _print(console: Console, lines: list[str]) -> None:
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip()))
        console.print(f"{indent}{plainly(line)}", markup=False, highlight=False, soft_wrap=True)
