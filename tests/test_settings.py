"""Where the data lie, and the dials that a file may set."""

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from ostinato.records import BadInputError, ConflictError, MissingError
from ostinato.settings import (
    CycleConfig,
    data_folder,
    existing_ledger,
    load_config,
    move_aside,
    open_ledger,
    quick_config,
)

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"


def keys_of(config: msgspec.Struct, before: str = "") -> Iterator[tuple[str, str]]:
    """Every key with its default, as TOML writes them."""
    for name in config.__struct_fields__:
        value = getattr(config, name)
        if isinstance(value, msgspec.Struct):
            yield from keys_of(value, f"{before}{name}.")
        else:
            yield before + name, str(value).lower() if isinstance(value, bool) else str(value)


def test_without_a_file_the_defaults_hold() -> None:
    """No file is needed."""
    assert load_config(None) == CycleConfig()


def test_a_file_sets_what_it_names(tmp_path: Path) -> None:
    """Nested sections too; the rest stays."""
    path = tmp_path / "settings.toml"
    path.write_text("cycles = 2\n[gate]\nmargin = 0.1\n[distil.rewards]\nasked = -1\n")
    config = load_config(path)
    assert (config.cycles, config.gate.margin, config.distil.rewards.asked) == (2, 0.1, -1.0)
    assert config.experiment == CycleConfig().experiment


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("cyles = 2", "cyles"),
        ("[gate]\nmargins = 1", r"margins.*\$\.gate"),
        ("[training]\nlearningrate = 1", r"learningrate.*\$\.training"),
        ("[distil.rewards]\nkeep = 1", r"keep.*\$\.distil\.rewards"),
        ('cycles = "two"', r"\$\.cycles"),
        ("cycles = ", "Invalid value"),
    ],
)
def test_a_bad_file_is_refused_by_name(tmp_path: Path, text: str, named: str) -> None:
    """The error names the file, the key and the page with every key."""
    path = tmp_path / "settings.toml"
    path.write_text(text)
    with pytest.raises(BadInputError, match=named) as caught:
        load_config(path)
    assert str(path) in caught.value.message
    assert "docs/settings.md" in caught.value.hint


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """One that is not there, a folder, and bytes that are no text."""
    with pytest.raises(BadInputError, match=r"no settings file .*none\.toml"):
        load_config(tmp_path / "none.toml")
    with pytest.raises(BadInputError, match="directory"):
        load_config(tmp_path)
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(BadInputError, match=r"bytes\.toml"):
        load_config(tmp_path / "bytes.toml")


def test_the_page_lists_every_key_with_its_default() -> None:
    """No key is missing, none is invented, and no default is out of date."""
    rows = re.findall(r"^\| `([^`]+)` \| `([^`]+)` \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    assert {(key, default) for key, default, _ in rows} == set(keys_of(CycleConfig()))
    assert len(rows) == len({key for key, _, _ in rows})
    assert all(meaning.endswith(".") for _, _, meaning in rows)


def test_the_page_says_what_quick_changes() -> None:
    """Every key that `--quick` sets, with its value."""
    text = " ".join(PAGE.read_text().split())
    sentence = text[text.index("`--quick` sets") : text.index("whatever the file says")]
    plain, quick = dict(keys_of(CycleConfig())), dict(keys_of(quick_config(CycleConfig())))
    told = re.findall(r"`([a-z_.]+)` ([\d.]+\d|\d)", sentence)
    assert dict(told) == {key: value for key, value in quick.items() if value != plain[key]}


def test_an_old_folder_is_moved_aside_and_kept(tmp_path: Path) -> None:
    """To the first free name beside it."""
    folder = tmp_path / "demo"
    assert move_aside(folder) is None
    for text in ("first", "second"):
        folder.mkdir()
        (folder / "ledger.sqlite").write_text(text)
        aside = move_aside(folder)
        assert aside is not None and not folder.exists()
        assert (aside / "ledger.sqlite").read_text() == text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["demo.1", "demo.2"]


def test_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As given, else $OSTINATO_DATA, else ./.ostinato; always absolute, never a file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OSTINATO_DATA", raising=False)
    assert data_folder(None) == tmp_path / ".ostinato"
    monkeypatch.setenv("OSTINATO_DATA", "elsewhere")
    assert data_folder(None) == tmp_path / "elsewhere"
    assert data_folder(Path("here")) == tmp_path / "here"
    monkeypatch.setenv("OSTINATO_DATA", "")
    assert data_folder(None) == tmp_path / ".ostinato"
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInputError, match="is a file"):
        data_folder(tmp_path / "file")


def test_a_ledger_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    """Reading commands leave no trace."""
    with pytest.raises(MissingError, match=str(tmp_path)) as caught:
        existing_ledger(tmp_path)
    assert "ostinato demo" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_ledger_is_left_alone(tmp_path: Path) -> None:
    """It is named; not a byte of it changes."""
    path = tmp_path / "ledger.sqlite"
    path.write_bytes(b"these are no tables " * 100)
    with pytest.raises(BadInputError, match=r"ledger\.sqlite cannot be read"):
        existing_ledger(tmp_path)
    assert path.read_bytes() == b"these are no tables " * 100


def test_a_newer_ledger_is_refused(tmp_path: Path) -> None:
    """Its schema and ours are named, and how to get a release that knows it."""
    open_ledger(tmp_path).close()
    db = sqlite3.connect(tmp_path / "ledger.sqlite")
    db.execute("PRAGMA user_version = 999")
    db.close()
    with pytest.raises(ConflictError, match="schema 999") as caught:
        existing_ledger(tmp_path)
    assert "pip install --upgrade ostinato" in caught.value.hint


def test_a_folder_that_cannot_be_made_is_named() -> None:
    """No traceback of the operating system."""
    with pytest.raises(BadInputError, match=r"/proc/none cannot be used"):
        open_ledger(Path("/proc/none"))
