"""A person's own git repository: real git objects, held in memory, since thousands of persons come and go in one run.

The agent's sandbox is made of the files of its last commit; what the person keeps is committed to it.
"""

from collections.abc import Mapping

from dulwich.diff_tree import tree_changes
from dulwich.index import commit_tree
from dulwich.object_store import MemoryObjectStore, iter_tree_contents
from dulwich.objects import Blob, Commit, ObjectID

FILE_MODE = 0o100644


class Repository:
    """A repository with one branch. `author` is the person's id."""

    def __init__(self, files: Mapping[str, str], author: str, at: float) -> None:
        """Begin with one commit of `files` (path -> text) at time `at` (Unix seconds)."""
        self.store = MemoryObjectStore()
        self._author = f"{author} <{author}@tiny.world>".encode()
        self._parents: list[ObjectID] = []
        self._first_tree = self._write(files, "Start", at).tree

    def commit(self, files: Mapping[str, str], message: str, at: float) -> str:
        """Commit `files` as the whole tree and give the commit's id, 40 hexadecimal digits."""
        return self._write(files, message, at).id.decode()

    def files(self) -> dict[str, str]:
        """Path -> text of the last commit: what a checkout gives."""
        found = iter_tree_contents(self.store, self._tree)
        return {entry.path.decode(): self._text(entry.sha) for entry in found if entry.path and entry.sha}

    def changes(self) -> dict[str, str | None]:
        """What the commits since the first one changed: path -> whole new text, None where it was deleted."""
        changed: dict[str, str | None] = {}
        for change in tree_changes(self.store, self._first_tree, self._tree):
            if change.new is not None and change.new.path and change.new.sha:
                changed[change.new.path.decode()] = self._text(change.new.sha)
            elif change.old is not None and change.old.path:
                changed[change.old.path.decode()] = None
        return changed

    def _write(self, files: Mapping[str, str], message: str, at: float) -> Commit:
        blobs = {path: Blob.from_string(text.encode("utf-8", "surrogatepass")) for path, text in files.items()}
        for blob in blobs.values():
            self.store.add_object(blob)
        commit = Commit()
        commit.tree = commit_tree(self.store, [(path.encode(), blob.id, FILE_MODE) for path, blob in blobs.items()])
        commit.parents = self._parents
        commit.author = commit.committer = self._author
        commit.author_time = commit.commit_time = int(at)
        commit.author_timezone = commit.commit_timezone = 0
        commit.message = f"{message}\n".encode()
        self.store.add_object(commit)
        self._parents, self._tree = [commit.id], commit.tree
        return commit

    def _text(self, blob_id: ObjectID) -> str:
        blob = self.store[blob_id]
        assert isinstance(blob, Blob), "trees hold files only"
        return blob.data.decode("utf-8", "surrogatepass")
