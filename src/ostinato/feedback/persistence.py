"""How much of a proposed edit is still in a repository: hunk by hunk, wherever its lines and its branch have gone.

An edit has a home, the branch on which it was proposed; it moves with what is not committed yet. While the home is
checked out, the working tree tells; while another branch is, the tip of the home does. What lies in a stash is set
aside: neither kept nor lost. Lines count as kept also where their file was renamed or where they were moved.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dulwich.objects import ObjectID
from msgspec import Struct
from msgspec.structs import replace

from ostinato.feedback.hunks import FileEdit, Hunk, Lost
from ostinato.feedback.places import Checkout, Place, text_of
from ostinato.feedback.tokens import Source

GONE = 0.1
"""A place that holds at most this share of an edit does not hold it."""
RENAMED_FROM = 0.5
"""A new file that holds this share of a missing one's tokens is that file renamed."""
SHORTEST_RUN = 4
"""Tokens in a row that count as moved."""
LEAST_MOVED = 4
"""Fewer tokens than this are too common to say that they were moved."""
MOVED_FROM = 0.6
"""Missing lines count as moved where one place holds this share of them."""


class ProposedEdit(Struct, frozen=True, forbid_unknown_fields=True):
    """An edit as its client saw it.

    edit_id: unique. response_id: the answer that brought it. at: Unix seconds. files: path -> its whole text before and
    after, None for no file. commit: what was checked out then, "" before the first commit. home: the branch it lives
    on, "" for a detached HEAD. committed: it was seen at the tip of its home."""

    edit_id: str
    response_id: str
    at: float
    files: dict[str, tuple[str | None, str | None]]
    commit: str = ""
    home: str = ""
    committed: bool = False


class HunkState(Struct, frozen=True):
    """One hunk: its path and first line then (from 1), its content's hash, the share of it that is there (0 to 1), its
    weight in tokens."""

    path: str
    line: int
    name: str
    share: float
    weight: int


class Persistence(Struct, frozen=True):
    """What became of an edit. `share` is the mean over hunks by weight, None while the edit is set aside in a stash.
    `place` says where it was looked for; `texts` are the edit's files there (by their paths then)."""

    share: float | None
    hunks: list[HunkState]
    place: str
    branch_changed: bool
    texts: dict[str, str]


@dataclass(frozen=True)
class _Seen:
    place: str
    hunks: list[HunkState]
    texts: dict[str, str]

    @property
    def share(self) -> float:
        return mean_share(self.hunks)


def mean_share(hunks: Sequence[HunkState]) -> float:
    """The mean share of hunks by weight; 1 where there is none, since an edit that changes nothing has survived."""
    total = sum(hunk.weight for hunk in hunks)
    return sum(hunk.share * hunk.weight for hunk in hunks) / total if total else 1.0


def propose_edit(
    checkout: Checkout, edit_id: str, response_id: str, at: float, files: Mapping[str, tuple[str | None, str | None]]
) -> ProposedEdit:
    """An edit of `files` (path -> text before and after) that was just made in a repository."""
    changed = {path: texts for path, texts in files.items() if texts[0] != texts[1]}
    head = checkout.head()
    return ProposedEdit(
        edit_id, response_id, at, changed, "" if head is None else head.decode(), checkout.branch() or ""
    )


