"""Where the text of a repository can stand: its working tree, the tip of a branch, a stash. Read only, by dulwich."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, Self

from dulwich.diff_tree import tree_changes
from dulwich.errors import NotGitRepository
from dulwich.index import get_unstaged_changes
from dulwich.object_store import iter_tree_contents, tree_lookup_path
from dulwich.objects import Blob, Commit, ObjectID, Tree
from dulwich.objectspec import parse_commit
from dulwich.porcelain import get_untracked_paths
from dulwich.refs import Ref
from dulwich.repo import Repo
from dulwich.stash import Stash

from ostinato.records import BadInputError

LARGEST_FILE = 4 << 20
"""Bytes of a file that is read; larger ones, and files that are not text, count as absent."""
_HEADS = b"refs/heads/"


class Place(Protocol):
    """One state of all files."""

    @property
    def name(self) -> str:
        """What a person would call it."""

    def read(self, path: str) -> str | None:
        """The text of a file, None where there is none."""

    def changed(self, base: ObjectID | None) -> list[str]:
        """The paths whose content is not that of the commit `base`; all of them where it is None."""


class Checkout:
    """A repository with its working tree, as it is now. A context manager; open a new one to see later changes.

    Raises `BadInputError` where there is no git repository with a working tree."""

    def __init__(self, folder: Path) -> None:
        try:
            self._repo = Repo.discover(str(folder))
        except NotGitRepository:
            raise BadInputError(
                f"{folder} is not in a git repository.", hint="Name the folder of a repository, or: git init"
            ) from None
        if self._repo.bare:
            self._repo.close()
            raise BadInputError(f"{folder} is a bare repository.", hint="Name a clone that has a working tree.")
        self.root = Path(os.fsdecode(self._repo.path)).absolute()
        self.control = Path(os.fsdecode(self._repo.controldir())).absolute()
        self.heads = Path(os.fsdecode(self._repo.commondir())).absolute() / "refs" / "heads"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._repo.close()

    def branch(self) -> str | None:
        """The branch that is checked out, during a rebase the one that is rebased; None for a detached HEAD."""
        for folder in ("rebase-merge", "rebase-apply"):
            held = self.control / folder / "head-name"
            if held.exists():
                return held.read_text().strip().removeprefix(_HEADS.decode())
        target = self._repo.refs.get_symrefs().get(Ref(b"HEAD"))
        return os.fsdecode(target.removeprefix(_HEADS)) if target is not None and target.startswith(_HEADS) else None

    def head(self) -> ObjectID | None:
        """The commit that is checked out; None before the first one."""
        return self._ref(b"HEAD")

    def tip(self, branch: str) -> ObjectID | None:
        """The last commit of a branch; None where there is no such branch."""
        return self._ref(_HEADS + os.fsencode(branch))

    def resolve(self, name: str) -> ObjectID:
        """The commit that a branch, a tag, "HEAD" or an id names. Raises `BadInputError`."""
        try:
            return parse_commit(self._repo, os.fsencode(name)).id
        except (KeyError, ValueError):
            raise BadInputError(
                f"{self.root} has no commit {name!r}.", hint="Name a branch or a commit of it; see: git log --oneline"
            ) from None

    def gone(self, base: ObjectID) -> list[str]:
        """The paths of the commit `base` that are not in the working tree."""
        entries = iter_tree_contents(self._repo.object_store, self._commit(base).tree)
        paths = [os.fsdecode(entry.path) for entry in entries if entry.path]
        return [path for path in paths if not (self.root / path).is_file()]

    def branches(self) -> list[str]:
        """All branches, the one that is checked out first, then those with the latest commits."""
        names = [os.fsdecode(name) for name in self._repo.refs.keys(base=Ref(_HEADS))]
        here = self.branch()
        return sorted(names, key=lambda name: (name != here, -self.committed_at(self.tip(name)), name))

    def stashes(self) -> Iterator[ObjectID]:
        """The commits that hold what was stashed, newest first."""
        for entry in Stash(self._repo).stashes():
            yield entry.new_sha

    def committed_at(self, commit: ObjectID | None) -> int:
        """The committer's time of a commit, Unix seconds; 0 for None."""
        return 0 if commit is None else self._commit(commit).commit_time

    def working_tree(self) -> Place:
        """The files on disk."""
        return _WorkingTree(self._repo, self.root)

    def at(self, commit: ObjectID, name: str) -> Place:
        """The files of a commit."""
        return _Committed(self._repo, self._commit(commit).tree, name)

    def _commit(self, commit: ObjectID) -> Commit:
        found = self._repo[commit]
        assert isinstance(found, Commit), "refs of branches and stashes name commits"
        return found

    def _ref(self, name: bytes) -> ObjectID | None:
        try:
            return self._repo.refs[Ref(name)]
        except KeyError:
            return None


class _Committed:
    def __init__(self, repo: Repo, tree: ObjectID, name: str) -> None:
        self._repo, self._tree, self.name = repo, tree, name

    def read(self, path: str) -> str | None:
        return _text_at(self._repo, self._tree, path)

    def changed(self, base: ObjectID | None) -> list[str]:
        return _tree_changes(self._repo, base, self._tree)


class _WorkingTree:
    name = "working tree"

    def __init__(self, repo: Repo, root: Path) -> None:
        self._repo, self._root = repo, root

    def read(self, path: str) -> str | None:
        place = self._root / path
        try:
            if not place.is_file() or not place.resolve().is_relative_to(self._root.resolve()):
                return None
            return _text(place.read_bytes()) if place.stat().st_size <= LARGEST_FILE else None
        except OSError:
            return None  # it went away meanwhile

    def changed(self, base: ObjectID | None) -> list[str]:
        index = self._repo.open_index()
        staged = _tree_changes(self._repo, base, index.commit(self._repo.object_store))
        unstaged = [os.fsdecode(path) for path in get_unstaged_changes(index, str(self._root))]
        new = get_untracked_paths(str(self._root), str(self._root), index, exclude_ignored=True)
        return sorted({*staged, *unstaged, *map(str, new)})


def text_of(checkout: Checkout, commit: ObjectID | None, path: str) -> str:
    """A file's text in a commit, "" where there is none."""
    return "" if commit is None else checkout.at(commit, "").read(path) or ""


def _tree_changes(repo: Repo, base: ObjectID | None, tree: ObjectID) -> list[str]:
    old = None
    if base is not None and base in repo.object_store:
        found = repo[base]
        old = found.tree if isinstance(found, Commit) else None
    changes = tree_changes(repo.object_store, old, tree)
    return [os.fsdecode(change.new.path) for change in changes if change.new is not None and change.new.path]


def _text_at(repo: Repo, tree: ObjectID, path: str) -> str | None:
    try:
        _, sha = tree_lookup_path(repo.object_store.__getitem__, tree, os.fsencode(path))
        found = repo.object_store[sha]
    except (KeyError, NotADirectoryError):
        return None
    if isinstance(found, Tree) or not isinstance(found, Blob):
        return None
    return _text(found.data) if len(found.data) <= LARGEST_FILE else None


def _text(data: bytes) -> str | None:
    return None if b"\0" in data else data.decode("utf-8", "replace")
