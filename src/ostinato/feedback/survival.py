"""How much of a proposed edit is still there: four-gram survival and the no-revert score.

Source: the edit-survival tracker of VS Code's chat extension (`editSurvivalTracker.ts`). Let `before`, `after` and
`now` be the texts before the edit, right after it, and later, and `sim` the share of common character 4-grams:
    four_gram = sim(now, after)
    no_revert = 1 - max(sim(now, before) - sim(after, before), 0) / (1 - sim(after, before))
As there, both are computed over the changed regions and averaged by length, so that a one-line edit in a large file is
not hidden by the lines around it. What differs: regions are whole lines found by a line diff (there: the ranges of the
editor's own edits), since an agent's edit is known here only by the texts before and after it.
"""

from collections import Counter
from collections.abc import Mapping
from difflib import SequenceMatcher

from msgspec import Struct

GRAM = 4


class Survival(Struct, frozen=True):
    """Both scores of an edit, 0 to 1: how much of its text is there, and how far it was not moved back."""

    four_gram: float
    no_revert: float


class _Region(Struct, frozen=True):
    before: str
    after: str
    now: str


def four_gram_similarity(one: str, two: str) -> float:
    """The share of character 4-grams (as multisets) that two texts have in common, 0 to 1; texts shorter than four
    characters are either equal (1) or not (0)."""
    if one == two:
        return 1.0
    if len(one) < GRAM or len(two) < GRAM:
        return 0.0
    grams_one = Counter(one[i : i + GRAM] for i in range(len(one) - GRAM + 1))
    grams_two = Counter(two[i : i + GRAM] for i in range(len(two) - GRAM + 1))
    common = sum((grams_one & grams_two).values())
    return 2 * common / (grams_one.total() + grams_two.total())


def edit_survival(before: Mapping[str, str], after: Mapping[str, str], now: Mapping[str, str]) -> Survival:
    """The survival of the edit that turned `before` into `after`, seen in `now` (path -> text; an absent path is a file
    that does not exist). An edit that changes nothing has survived."""
    regions = [region for path in sorted(before.keys() | after.keys()) for region in _regions(path, before, after, now)]
    weights = [max(len(region.after), len(region.before), 1) for region in regions]
    if not regions:
        return Survival(four_gram=1.0, no_revert=1.0)
    total = sum(weights)
    four_gram = sum(w * four_gram_similarity(r.now, r.after) for w, r in zip(weights, regions, strict=True))
    no_revert = sum(w * _no_revert(r) for w, r in zip(weights, regions, strict=True))
    return Survival(four_gram=four_gram / total, no_revert=no_revert / total)


def line_counts(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[int, int]:
    """How many lines an edit added and removed, in that order, over all files."""
    added = removed = 0
    for path in before.keys() | after.keys():
        old, new = _lines(before.get(path, "")), _lines(after.get(path, ""))
        for tag, i1, i2, j1, j2 in _opcodes(old, new):
            if tag != "equal":
                added, removed = added + j2 - j1, removed + i2 - i1
    return added, removed


class EditTracker:
    """Follows one proposed edit through the files that it touched."""

    def __init__(self, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        changed = [path for path in before.keys() | after.keys() if before.get(path) != after.get(path)]
        self.files = tuple(sorted(changed))
        self._before = {path: before[path] for path in changed if path in before}
        self._after = {path: after[path] for path in changed if path in after}
        self.lines_added, self.lines_removed = line_counts(self._before, self._after)

    def survival(self, now: Mapping[str, str]) -> Survival:
        """The edit's survival in the files as they are `now`."""
        return edit_survival(self._before, self._after, now)


def _no_revert(region: _Region) -> float:
    at_first = four_gram_similarity(region.after, region.before)
    if at_first == 1.0:
        # Equal grams in another order: nothing can be measured but plain equality with the text before.
        return 0.0 if region.now == region.before else 1.0
    later = four_gram_similarity(region.now, region.before)
    return 1 - max(later - at_first, 0.0) / (1 - at_first)


def _regions(path: str, before: Mapping[str, str], after: Mapping[str, str], now: Mapping[str, str]) -> list[_Region]:
    old, new, late = (_lines(files.get(path, "")) for files in (before, after, now))
    later = _opcodes(new, late)
    regions = []
    for tag, i1, i2, j1, j2 in _opcodes(old, new):
        if tag == "equal":
            continue
        k1, k2 = _range_now(later, j1, j2)
        regions.append(_Region("".join(old[i1:i2]), "".join(new[j1:j2]), "".join(late[k1:k2])))
    return regions


def _range_now(opcodes: list[tuple[str, int, int, int, int]], start: int, end: int) -> tuple[int, int]:
    """The lines of the later text that lines `start` to `end` have become. A rewritten block counts whole, also where
    it reaches past the region; lines put in at the very edge count only for a region that is empty."""
    empty = start == end
    ranges = []
    for tag, i1, i2, j1, j2 in opcodes:
        touches = (i1 <= start <= i2) if empty else (i1 < end and i2 > start) or (tag == "insert" and start < i1 < end)
        if not touches:
            continue
        if tag == "equal":
            low, high = max(i1, start), min(i2, end)
            ranges.append((j1 + low - i1, j1 + high - i1))
        else:
            ranges.append((j1, j2))
    if not ranges:
        return (0, 0)
    return min(low for low, _ in ranges), max(high for _, high in ranges)


def _opcodes(old: list[str], new: list[str]) -> list[tuple[str, int, int, int, int]]:
    if not old and not new:
        return []
    return list(SequenceMatcher(None, old, new, autojunk=False).get_opcodes())


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)
