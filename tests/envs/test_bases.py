"""Bases: names by content, hygiene, and refusals."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ostinato.envs import BaseStore, import_base
from ostinato.envs.bases import base_id, check_paths
from ostinato.records import BadInputError, ConflictError, MissingError

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=8)


def test_texts_and_folder_give_the_same_base(tmp_path: Path) -> None:
    """The way in does not change the name; caches and history stay out."""
    folder = tmp_path / "repo"
    for path in ("src/a.py", "__pycache__/a.pyc", "node_modules/x/y.js", "loose.pyc"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("x = 1\n")
    root = tmp_path / "bases"
    base = import_base(root, folder)
    assert base == import_base(root, {"src/a.py": "x = 1\n", "src/__pycache__/a.pyc": "junk"})
    tree = BaseStore(root).tree(base)
    assert [str(path.relative_to(tree)) for path in tree.rglob("*")] == ["src", "src/a.py"]
    assert BaseStore(root).ids() == [base]


def test_git_repositories_come_without_history_and_ignored_files(tmp_path: Path) -> None:
    """Tracked and new files as they are now; nothing that git ignores."""
    folder = tmp_path / "repo"
    folder.mkdir()
    subprocess.run(["git", "init", "-q", folder], check=True)
    for path, text in ((".gitignore", "*.log\n"), ("a.py", "a\n"), ("b.log", "b\n"), ("gone.py", "g\n")):
        (folder / path).write_text(text)
    subprocess.run(["git", "-C", folder, "add", "a.py", "gone.py"], check=True)
    (folder / "gone.py").unlink()
    tree = BaseStore(tmp_path / "bases").tree(import_base(tmp_path / "bases", folder))
    assert sorted(path.name for path in tree.iterdir()) == [".gitignore", "a.py"]


def test_links_and_modes_are_kept(tmp_path: Path) -> None:
    """Links inside the folder and the executable bit are part of a base; links out of it are refused."""
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "run.sh").write_text("#!/bin/sh\n")
    plain = import_base(tmp_path / "bases", folder)
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("run.sh")
    base = import_base(tmp_path / "bases", folder)
    assert base != plain
    tree = BaseStore(tmp_path / "bases").tree(base)
    assert (tree / "run.sh").stat().st_mode & 0o777 == 0o755
    assert str((tree / "link").readlink()) == "run.sh"
    (folder / "leak").symlink_to("../../etc/shadow")
    with pytest.raises(BadInputError, match="leak"):
        import_base(tmp_path / "bases", folder)


def test_damage_is_found_and_mended(tmp_path: Path) -> None:
    """A base whose files do not fit its name is refused by name, and importing it again mends it."""
    base = import_base(tmp_path, {"a.py": "whole"})
    (tmp_path / base / "tree" / "a.py").write_text("torn")
    with pytest.raises(ConflictError, match=base):
        BaseStore(tmp_path).tree(base)
    assert import_base(tmp_path, {"a.py": "whole"}) == base
    assert (BaseStore(tmp_path).tree(base) / "a.py").read_text() == "whole"


def test_unknown_bases_and_folders(tmp_path: Path) -> None:
    """What is not there is named, and no name leads out of the store."""
    for name in ("b-0", "../x", "b-../../x", ""):
        with pytest.raises(MissingError):
            BaseStore(tmp_path).tree(name)
    with pytest.raises(MissingError, match="nowhere"):
        import_base(tmp_path, tmp_path / "nowhere")


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(NAMES, st.binary(max_size=8), min_size=1, max_size=4), st.data())
def test_any_difference_is_another_name(files: dict[str, bytes], data: st.DataObject) -> None:
    """Changing a content, a path or a kind changes the id; the order of entries does not."""
    entries = {path: ("f", content) for path, content in files.items()}
    assert base_id(entries) == base_id(dict(reversed(entries.items())))
    path = data.draw(st.sampled_from(sorted(entries)))
    others = [{**entries, path: ("x", files[path])}, {**entries, path: ("f", files[path] + b"!")}]
    others.append({(name + "!" if name == path else name): entry for name, entry in entries.items()})
    assert base_id(entries) not in map(base_id, others)


@given(st.text(st.sampled_from("ab./\0"), max_size=8))
def test_accepted_paths_stay_inside(path: str) -> None:
    """Whatever passes is relative, in its shortest form, and below the root."""
    try:
        check_paths({path: None})
    except BadInputError:
        return
    assert (Path("/root") / path).resolve(strict=False) == Path(f"/root/{path}")
    assert path not in ("", ".")
