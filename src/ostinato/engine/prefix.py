"""Who owns which row of keys and values, and which finished rows can be used again.

A finished sequence's row stays, keyed by the version that computed it and by its exact tokens (the drawn ones too). A
new sequence that continues it takes the row over; one that shares only a beginning, or finds the row in use, gets a
copy of the shared part. Rows are given up least recently used first. Nothing is ever shared across versions.

Tokens are found by chained hashes of whole blocks, as in vLLM's automatic prefix caching; here a hit is then compared
token by token, and continues past the last whole block.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

BLOCK = 16
"""Tokens per hash: shorter beginnings are not shared."""

_NO_TOKENS: NDArray[np.int32] = np.zeros(0, np.int32)


class Lease(NamedTuple):
    """A row for one sequence. Its first `reused` positions are to be computed no more, after copying them from the row
    `copy_from` where that is not None."""

    row: int
    reused: int
    copy_from: int | None


@dataclass
class _Entry:
    version: str = ""
    tokens: NDArray[np.int32] = field(default_factory=lambda: _NO_TOKENS)
    hashes: list[int] = field(default_factory=list)
    busy: bool = False


class PrefixCache:
    """Bookkeeping only; the keys and values themselves are moved by the caller. Not thread-safe."""

    def __init__(self, rows: int) -> None:
        self._entries = [_Entry() for _ in range(rows)]
        self._free = list(range(rows - 1, -1, -1))
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._index: dict[int, int] = {}
        self.hits = self.misses = self.tokens_reused = self.evictions = 0

    @property
    def available(self) -> int:
        """Rows that a new sequence could get."""
        return len(self._free) + len(self._idle)

    @property
    def kept(self) -> int:
        """Finished rows that are kept for re-use."""
        return len(self._idle)

    def acquire(self, version: str, ids: list[int]) -> Lease | None:
        """A row for a sequence that starts with `ids`, or None when all rows are in use. At least the last token is
        left to compute, since its logits are needed."""
        if not self.available:
            return None
        tokens = np.asarray(ids, np.int32)
        source, shared = self._find(version, tokens[:-1])
        self._count(shared)
        if source is None:
            return Lease(self._fresh(), 0, None)
        entry = self._entries[source]
        if not entry.busy and shared == len(entry.tokens):
            del self._idle[source]
            entry.busy = True
            return Lease(source, shared, None)
        if source in self._idle:
            self._idle.move_to_end(source)
        row = self._fresh()
        # Where the source itself was the last row to give up, its content is already in place.
        return Lease(row, shared, None if row == source else source)

    def release(self, row: int, version: str, tokens: list[int] | None) -> None:
        """The sequence is done. `tokens` are those whose keys and values `version` computed; None says that the row
        holds nothing new to keep (then what it held before stays known)."""
        entry = self._entries[row]
        entry.busy = False
        if tokens is not None:
            self._register(row, version, np.asarray(tokens, np.int32))
        if len(entry.tokens):
            self._idle[row] = None
        else:
            self._free.append(row)

    def keep_only(self, versions: set[str]) -> None:
        """Give up idle rows of versions that nothing runs any more."""
        for row in [row for row in self._idle if self._entries[row].version not in versions]:
            del self._idle[row]
            self._forget(row)
            self._free.append(row)

    def _find(self, version: str, tokens: NDArray[np.int32]) -> tuple[int | None, int]:
        """The row that shares the longest beginning with `tokens`, and how long that is."""
        for value in reversed(_hashes(version, tokens)):
            row = self._index.get(value)
            if row is None:
                continue
            entry = self._entries[row]
            shared = _common(entry.tokens, tokens) if entry.version == version else 0
            if shared:
                return row, shared
        return None, 0

    def _fresh(self) -> int:
        if self._free:
            row = self._free.pop()
        else:
            row, _ = self._idle.popitem(last=False)
            self._forget(row)
            self.evictions += 1
        self._entries[row].busy = True
        return row

    def _register(self, row: int, version: str, tokens: NDArray[np.int32]) -> None:
        self._forget(row)
        entry = self._entries[row]
        entry.version, entry.tokens, entry.hashes = version, tokens, _hashes(version, tokens)
        for value in entry.hashes:
            self._index[value] = row

    def _forget(self, row: int) -> None:
        entry = self._entries[row]
        for value in entry.hashes:
            if self._index.get(value) == row:
                del self._index[value]
        entry.version, entry.tokens, entry.hashes = "", _NO_TOKENS, []

    def _count(self, shared: int) -> None:
        self.hits += shared > 0
        self.misses += shared == 0
        self.tokens_reused += shared


def _hashes(version: str, tokens: NDArray[np.int32]) -> list[int]:
    """One chained hash for each whole block."""
    data, step = tokens.tobytes(), BLOCK * tokens.itemsize
    value = hash(version)
    out = []
    for start in range(0, len(data) - step + 1, step):
        value = hash((value, data[start : start + step]))
        out.append(value)
    return out


def _common(left: NDArray[np.int32], right: NDArray[np.int32]) -> int:
    size = min(len(left), len(right))
    differs = np.nonzero(left[:size] != right[:size])[0]
    return int(differs[0]) if len(differs) else size
