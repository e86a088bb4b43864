"""Packing: nothing is lost, documents stay whole, and shapes are as asked."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ostinato.records import BadInputError
from ostinato.trainer import Document, PackedBatch, bucket, pack

DOCUMENTS = st.lists(st.integers(1, 20).map(lambda size: list(range(100, 100 + size))), min_size=1, max_size=12)


def documents_in(batch: PackedBatch) -> list[tuple[int, ...]]:
    """The ids of each document found in a batch."""
    found: list[tuple[int, ...]] = []
    for ids, segments in zip(batch.ids_BT, batch.segment_ids_BT, strict=True):
        numbers = range(int(segments.max()) + 1)
        found.extend(tuple(ids[segments == number].tolist()) for number in numbers)
    return found


@given(DOCUMENTS)
def test_pack_keeps_every_document_whole(texts: list[list[int]]) -> None:
    """Each document appears once; positions count from 0; the first token of each has no weight."""
    batch = pack([Document(ids, [0.5] * len(ids)) for ids in texts], 20)
    assert sorted(documents_in(batch)) == sorted(tuple(ids) for ids in texts)
    assert batch.ids_BT.shape[1] == 20
    real = batch.segment_ids_BT >= 0
    assert torch.equal(batch.positions_BT[real], batch.ids_BT[real] - 100)
    assert torch.equal(batch.weights_BT > 0, real & (batch.positions_BT > 0))


@given(DOCUMENTS, st.integers(1, 60))
def test_bucket_gives_each_document_a_row(texts: list[list[int]], tokens: int) -> None:
    """Each document has its own row, and batches keep to the number of positions unless one row is longer."""
    batches = list(bucket([Document(ids, [1.0] * len(ids)) for ids in texts], tokens))
    assert sorted(found for batch in batches for found in documents_in(batch)) == sorted(tuple(ids) for ids in texts)
    for batch in batches:
        assert batch.single
        assert batch.ids_BT.numel() <= tokens or batch.ids_BT.shape[0] == 1


def test_bad_documents_are_named() -> None:
    """Too long, empty, and weights that do not match."""
    with pytest.raises(BadInputError, match="5 tokens"):
        pack([Document([1] * 5, [1.0] * 5)], 4)
    with pytest.raises(BadInputError, match="0 tokens"):
        list(bucket([Document([], [])], 4))
    with pytest.raises(BadInputError, match="2 ids and 1 weights"):
        pack([Document([1, 2], [1.0])], 4)
