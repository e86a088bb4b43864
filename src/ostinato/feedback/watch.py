"""Following edits in a repository for as long as a week: `ostinato watch`.

A client leaves each proposed edit as a file (`leave_edit`). The watcher takes it in, tells the gateway of its hunks,
and measures it at fixed delays, and when it is first committed. All that it knows lies in the repository's git folder
and is written before it acts on it, so that a restart loses nothing; reports carry the edit's id and horizon, so that
one which is sent again changes nothing. Between the horizons it looks at four times of change only.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec
from msgspec import Struct

from ostinato.feedback.persistence import EditFollower, Persistence, ProposedEdit, propose_edit
from ostinato.feedback.places import Checkout
from ostinato.feedback.survival import edit_survival, line_counts
from ostinato.records import BadInputError, EditHunk, EditProposed, EditSurvival, FeedbackEvent, Payload, new_id

HORIZONS: tuple[tuple[str, float], ...] = (
    ("30 s", 30.0),
    ("2 min", 120.0),
    ("5 min", 300.0),
    ("10 min", 600.0),
    ("15 min", 900.0),
    ("1 day", 86_400.0),
    ("7 days", 604_800.0),
)
COMMIT = "commit"
OPT_OUT = ".noagenttrain"
"""A file with this name in a repository's root: nothing of it may be trained on."""
POLL_S = 2.0


Kind = TypeVar("Kind")


class Queue(Protocol):
    """Where events go: `FeedbackSender`, for one."""

    def send(self, *events: FeedbackEvent) -> None:
        """Keep the events; they are safe when this returns."""


class WatchedEdit(Struct, frozen=True, forbid_unknown_fields=True):
    """An edit with the horizons that are behind it: reported, or missed (the watcher did not run, or the edit lay in a
    stash), which says nothing about it."""

    edit: ProposedEdit
    reported: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()

    def next_at(self) -> float | None:
        """When the next horizon comes, Unix seconds; None when all are behind."""
        due = [self.edit.at + delay for name, delay in HORIZONS if name not in (*self.reported, *self.missed)]
        return min(due, default=None)


class WatchCounts(Struct):
    """Edits taken in, files that were no edits, reports sent, horizons missed."""

    taken: int = 0
    refused: int = 0
    reports: int = 0
    missed: int = 0


def watch_folder(checkout: Checkout) -> Path:
    """Where clients and watcher of a repository meet, inside its git folder."""
    return checkout.control / "ostinato"


def require_consent(checkout: Checkout) -> None:
    """Raises `BadInputError` for a repository that opts out of training."""
    if (checkout.root / OPT_OUT).exists():
        raise BadInputError(
            f"{checkout.root} opts out of training: it has a file {OPT_OUT}.",
            hint="Nothing of it is reported. Remove the file if that is no longer meant.",
        )


def leave_edit(checkout: Checkout, edit: ProposedEdit) -> Path:
    """Leave an edit for the watcher; it is taken in when one runs."""
    place = watch_folder(checkout) / "proposed" / f"{edit.edit_id}.json"
    _write(place, edit)
    return place


def edit_since(checkout: Checkout, response_id: str, commit: str, at: float) -> ProposedEdit:
    """What the working tree has that `commit` (a branch, "HEAD" or a commit's id) has not, as the edit of a response.
    Raises `BadInputError` where that is nothing, where there is no such commit, and where the repository opts out."""
    require_consent(checkout)
    base = checkout.resolve(commit)
    old, new = checkout.at(base, commit), checkout.working_tree()
    files = {path: (old.read(path), new.read(path)) for path in (*new.changed(base), *checkout.gone(base))}
    edit = propose_edit(checkout, new_id("edit"), response_id, at, files)
    if not edit.files:
        raise BadInputError(
            f"The working tree of {checkout.root} is the same as {commit}: there is no edit.",
            hint="Run this after the agent has written its files, or name an older commit with --since.",
        )
    return edit


