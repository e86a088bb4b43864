"""Token sequences with loss weights to rectangular batches.

Two ways: `pack` puts several documents into each row (block-causal attention keeps them apart), `bucket` gives each its
own row and groups rows of like length, which needs no attention mask. Shapes: B rows, T positions.
"""

# ruff: noqa: N815 - shape suffixes name the fields too

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from msgspec import Struct
from torch import Tensor

from ostinato.records import BadInputError

PADDING = -1
"""The segment number of padding."""


class Document(Struct, frozen=True):
    """One token sequence. `weights[i]` is the weight of the loss on predicting `ids[i]`; that of the first is unused,
    since nothing predicts it."""

    ids: list[int]
    weights: list[float]


class PackedBatch(NamedTuple):
    """Ids int64, loss weights float32, segment numbers int64 (-1 on padding) and positions in the document int64, all
    [B, T]. `single`: every row holds one document followed by padding, so plain causal attention is right."""

    ids_BT: Tensor
    weights_BT: Tensor
    segment_ids_BT: Tensor
    positions_BT: Tensor
    single: bool


def pack(documents: Sequence[Document], length: int, pad_id: int = 0) -> PackedBatch:
    """Rows of `length` tokens, filled first-fit from the longest document down. Deterministic.

    Raises `BadInputError` for a document that is longer than a row or whose weights do not match its ids."""
    rows: list[list[Document]] = []
    used: list[int] = []
    for document in sorted(documents, key=lambda one: -len(one.ids)):
        size = _checked(document, length)
        at = next((row for row, taken in enumerate(used) if taken + size <= length), len(rows))
        if at == len(rows):
            rows.append([])
            used.append(0)
        rows[at].append(document)
        used[at] += size
    return _batch(rows, length, pad_id)


def bucket(documents: Sequence[Document], tokens: int, pad_id: int = 0) -> Iterator[PackedBatch]:
    """One document a row, sorted by length, cut into batches of at most `tokens` positions (or of one row).

    Shapes are few on purpose: a CPU's matrix kernels are compiled for every new number of positions, which took 45% of
    the time of training. Rows are padded to a divisor of `tokens`, and batches to quarters of `tokens`."""
    group: list[Document] = []
    length = 0
    for document in sorted(documents, key=lambda one: -len(one.ids)):
        size = _checked(document, len(document.ids))
        if group and (len(group) + 1) * length > tokens:
            yield _padded(group, length, tokens, pad_id)
            group = []
        length = length if group else _row_length(size, tokens)
        group.append(document)
    if group:
        yield _padded(group, length, tokens, pad_id)


def _row_length(size: int, tokens: int) -> int:
    """The smallest divisor of `tokens` that holds `size`; `size` itself where none does."""
    return next((length for length in range(max(size, 32), tokens + 1) if tokens % length == 0), size)


def _padded(group: list[Document], length: int, tokens: int, pad_id: int) -> PackedBatch:
    """The batch, with empty rows up to the next quarter (or half) of `tokens` positions."""
    most = max(tokens // length, 1)
    step = most // next(parts for parts in (4, 2, 1) if most % parts == 0)
    rows = -(-len(group) // step) * step
    return _batch([[one] for one in group] + [[] for _ in range(rows - len(group))], length, pad_id)


def _checked(document: Document, limit: int) -> int:
    size = len(document.ids)
    if not 0 < size <= limit:
        raise BadInputError(f"A document has {size} tokens, rows hold 1 to {limit}.", hint="Cut it or use longer rows.")
    if len(document.weights) != size:
        raise BadInputError(
            f"A document has {size} ids and {len(document.weights)} weights.", hint="Give one weight for each id."
        )
    return size


def _batch(rows: list[list[Document]], length: int, pad_id: int) -> PackedBatch:
    ids = torch.full((len(rows), length), pad_id)
    weights = torch.zeros(len(rows), length)
    segments = torch.full((len(rows), length), PADDING)
    positions = torch.zeros(len(rows), length, dtype=torch.long)
    for row, documents in enumerate(rows):
        start = 0
        for number, document in enumerate(documents):
            end = start + len(document.ids)
            ids[row, start:end] = torch.tensor(document.ids)
            weights[row, start:end] = torch.tensor(document.weights)
            weights[row, start] = 0.0
            segments[row, start:end] = number
            positions[row, start:end] = torch.arange(end - start)
            start = end
    return PackedBatch(ids, weights, segments, positions, all(len(documents) <= 1 for documents in rows))
