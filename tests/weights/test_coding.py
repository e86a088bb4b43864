"""The coding of whole sets and of differences is bit-exact and small."""

from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ostinato.weights import Arrays
from ostinato.weights.coding import apply_delta, decode_gaps, decode_whole, encode_delta, encode_gaps, encode_whole
from ostinato.weights.folders import round_to_bf16

SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=6)
TENSORS = st.one_of(
    hnp.arrays(np.uint16, SHAPES), hnp.arrays(np.uint32, SHAPES).map(lambda a: np.atleast_1d(a).view(np.float32))
)


def same_bits(left: Arrays, right: Arrays) -> bool:
    """Whether two sets are equal bit for bit (NaN payloads and signed zeros included)."""
    return list(left) == sorted(right) and all(
        left[n].dtype == right[n].dtype and left[n].shape == right[n].shape and left[n].tobytes() == right[n].tobytes()
        for n in left
    )


@given(st.dictionaries(st.text(max_size=8), TENSORS, max_size=4))
def test_whole_sets_come_back(arrays: Arrays) -> None:
    """Any set of tensors survives the anchor's coding bit for bit."""
    assert same_bits(decode_whole(*encode_whole(arrays)), arrays)


@given(st.dictionaries(st.text(max_size=8), TENSORS, max_size=4), st.data())
@settings(max_examples=60)
def test_deltas_come_back(old: Arrays, data: st.DataObject) -> None:
    """Any change of bits survives the delta's coding."""
    new: Arrays = {}
    for name, array in old.items():
        flips = data.draw(hnp.arrays(np.uint16 if array.dtype == np.uint16 else np.uint32, array.shape))
        new[name] = (np.ascontiguousarray(array).view(flips.dtype).reshape(array.shape) ^ flips).view(array.dtype)
    assert same_bits(apply_delta(old, *encode_delta(old, new)), new)


@pytest.mark.parametrize(
    "positions", [[], [0], [65534], [65535], [65536], [0, 65536, 65537, 300_000], list(range(100))]
)
def test_gaps_come_back(positions: list[int]) -> None:
    """Gaps around the 16-bit limit survive."""
    given_positions = np.array(positions, np.int64)
    np.testing.assert_array_equal(decode_gaps(encode_gaps(given_positions)), given_positions)


def changed_like_training(weights: NDArray[np.float32], lr: float, rng: np.random.Generator) -> NDArray[Any]:
    """One Adam-like step of the float32 masters, as BF16 bits."""
    step = lr * rng.normal(0, 0.5, weights.shape).astype(np.float32)
    return round_to_bf16(weights + step)


@pytest.mark.parametrize(("lr", "most"), [(1e-5, 0.04), (1e-4, 0.16)])
def test_a_training_step_is_small(lr: float, most: float, rng: np.random.Generator) -> None:
    """Steps at ordinary learning rates take a small share of the whole, and less than zstd over the XOR."""
    weights = rng.normal(0, 0.05, (1000, 256)).astype(np.float32)
    old = {"w": round_to_bf16(weights)}
    new = {"w": changed_like_training(weights, lr, rng)}
    coded = sum(map(len, encode_delta(old, new)[1]))
    xor = (old["w"] ^ new["w"]).view(np.uint8).reshape(-1, 2).T.tobytes()
    assert coded < most * new["w"].nbytes
    assert coded < len(zstandard.ZstdCompressor(level=9).compress(xor))
