"""Rewards over history: what changes, what is stored, and what stays as it was."""

from pathlib import Path

from tests.rewards.test_distil import DONE, KEPT, put_session, tiny

from ostinato.records import EditProposed, EditSurvival, Fate, FeedbackEvent, FollowUp, Outcome, SessionClosed
from ostinato.render import TinyFormat
from ostinato.rewards import Distiller, RewardConfig, apply, recompute, rule_name
from ostinato.store import Ledger

__all__ = ["tiny"]

DEARER = RewardConfig(asked=-5.0)


def ledger_with_history(folder: Path, tiny: TinyFormat) -> Ledger:
    """Two sessions that keep an edit, one of them trained on, and one that asks."""
    ledger = Ledger.open(folder, owner=True)
    put_session(ledger, tiny, "kept", "Fixed f.", *KEPT, SessionClosed())
    put_session(ledger, tiny, "trained", "Which h?", DONE, FollowUp("just fix it"), SessionClosed())
    put_session(ledger, tiny, "asked", "Which f?", DONE, FollowUp("just fix it"), SessionClosed())
    Distiller(ledger, tiny).distil(now=120.0)
    ledger.put_fate("trained", Fate.TRAINED, "", "v-2")
    return ledger


def test_the_same_rule_changes_nothing(tmp_path: Path, tiny: TinyFormat) -> None:
    """Judging again by the rule that was used finds every reward as it stands."""
    with ledger_with_history(tmp_path, tiny) as ledger:
        again = recompute(ledger, tiny, RewardConfig(), now=500.0)
        assert (again.sessions, again.changes, again.moves) == (3, [], {})


def test_another_rule_is_shown_and_stored_only_on_request(tmp_path: Path, tiny: TinyFormat) -> None:
    """Dearer questions: two rewards fall by what they are dearer, none is stored until asked; the old ones stay."""
    with ledger_with_history(tmp_path, tiny) as ledger:
        again = recompute(ledger, tiny, DEARER, now=500.0)
        assert {change.before.session_id: change.fate for change in again.changes} == {
            "asked": "",
            "trained": "trained",
        }
        assert all(abs(change.by - (DEARER.asked - RewardConfig().asked)) < 1e-9 for change in again.changes)
        assert len(ledger.rewards("asked")) == 1
        assert apply(ledger, again) == 2
        assert [record.rule for record in ledger.rewards("asked")] == [rule_name(RewardConfig()), rule_name(DEARER)]
        assert [row.fate for row in ledger.fates()] == ["trained"]
        assert recompute(ledger, tiny, DEARER, now=600.0).changes == []


def test_outcomes_that_move_are_counted(tmp_path: Path, tiny: TinyFormat) -> None:
    """Feedback that came after the reward moves a session to another outcome, also where it was trained on."""
    with ledger_with_history(tmp_path, tiny) as ledger:
        put_session(ledger, tiny, "late", "Fixed f.", EditProposed(["a.py"], 1, 1), DONE, SessionClosed())
        Distiller(ledger, tiny).distil(now=130.0)
        assert ledger.latest_rewards()["late"].outcome == Outcome.NO_FEEDBACK
        ledger.add_feedback(FeedbackEvent("survived", "late-t0", 900.0, EditSurvival(900, 1.0, 1.0)), "late")
        again = recompute(ledger, tiny, RewardConfig(), now=500.0)
        assert again.moves == {("no_feedback", "kept"): 1}
        assert again.changes[0].fate == "filtered"
