"""Sessions, turns and feedback: what is stored, once, and under whom."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from ostinato.records import (
    ConflictError,
    EditSurvival,
    Fate,
    FeedbackEvent,
    MissingError,
    Rating,
    SessionRow,
    Turn,
)
from ostinato.store import Ledger

Make = Callable[..., Turn]
MESSAGES = b'[{"role": "user", "content": "fix it"}]'


def begun(turn: Turn) -> Turn:
    """The turn as it is known at its start."""
    return msgspec.structs.replace(
        turn, finish_reason=None, first_token_at=None, ended_at=None, versions=(), trace=None
    )


def test_a_turn_comes_back_as_it_went_in(ledger: Ledger, make_turn: Make) -> None:
    """Begin and finish store every field, the messages and the trace."""
    turn = make_turn(segment=2, segment_reason="summary")
    ledger.begin_turn(begun(turn), MESSAGES)
    assert ledger.turns("s1") == [begun(turn)]
    ledger.finish_turn(turn)
    assert ledger.turns("s1") == [turn]
    assert ledger.turns("s1", traces=False) == [msgspec.structs.replace(turn, trace=None)]
    assert ledger.request("t0") == MESSAGES
    assert ledger.turn_session("t0") == "s1" and ledger.turn_session("t9") is None
    session = ledger.session("s1")
    assert session is not None and session.last_at == 102.0


def test_sessions_open_once_and_close_once(ledger: Ledger) -> None:
    """Opening again changes nothing; the first closing time and the latest touch stay."""
    row = SessionRow("s2", "bob", "episode", 1.0, 1.0, "x1", "candidate", "prefix", None, None)
    ledger.open_session(row)
    ledger.open_session(msgspec.structs.replace(row, person="eve"))
    assert ledger.session("s2") == row
    ledger.touch_session("s2", 9.0, sandbox_id="box")
    ledger.touch_session("s2", 5.0)
    ledger.close_session("s2", 10.0)
    ledger.close_session("s2", 20.0)
    assert ledger.session("s2") == msgspec.structs.replace(row, last_at=9.0, sandbox_id="box", closed_at=10.0)
    assert [session.session_id for session in ledger.open_sessions()] == ["s1"]
    assert [session.session_id for session in ledger.sessions_without_fate("episode")] == ["s2"]
    assert [session.session_id for session in ledger.sessions("live")] == ["s1"]
    ledger.put_fate("s1", Fate.EXPIRED, "idle")
    assert ledger.open_sessions() == []


def test_wrong_orders_are_refused(ledger: Ledger, make_turn: Make) -> None:
    """Turns need a session, a fresh id and index, a beginning, and end once."""
    with pytest.raises(MissingError, match="'nobody'"):
        ledger.begin_turn(make_turn(session_id="nobody"), MESSAGES)
    with pytest.raises(MissingError, match="no turn 't0'"):
        ledger.finish_turn(make_turn())
    ledger.begin_turn(make_turn(), MESSAGES)
    with pytest.raises(ConflictError, match="begun already"):
        ledger.begin_turn(make_turn(index=1), MESSAGES)
    with pytest.raises(ConflictError, match="begun already"):
        ledger.begin_turn(make_turn("t1"), MESSAGES)
    ledger.finish_turn(make_turn())
    with pytest.raises(ConflictError, match=r"ended at 102"):
        ledger.finish_turn(make_turn())
    for call in (ledger.close_session, ledger.touch_session):
        with pytest.raises(MissingError, match="'nobody'"):
            call("nobody", 1.0)
    with pytest.raises(MissingError, match="'t5'"):
        ledger.request("t5")


def test_a_new_owner_ends_open_turns(tmp_path: Path, make_turn: Make) -> None:
    """Turns that a dead gateway left open are cut: not trainable, and counted."""
    with Ledger.open(tmp_path, owner=True) as ledger:
        ledger.open_session(SessionRow("s1", "ada", "live", 1.0, 1.0))
        ledger.begin_turn(begun(make_turn()), MESSAGES)
    with Ledger.open(tmp_path) as guest:
        assert guest.turns("s1")[0].ended_at is None
    with Ledger.open(tmp_path, owner=True) as ledger:
        turn = ledger.turns("s1")[0]
        assert turn.ended_at is not None and not turn.trainable and turn.finish_reason == "cancelled"
        assert "gateway ended" in turn.untrainable_reason
        assert ledger.counters() == {"turns.cut_by_restart": 1}


def test_feedback_early_late_and_twice(ledger: Ledger, make_turn: Make) -> None:
    """Early feedback is parked and joins its turn; late feedback is joined at once; the same id counts once."""
    early = FeedbackEvent("e1", "t0", 50.0, Rating(1))
    late = FeedbackEvent("e2", "t0", 40.0, EditSurvival(60.0, 1.0, 1.0))
    assert ledger.add_feedback(early, None) == "parked"
    assert ledger.add_feedback(early, None) == "duplicate"
    assert ledger.parked_feedback() == 1 and ledger.feedback("s1") == []
    ledger.begin_turn(make_turn(), MESSAGES)
    assert ledger.parked_feedback() == 0
    assert ledger.add_feedback(early, "s1") == "duplicate"
    assert ledger.add_feedback(late, None) == "stored"
    assert ledger.add_feedback(late, "s1") == "duplicate"
    assert ledger.feedback("s1") == [late, early]
    assert ledger.counters() == {}


def test_parked_feedback_can_be_claimed(ledger: Ledger) -> None:
    """A caller that learns the session by itself joins parked reports to it."""
    assert ledger.add_feedback(FeedbackEvent("e1", "tx", 1.0, Rating(-1)), None) == "parked"
    assert ledger.claim_parked("tx", "s1") == 1
    assert ledger.claim_parked("tx", "s1") == 0
    assert [event.event_id for event in ledger.feedback("s1")] == ["e1"]


def test_conflicting_duplicates_keep_the_first(ledger: Ledger) -> None:
    """The same event id with another content changes nothing, and is counted."""
    assert ledger.add_feedback(FeedbackEvent("e1", "t0", 1.0, Rating(1)), "s1") == "stored"
    assert ledger.add_feedback(FeedbackEvent("e1", "t0", 1.0, Rating(-1)), "s1") == "duplicate"
    assert [event.payload for event in ledger.feedback("s1")] == [Rating(1)]
    assert ledger.counters() == {"feedback.conflicting": 1}
    with pytest.raises(MissingError, match="'nobody'"):
        ledger.add_feedback(FeedbackEvent("e2", "t0", 1.0, Rating(1)), "nobody")
