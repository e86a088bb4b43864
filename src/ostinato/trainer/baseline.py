"""`python -m ostinato.trainer.baseline`: how the baselines of baseline_fit.py compare on what was recorded."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ostinato.store import Ledger
from ostinato.trainer.baseline_fit import Floats, compare


class Recorded(NamedTuple):
    """A session of the ledger, as far as a baseline looks at it."""

    session_id: str
    person: str
    opened_at: float
    request: str


def recorded(ledger: Ledger, limit: int) -> tuple[list[Recorded], Floats]:
    """The newest `limit` live sessions with a reward, trained or not, and their rewards."""
    rewards = ledger.latest_rewards("live")
    worth = {name: record.reward for name, record in rewards.items() if record.reward is not None}
    rows = [row for row in ledger.sessions("live") if row.session_id in worth][-limit:]
    found = []
    for row in rows:
        turns = ledger.turns(row.session_id, traces=False)
        request = _first_request(ledger.request(turns[0].turn_id)) if turns else ""
        found.append(Recorded(row.session_id, row.person, row.opened_at, request))
    return found, np.array([worth[row.session_id] for row in rows], np.float64)


def _first_request(messages: bytes) -> str:
    """The first user message of an OpenAI message array, as the store gives it to the trainer."""
    asked = [message for message in json.loads(messages) if message.get("role") == "user"]
    content = (asked[0].get("content") if asked else None) or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print, as JSON, how the baselines compare on the rewarded sessions of a data folder."""
    parser = argparse.ArgumentParser(prog="python -m ostinato.trainer.baseline", description=main.__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the data folder")
    parser.add_argument("--limit", type=int, default=5000, help="at most so many sessions, the newest")
    options = parser.parse_args(arguments)
    with Ledger.open(options.data) as ledger:
        sessions, rewards = recorded(ledger, options.limit)
    sys.stdout.write(json.dumps({"sessions": len(sessions), "left": compare(sessions, rewards)}) + "\n")


if __name__ == "__main__":
    main()
