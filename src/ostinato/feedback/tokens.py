"""Code as tokens, so that layout says nothing: which tokens of one text are still there in another.

Lines are compared first and, where they differ, the tokens of the differing block. White space, blank lines and the
kind of quotes do not count, so that re-indenting, wrapping and quoting anew change nothing.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Sequence
from difflib import SequenceMatcher
from itertools import pairwise

_TOKEN = re.compile(r"\w+|[^\w\s]")
LARGEST_BLOCK = 4_000_000
"""Pairs of tokens in a differing block up to which they are compared one by one; larger ones count as rewritten."""

SAME_LINE_FROM = 0.6
"""A line of which a smaller share is found again was rewritten: brackets and commas that its successor shares with it
say nothing."""

NONE = -1
"""In a match: this token has no partner."""


class Source:
    """A text as tokens. `lines[n]` is the number of the line (from 0, of the text) that token n stands in."""

    def __init__(self, text: str) -> None:
        self.tokens: list[str] = []
        self.lines: list[int] = []
        self._rows: list[tuple[str, ...]] = []
        self._starts: list[int] = []
        for number, line in enumerate(text.splitlines()):
            row = tuple("'" if token == '"' else token for token in _TOKEN.findall(line))
            if row:
                self._starts.append(len(self.tokens))
                self._rows.append(row)
                self.tokens += row
                self.lines += [number] * len(row)
        self._starts.append(len(self.tokens))

    def match(self, other: "Source") -> list[int]:
        """For each token of this text its partner's index in `other`, or NONE. Partners are in the same order."""
        partner = [NONE] * len(self.tokens)
        for tag, i1, i2, j1, j2 in opcodes(self._rows, other._rows):
            a1, a2, b1, b2 = self._starts[i1], self._starts[i2], other._starts[j1], other._starts[j2]
            if tag == "equal":
                partner[a1:a2] = range(b1, b2)
            elif tag == "replace" and (a2 - a1) * (b2 - b1) <= LARGEST_BLOCK:
                _match_block(self.tokens, other.tokens, (a1, a2, b1, b2), partner)
        return partner

    def present(self, other: "Source") -> list[bool]:
        """For each token of this text whether it is still there in `other`, as part of a line that is."""
        found = [partner != NONE for partner in self.match(other)]
        for start, end in pairwise(self._starts):
            if sum(found[start:end]) < SAME_LINE_FROM * (end - start):
                found[start:end] = [False] * (end - start)
        return found

    def on_line(self, line: int) -> range:
        """The indices of the tokens that stand in a line."""
        return range(bisect_left(self.lines, line), bisect_right(self.lines, line))

    def fresh(self, base: "Source") -> list[str]:
        """The tokens of the lines that `base` does not hold, in order."""
        found: list[str] = []
        for tag, _, _, j1, j2 in opcodes(base._rows, self._rows):
            if tag != "equal":
                found += self.tokens[self._starts[j1] : self._starts[j2]]
        return found


def opcodes(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[tuple[str, int, int, int, int]]:
    """Python's `difflib` operations from `old` to `new`, with what they share at both ends taken off first: for speed,
    and so that a repeated line is matched with its neighbour."""
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    inner = SequenceMatcher(None, old[head : len(old) - tail], new[head : len(new) - tail], autojunk=False)
    found = [("equal", 0, head, 0, head)] if head else []
    found += [(tag, i1 + head, i2 + head, j1 + head, j2 + head) for tag, i1, i2, j1, j2 in inner.get_opcodes()]
    if tail:
        found.append(("equal", len(old) - tail, len(old), len(new) - tail, len(new)))
    return found


def in_runs(wanted: Sequence[str], there: Sequence[str], shortest: int) -> list[bool]:
    """For each of the tokens `wanted` whether it stands in `there` in a run of at least `shortest`, all in order."""
    found = [False] * len(wanted)
    if len(wanted) * len(there) <= LARGEST_BLOCK:
        for block in SequenceMatcher(None, wanted, there, autojunk=False).get_matching_blocks():
            if block.size >= shortest:
                found[block.a : block.a + block.size] = [True] * block.size
    return found


def _match_block(old: list[str], new: list[str], block: tuple[int, int, int, int], partner: list[int]) -> None:
    a1, a2, b1, b2 = block
    for tag, i1, i2, j1, _ in opcodes(old[a1:a2], new[b1:b2]):
        if tag == "equal":
            partner[a1 + i1 : a1 + i2] = range(b1 + j1, b1 + j1 + i2 - i1)
