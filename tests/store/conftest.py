"""A ledger in a temporary folder, and a builder of turns."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ostinato.records import SessionRow, Turn, TurnTrace, VersionSpan
from ostinato.store import Ledger


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """An empty ledger with one open live session, "s1" of person "ada"."""
    with Ledger.open(tmp_path / "data", owner=True) as opened:
        opened.open_session(SessionRow("s1", "ada", "live", 100.0, 100.0))
        yield opened


@pytest.fixture
def make_turn() -> Callable[..., Turn]:
    """Builds a finished, exact turn; any field can be given."""

    def make(turn_id: str = "t0", session_id: str = "s1", index: int = 0, **fields: Any) -> Turn:
        trace = TurnTrace(context_len=0, prompt_ids=[1, 5, 6], ids=[7, 8], logprobs=[-0.5, -0.25])
        values: dict[str, Any] = {
            "segment": 0,
            "segment_reason": "",
            "slot": "release",
            "versions": (VersionSpan(0, "v-a"),),
            "finish_reason": "stop",
            "temperature": 1.0,
            "started_at": 101.0,
            "first_token_at": 101.5,
            "ended_at": 102.0,
            "trainable": True,
            "trace": trace,
        }
        return Turn(turn_id=turn_id, session_id=session_id, index=index, **(values | fields))

    return make
