"""A person's repository is one that git itself accepts."""

import subprocess
from pathlib import Path

from dulwich.objects import ObjectID
from dulwich.refs import Ref
from dulwich.repo import Repo

from ostinato.tinyworld.repository import Repository

START = {"a.py": "x = 1\n", "pkg/b.py": "y = 2\n", "gone.py": "z = 3\n"}


def test_commits_are_what_was_given() -> None:
    """A checkout gives the files; the changes since the start are whole texts, deletions included."""
    repository = Repository(START, "p-1", 1_000.0)
    assert repository.files() == START
    assert repository.changes() == {}
    after = {"a.py": "x = 10\n", "pkg/b.py": "y = 2\n", "new.py": "é\n"}
    first = repository.commit(after, "fix x", 2_000.0)
    assert repository.files() == after
    assert repository.changes() == {"a.py": "x = 10\n", "new.py": "é\n", "gone.py": None}
    assert repository.commit(START, "undo", 3_000.0) != first
    assert repository.changes() == {}


def test_git_accepts_the_objects(tmp_path: Path) -> None:
    """Written to a folder, git finds no fault with them and shows the history."""
    repository = Repository(START, "p-1", 1_000.0)
    head = repository.commit(START | {"a.py": "x = 10\n"}, "fix x", 2_000.0)
    with Repo.init(tmp_path) as folder:
        for object_id in repository.store:
            folder.object_store.add_object(repository.store[object_id])
        folder.refs[Ref(b"refs/heads/main")] = ObjectID(head.encode())

    def git(*words: str) -> str:
        command = ["git", "-C", str(tmp_path), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    git("fsck", "--strict")
    assert git("log", "--format=%an %at %s", "main").splitlines() == ["p-1 2000 fix x", "p-1 1000 Start"]
    assert git("show", "main:pkg/b.py") == "y = 2\n"