class EditFollower:
    """Follows one edit through a repository. `edit` is what is known of it, its home included; keep it and go on with
    it after a restart."""

    def __init__(self, edit: ProposedEdit) -> None:
        self.edit = edit
        self._files = {
            path: FileEdit(path, before or "", after or "") for path, (before, after) in sorted(edit.files.items())
        }
        self._base = ObjectID(edit.commit.encode()) if edit.commit else None

    @property
    def hunks(self) -> list[Hunk]:
        """The edit's hunks, in order of paths and lines."""
        return [hunk for file in self._files.values() for hunk in file.hunks]

    def measure(self, checkout: Checkout) -> Persistence:
        """Where the edit stands now. Remembers in `edit` where it has gone."""
        here = checkout.branch()
        seen = self._look(checkout, here)
        if seen.share <= GONE and not self.edit.committed and self._in_stash(checkout):
            return Persistence(None, seen.hunks, "stash", here != self.edit.home, seen.texts)
        return Persistence(seen.share, seen.hunks, seen.place, here != self.edit.home, seen.texts)

    def _look(self, checkout: Checkout, here: str | None) -> _Seen:
        """The place that tells, with what it says of the edit."""
        working = self._see(checkout, checkout.working_tree())
        self._settle(checkout, here, working)
        edit = self.edit
        if here is not None and here == edit.home:
            if working.share > GONE or edit.committed:
                return working
        elif edit.committed and checkout.tip(edit.home) is not None:
            return self._at_tip(checkout, edit.home)
        elif working.share > GONE:
            self.edit = replace(edit, home=here or edit.home)
            return working
        return self._elsewhere(checkout) or working

    def _settle(self, checkout: Checkout, here: str | None, working: _Seen) -> None:
        """An edit that is not committed yet lives where its working tree is; once a tip holds it, that is its home."""
        if self.edit.committed or working.share <= GONE or here is None:
            return
        tip = checkout.tip(here)
        committed = tip is not None and self._see(checkout, checkout.at(tip, here)).share > GONE
        self.edit = replace(self.edit, home=here, committed=committed)

    def _elsewhere(self, checkout: Checkout) -> _Seen | None:
        """Another branch that holds the edit, for one whose own has gone or that was carried to another branch."""
        for name in checkout.branches():
            if checkout.committed_at(checkout.tip(name)) < int(self.edit.at):
                continue
            seen = self._at_tip(checkout, name)
            if seen.share > GONE:
                self.edit = replace(self.edit, home=name, committed=True)
                return seen
        return None

    def _in_stash(self, checkout: Checkout) -> bool:
        held = (checkout.at(commit, "stash") for commit in checkout.stashes())
        return any(self._see(checkout, place).share > GONE for place in held)

    def _at_tip(self, checkout: Checkout, branch: str) -> _Seen:
        tip = checkout.tip(branch)
        assert tip is not None, "the caller has asked for it"
        return self._see(checkout, checkout.at(tip, f"branch {branch}"))

    def _see(self, checkout: Checkout, place: Place) -> _Seen:
        """Every hunk in one place."""
        moved = _Moved(checkout, place, self._base, self._files)
        hunks: list[HunkState] = []
        texts: dict[str, str] = {}
        for file in self._files.values():
            path = file.path if place.read(file.path) is not None else moved.renamed(file)
            text = place.read(path) if path else None
            if text is not None:
                texts[file.path] = text
            hunks += _states(file, text or "", path, moved)
        return _Seen(place.name, hunks, texts)


def _states(file: FileEdit, text: str, path: str, moved: "_Moved") -> Iterator[HunkState]:
    """The hunks of a file, which has the text `text` and is at `path` now."""
    for hunk, share, lost in zip(file.hunks, file.shares(text), file.lost(text), strict=True):
        elsewhere = moved.found(lost, file, text, path) / hunk.weight
        # Lines that were added and are elsewhere are kept; lines that were removed and are elsewhere have come back.
        found = share + elsewhere if hunk.added else share - elsewhere
        yield HunkState(file.path, hunk.line, hunk.name, min(max(found, 0.0), 1.0), hunk.weight)


class _Moved:
    """What is new in a place beside the edit's own lines: read only where something is missing."""

    def __init__(self, checkout: Checkout, place: Place, base: ObjectID | None, files: Mapping[str, FileEdit]) -> None:
        self._checkout, self._place, self._base, self._files = checkout, place, base, files
        self._changed: list[str] | None = None
        self._pools: dict[str, list[str]] = {}

    def renamed(self, file: FileEdit) -> str:
        """The path of the new file that is most like a missing one, "" where none is."""
        fresh = [path for path in self._paths() if path not in self._files and not self._before(path)]
        likeness = {path: file.likeness(self._place.read(path) or "") for path in fresh}
        best = max(likeness, key=lambda path: likeness[path], default="")
        return best if best and likeness[best] >= RENAMED_FROM else ""

    def found(self, lost: Lost, file: FileEdit, now: str, path: str) -> int:
        """How many of the hunk's lost tokens stand together elsewhere: in the rest of their file, which has the text
        `now` and is at `path`, or in another one."""
        if len(lost.tokens) < LEAST_MOVED:
            return 0
        pools = (file.inserted(now), *(self._pool(other) for other in self._paths() if other not in (path, file.path)))
        run, own = max((lost.found(pool, SHORTEST_RUN) for pool in pools), default=(0, 0))
        return own if run >= max(LEAST_MOVED, MOVED_FROM * len(lost.tokens)) else 0

    def _pool(self, path: str) -> list[str]:
        if path not in self._pools:
            text = self._place.read(path) or ""
            held = self._files.get(path)
            self._pools[path] = held.inserted(text) if held else Source(text).fresh(Source(self._before(path)))
        return self._pools[path]

    def _before(self, path: str) -> str:
        return text_of(self._checkout, self._base, path)

    def _paths(self) -> list[str]:
        if self._changed is None:
            self._changed = self._place.changed(self._base)
        return self._changed
