"""Response ids and API keys."""

import stat
from pathlib import Path

import pytest

from ostinato.records import ConflictError
from ostinato.store import Ledger, ResponseIds


def test_response_ids_are_recognised(tmp_path: Path) -> None:
    """A minted id verifies, also by another object on the same folder; every changed character is noticed."""
    ids = ResponseIds(tmp_path)
    minted = ids.mint()
    assert minted.startswith("chatcmpl-")
    assert ResponseIds(tmp_path).verify(minted)
    for place in range(len(minted)):
        changed = minted[:place] + ("0" if minted[place] != "0" else "1") + minted[place + 1 :]
        assert not ids.verify(changed)


@pytest.mark.parametrize("forged", ["", "chatcmpl-", "chatcmpl-" + "0" * 48, "x" * 57, "é" * 57, "chatcmpl-1"])
def test_other_ids_are_not_ours(tmp_path: Path, forged: str) -> None:
    """Anything else is refused without an error."""
    assert not ResponseIds(tmp_path).verify(forged)


def test_another_folder_has_another_key(tmp_path: Path) -> None:
    """Ids of one installation mean nothing to another; the key file is private; ids ascend."""
    one, two = ResponseIds(tmp_path / "one"), ResponseIds(tmp_path / "two")
    assert not two.verify(one.mint())
    assert stat.S_IMODE((tmp_path / "one" / "response-ids.key").stat().st_mode) == 0o600
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["response-ids.key"]


def test_keys_are_kept_as_hashes(ledger: Ledger) -> None:
    """A key opens what its scopes say, its secret is nowhere in the folder, and revoking ends it at once."""
    assert not ledger.has_keys()
    secret = ledger.create_key("ci", frozenset({"infer", "feedback"}))
    assert ledger.has_keys()
    key = ledger.check_key(secret)
    assert key is not None and key.name == "ci" and sorted(key.scopes) == ["feedback", "infer"]
    assert ledger.check_key(secret + "x") is None
    for path in ledger.folder.rglob("*"):
        assert path.is_dir() or secret.encode() not in path.read_bytes()
    with pytest.raises(ConflictError, match="'ci'"):
        ledger.create_key("ci", frozenset({"admin"}))
    assert ledger.revoke_key("ci")
    assert not ledger.revoke_key("ci")
    assert ledger.check_key(secret) is None
    assert ledger.has_keys()
