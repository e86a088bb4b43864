"""`ostinato rewards` as a person types it: one reward taken apart, and a rule tried on history."""

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

from tests.rewards.test_distil import DONE, put_session
from tests.tiny_tokenizer import tiny_frame

from ostinato.records import FollowUp, Outcome, SessionClosed
from ostinato.render import TinyFormat, format_for
from ostinato.rewards import Distiller
from ostinato.services import Claim
from ostinato.store import Ledger
from ostinato.weights import WeightStore

Ostinato = Callable[..., CompletedProcess[str]]


def history(data: Path, model_folder: Path) -> None:
    """A data folder with a release and one session, which asked back and was scolded for it."""
    version = WeightStore(data / "weights").import_folder(model_folder)
    chat_format = format_for(dict(tiny_frame()))
    assert isinstance(chat_format, TinyFormat)
    with Ledger.open(data, owner=True) as ledger:
        ledger.put_version(version)
        ledger.put_release(version.version, 100.0)
        put_session(ledger, chat_format, "s-1", "Which f?", DONE, FollowUp("just fix it, don't ask"), SessionClosed())
        Distiller(ledger, chat_format).distil(now=200.0)


def test_a_reward_is_taken_apart(tmp_path: Path, model_folder: Path, ostinato: Ostinato) -> None:
    """Outcome, parts, signals, the telling words of the follow-up, and the fate; an unknown session is named."""
    history(tmp_path, model_folder)
    told = ostinato("rewards", "explain", "s-1", "--data", tmp_path)
    assert told.returncode == 0, told.stderr
    assert "asked -" in told.stdout
    assert "-1.800 asked" in told.stdout
    assert 'follow-up "just fix it, don\'t ask": dissatisfied with probability' in told.stdout
    assert "fate: none yet" in told.stdout
    missing = ostinato("rewards", "explain", "s-2", "--data", tmp_path)
    assert missing.returncode == 1
    assert "no session 's-2'" in missing.stderr


def test_a_rule_is_tried_on_history(tmp_path: Path, model_folder: Path, ostinato: Ostinato) -> None:
    """Shown first, stored on request, refused while the loop turns."""
    history(tmp_path, model_folder)
    dials = tmp_path / "dials.toml"
    dials.write_text("[distil.rewards]\nasked = -3.0\n")
    same = ostinato("rewards", "recompute", "--data", tmp_path)
    assert "0 of 1 rewards would come out otherwise" in same.stdout
    shown = ostinato("rewards", "recompute", "--data", tmp_path, "--settings", dials)
    assert "1 of 1 rewards would come out otherwise" in shown.stdout
    assert "mean change is -1.200" in shown.stdout
    claim = Claim(tmp_path)
    refused = ostinato("rewards", "recompute", "--data", tmp_path, "--settings", dials, "--apply")
    claim.release()
    assert refused.returncode == 1
    assert "is in use" in refused.stderr
    stored = ostinato("rewards", "recompute", "--data", tmp_path, "--settings", dials, "--apply")
    assert "Stored 1 rewards" in stored.stdout
    with Ledger.open(tmp_path) as ledger:
        held = ledger.rewards("s-1")
    assert [record.outcome for record in held] == [Outcome.ASKED, Outcome.ASKED]
    assert held[1].parts["asked"] == -3.0
