"""A proposed edit as hunks, and the share of each that is still there in a later text of its file."""

import hashlib
from collections.abc import Sequence
from operator import and_

from msgspec import Struct

from ostinato.feedback.survival import edit_survival
from ostinato.feedback.tokens import NONE, SAME_LINE_FROM, Source, in_runs, opcodes


class Hunk(Struct, frozen=True):
    """One block of neighbouring lines that an edit changed.

    path: of the file. name: a hash of path and content. line: of the first line in the new text, from 1. added: indices
    into the new text's tokens of those that the edit put there; removed: into the old text's, of those it took away."""

    path: str
    name: str
    line: int
    added: tuple[int, ...]
    removed: tuple[int, ...]

    @property
    def weight(self) -> int:
        """Tokens that tell whether the hunk is there: the added ones, or the removed ones where none was added."""
        return max(len(self.added) or len(self.removed), 1)


class FileEdit:
    """The edit of one file: its texts before and after ("" for a file that is not there) and its hunks."""

    def __init__(self, path: str, before: str, after: str) -> None:
        self.path = path
        self._texts = (before, after)
        self._before, self._after = Source(before), Source(after)
        self.hunks = self._find(before.splitlines(), after.splitlines())

    def shares(self, now: str) -> list[float]:
        """For each hunk the share of its weight that is still so in the file's text `now`. A hunk of white space
        alone is judged by the text's 4-grams."""
        later = Source(now)
        there, back = self._after.present(later), self._before.present(later)
        return [self._share(hunk, there, back, now) for hunk in self.hunks]

    def lost(self, now: str) -> list["Lost"]:
        """For each hunk what it added and the text `now` does not hold or, where it added nothing, what it took away
        and is not back."""
        later = Source(now)
        there, back = self._after.present(later), self._before.present(later)
        return [
            _lost(self._after, hunk.added, there) if hunk.added else _lost(self._before, hunk.removed, back)
            for hunk in self.hunks
        ]

    def inserted(self, now: str) -> list[str]:
        """The tokens of the lines of `now` that are not in the text right after the edit: moved ones may be there."""
        return Source(now).fresh(self._after)

    def likeness(self, other: str) -> float:
        """The share of this file's tokens that another text holds, in order: whether that is this file renamed."""
        matched = self._after.match(Source(other))
        return sum(n != NONE for n in matched) / max(len(matched), 1)

    def _share(self, hunk: Hunk, there: list[bool], back: list[bool], now: str) -> float:
        if hunk.added:
            return sum(there[n] for n in hunk.added) / len(hunk.added)
        if hunk.removed:
            return sum(not back[n] for n in hunk.removed) / len(hunk.removed)
        before, after = self._texts
        found = edit_survival({self.path: before}, {self.path: after}, {self.path: now})
        return min(found.four_gram, found.no_revert)

    def _find(self, before: list[str], after: list[str]) -> list[Hunk]:
        kept_old, kept_new = self._before.match(self._after), self._after.match(self._before)
        hunks = []
        for tag, i1, i2, j1, j2 in opcodes(before, after):
            if tag == "equal" or not any(line.strip() for line in (*before[i1:i2], *after[j1:j2])):
                continue
            content = "\n".join((self.path, *before[i1:i2], "=>", *after[j1:j2]))
            hunks.append(
                Hunk(
                    path=self.path,
                    name=hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:16],
                    line=j1 + 1,
                    added=_unmatched(self._after, kept_new, j1, j2),
                    removed=_unmatched(self._before, kept_old, i1, i2),
                )
            )
        return hunks


class Lost:
    """Lines that are not where they were. tokens: of the whole lines; owners: for each whether the hunk owns it; lines:
    where each line's tokens end."""

    def __init__(self) -> None:
        self.tokens: list[str] = []
        self.owners: list[bool] = []
        self.ends: list[int] = []

    def found(self, there: Sequence[str], shortest: int) -> tuple[int, int]:
        """How many tokens of these lines stand in `there` in runs of at least `shortest`, and how many of the hunk's
        own do in lines most of which do."""
        run = in_runs(self.tokens, there, shortest)
        own = start = 0
        for end in self.ends:
            if sum(run[start:end]) >= SAME_LINE_FROM * (end - start):
                own += sum(map(and_, self.owners[start:end], run[start:end]))
            start = end
        return sum(run), own


def _lost(source: Source, owned: tuple[int, ...], there: list[bool]) -> Lost:
    found = Lost()
    gone = {n for n in owned if not there[n]}
    for line in sorted({source.lines[n] for n in gone}):
        for n in source.on_line(line):
            found.tokens.append(source.tokens[n])
            found.owners.append(n in gone)
        found.ends.append(len(found.tokens))
    return found


def _unmatched(source: Source, partner: list[int], first: int, last: int) -> tuple[int, ...]:
    return tuple(n for n, line in enumerate(source.lines) if first <= line < last and partner[n] == NONE)
