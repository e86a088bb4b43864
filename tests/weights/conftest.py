"""Weights that look like a small model's."""

import numpy as np
import pytest

from ostinato.weights import Arrays
from ostinato.weights.folders import round_to_bf16


def make_arrays(rng: np.random.Generator, rows: int = 64) -> Arrays:
    """A few BF16 tensors and one F32 tensor."""
    arrays: Arrays = {
        f"model.layers.{i}.mlp.up_proj.weight": round_to_bf16(rng.normal(0, 0.1, (rows, 48)).astype(np.float32))
        for i in range(3)
    }
    arrays["model.norm.weight"] = rng.normal(1, 0.1, 48).astype(np.float32)
    return arrays


@pytest.fixture
def rng() -> np.random.Generator:
    """A fixed source of random numbers."""
    return np.random.default_rng(7)


@pytest.fixture
def arrays(rng: np.random.Generator) -> Arrays:
    """A small set of weights."""
    return make_arrays(rng)
