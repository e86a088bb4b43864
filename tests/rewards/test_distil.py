"""The distiller on a real ledger: rewards once, fates with the reason, the accounts in balance."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer as RawTokenizer
from tokenizers import decoders, models, pre_tokenizers

from ostinato.records import (
    AgentEnded,
    EditProposed,
    EditReverted,
    EditSurvival,
    Fate,
    FeedbackEvent,
    FollowUp,
    Outcome,
    SessionClosed,
    SessionRow,
    Turn,
    TurnTrace,
    VersionSpan,
)
from ostinato.records.feedback import Payload
from ostinato.render import SPECIAL_TOKENS, TinyFormat, Tokenizer
from ostinato.rewards import DistilConfig, Distiller
from ostinato.store import Ledger

DONE = AgentEnded("done", 1, 2, 0, "sb")
KEPT = (EditProposed(["a.py"], 1, 1), EditSurvival(900, 1.0, 1.0), DONE)


@pytest.fixture(scope="module")
def tiny() -> TinyFormat:
    """The seed model's format over single bytes."""
    names = [*SPECIAL_TOKENS, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = RawTokenizer(models.BPE(vocab={name: n for n, name in enumerate(names)}, merges=[]))
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return TinyFormat(Tokenizer(tokenizer.to_str().encode()))


def put_session(
    ledger: Ledger, tiny: TinyFormat, name: str, reply: str, *payloads: Payload, broken: str = "", ended: bool = True
) -> None:
    ids = [*tiny.tokenizer.encode(reply), tiny.end]
    trace = TurnTrace(0, [tiny.bos, tiny.asst], ids, [-0.5] * len(ids))
    spans = (VersionSpan(0, "v-1"),)
    ledger.open_session(SessionRow(name, "ann", "live", 100.0, 100.0))
    turn = Turn(
        f"{name}-t0", name, 0, 0, "", "release", spans, "stop", 1.0, 100.0, 100.1, 100.2, not broken, broken, trace
    )
    ledger.begin_turn(turn, b"[]")
    if ended:
        ledger.finish_turn(turn)
    for number, payload in enumerate(payloads):
        ledger.add_feedback(FeedbackEvent(f"{name}-e{number}", turn.turn_id, 100.0 + number, payload), name)
        if isinstance(payload, SessionClosed):
            ledger.close_session(name, 110.0)


def test_sessions_that_are_over_get_their_reward_once(tmp_path: Path, tiny: TinyFormat) -> None:
    """Closed ones at once, silent ones after the window; a second pass finds nothing to do."""
    with Ledger.open(tmp_path, owner=True) as ledger:
        put_session(ledger, tiny, "kept", "Fixed f.", *KEPT, SessionClosed())
        put_session(ledger, tiny, "asked", "Which f?", DONE, FollowUp("just fix it"), SessionClosed())
        put_session(ledger, tiny, "open", "Fixed g.", *KEPT)
        distiller = Distiller(ledger, tiny, DistilConfig(window_s=60.0))
        first = distiller.distil(now=120.0)
        assert (first.rewarded, first.waiting, first.filtered) == (2, 1, 0)
        assert first.outcomes == {"kept": 1, "asked": 1}
        assert distiller.distil(now=121.0).rewarded == 0
        assert distiller.distil(now=1000.0).outcomes == {"kept": 1}
        assert Distiller(ledger, tiny).distil(now=2000.0).rewarded == 0
        found = ledger.latest_rewards()
        assert found["kept"].outcome == Outcome.KEPT
        assert found["kept"].signals["tokens"] == len("Fixed f.") + 1
        assert {row.session_id for row in ledger.training_sessions(10)} == {"kept", "asked", "open"}


def test_what_cannot_be_trained_on_is_filtered_by_name(tmp_path: Path, tiny: TinyFormat) -> None:
    """Exclusions and turns without exact tokens get their fate with the reason; sessions = open + fates."""
    with Ledger.open(tmp_path, owner=True) as ledger:
        put_session(ledger, tiny, "silent", "Fixed f.", *(), ended=True)
        put_session(ledger, tiny, "dead", "Fixed f.", AgentEnded("sandbox_died", 1, 0, 0), SessionClosed())
        put_session(ledger, tiny, "cut", "Fixed f.", *KEPT, SessionClosed(), broken="client went away")
        put_session(ledger, tiny, "running", "Fixed f.", ended=False)
        ledger.open_session(SessionRow("empty", "bob", "live", 100.0, 100.0))
        counts = Distiller(ledger, tiny, DistilConfig(window_s=60.0)).distil(now=1000.0)
        assert (counts.rewarded, counts.excluded, counts.filtered, counts.waiting) == (1, 3, 4, 1)
        reasons = {row.session_id: row.reason for row in ledger.fates()}
        assert reasons == {
            "silent": "no_feedback", "dead": "sandbox_died", "cut": "turn 0: client went away", "empty": "no_feedback",
        }  # fmt: skip
        accounts = ledger.accounts()
        assert accounts.balanced
        assert (accounts.sessions, accounts.open, accounts.fates["filtered"]) == (5, 1, 4)
        assert ledger.latest_rewards()["cut"].reward is not None


def test_late_feedback_is_judged_again_until_the_session_has_its_fate(tmp_path: Path, tiny: TinyFormat) -> None:
    """A revert that comes after the reward lowers it; once the session was trained on, nothing changes any more."""
    with Ledger.open(tmp_path, owner=True) as ledger:
        put_session(ledger, tiny, "kept", "Fixed f.", *KEPT, SessionClosed())
        distiller = Distiller(ledger, tiny)
        assert distiller.distil(now=120.0).outcomes == {"kept": 1}
        ledger.add_feedback(FeedbackEvent("late", "kept-t0", 300.0, EditReverted(200.0)), "kept")
        assert distiller.distil(now=121.0).outcomes == {"reverted": 1}
        assert distiller.distil(now=122.0).outcomes == {}
        assert [record.outcome for record in ledger.rewards("kept")] == [Outcome.KEPT, Outcome.REVERTED]
        ledger.put_fate("kept", Fate.TRAINED, "", "v-2")
        ledger.add_feedback(FeedbackEvent("later", "kept-t0", 400.0, FollowUp("thanks")), "kept")
        assert distiller.distil(now=123.0).outcomes == {}