class Watcher:
    """Follows the edits of the repository at `folder`. `clock` gives Unix seconds."""

    def __init__(self, folder: Path, queue: Queue, clock: Callable[[], float] = time.time) -> None:
        self.counts = WatchCounts()
        self._folder, self._queue, self._clock = folder, queue, clock
        with Checkout(folder) as checkout:
            require_consent(checkout)
            home = watch_folder(checkout)
            self._heads = (checkout.control / "logs" / "HEAD", checkout.control / "HEAD", checkout.heads)
        self._proposed, self._watched = home / "proposed", home / "watched"
        self._refused = home / "refused"
        for place in (self._proposed, self._watched):
            place.mkdir(parents=True, exist_ok=True)
        self._edits = {path.stem: _read(path, WatchedEdit) for path in sorted(self._watched.glob("*.json"))}
        self._seen_heads: tuple[int, ...] = ()
        self._seen_proposed = -1

    @property
    def open(self) -> int:
        """Edits that still have a horizon before them."""
        return len(self._edits)

    async def run(self, stop: asyncio.Event) -> None:
        """Look every two seconds until `stop` is set."""
        while not stop.is_set():
            self.look()
            try:
                await asyncio.wait_for(stop.wait(), POLL_S)
            except TimeoutError:
                continue

    def look(self) -> None:
        """One round: take in what clients left, measure what is due, and everything where the checked-out commit
        changed since the last round."""
        now = self._clock()
        proposed, heads = _changed_at(self._proposed), tuple(map(_changed_at, self._heads))
        if proposed != self._seen_proposed:
            self._seen_proposed = proposed
            self._take_in()
        moved = heads != self._seen_heads
        self._seen_heads = heads
        due = [name for name, edit in self._edits.items() if moved or (edit.next_at() or now) <= now]
        if due:
            with Checkout(self._folder) as checkout:
                for name in due:
                    self._measure(name, checkout, now)

    def _take_in(self) -> None:
        for path in sorted(self._proposed.glob("*.json")):
            try:
                edit = _read(path, ProposedEdit)
                if edit.edit_id != path.stem:
                    raise msgspec.ValidationError("an edit's file has the name of its id")
            except msgspec.MsgspecError:
                self.counts.refused += 1
                self._refused.mkdir(exist_ok=True)
                path.replace(self._refused / path.name)
                continue
            self._report(edit, "proposed", _proposal(edit), edit.at)
            self._keep(WatchedEdit(edit))
            path.unlink()
            self.counts.taken += 1

    def _measure(self, name: str, checkout: Checkout, now: float) -> None:
        """Measure one edit, and report the horizons that have come. Where several came at once, since the watcher did
        not run, the last one is reported and the others are missed."""
        watched = self._edits[name]
        follower = EditFollower(watched.edit)
        found = follower.measure(checkout)
        behind = (*watched.reported, *watched.missed)
        come = [label for label, delay in HORIZONS if label not in behind and watched.edit.at + delay <= now]
        labels = come[-1:] + ([COMMIT] if follower.edit.committed and not watched.edit.committed else [])
        told = labels if found.share is not None else []
        for label in told:
            self._report(follower.edit, label, _survival(follower.edit, found, label, now), now)
        missed = tuple(label for label in come if label not in told)
        self.counts.missed += len(missed)
        self._keep(WatchedEdit(follower.edit, (*watched.reported, *told), (*watched.missed, *missed)))

    def _report(self, edit: ProposedEdit, label: str, payload: Payload, at: float) -> None:
        self._queue.send(FeedbackEvent(f"{edit.edit_id}:{label}", edit.response_id, at, payload))
        self.counts.reports += 1

    def _keep(self, watched: WatchedEdit) -> None:
        """Remember an edit, or forget one whose last horizon is behind it."""
        name = watched.edit.edit_id
        place = self._watched / f"{name}.json"
        if watched.next_at() is None:
            self._edits.pop(name, None)
            place.unlink(missing_ok=True)
        elif self._edits.get(name) != watched:
            self._edits[name] = watched
            _write(place, watched)


def _proposal(edit: ProposedEdit) -> EditProposed:
    added, removed = line_counts(*_sides(edit))
    hunks = [EditHunk(hunk.path, hunk.line, hunk.name) for hunk in EditFollower(edit).hunks]
    return EditProposed(sorted(edit.files), added, removed, hunks)


def _survival(edit: ProposedEdit, found: Persistence, label: str, now: float) -> EditSurvival:
    scores = edit_survival(*_sides(edit), found.texts)
    hunks = [EditHunk(hunk.path, hunk.line, hunk.name, hunk.share) for hunk in found.hunks]
    return EditSurvival(
        delay_s=max(now - edit.at, 0.0),
        survival_rate_four_gram=scores.four_gram,
        survival_rate_no_revert=scores.no_revert,
        survival_rate=found.share,
        horizon=label,
        did_branch_change=found.branch_changed,
        hunks=hunks,
    )


def _sides(edit: ProposedEdit) -> tuple[dict[str, str], dict[str, str]]:
    """The edit's files before and after it."""

    def side(number: int) -> Iterator[tuple[str, str]]:
        for path, texts in edit.files.items():
            text = texts[number]
            if text is not None:
                yield path, text

    return dict(side(0)), dict(side(1))


def _changed_at(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _read(path: Path, kind: type[Kind]) -> Kind:
    return msgspec.json.decode(path.read_bytes(), type=kind)


def _write(path: Path, value: Struct) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".new")
    draft.write_bytes(msgspec.json.encode(value))
    os.replace(draft, path)  # noqa: PTH105
