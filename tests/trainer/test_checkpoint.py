"""Masters and moments: resumed exactly, refused when they do not belong."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ostinato.records import BadInputError, MissingError
from ostinato.trainer.checkpoint import Learner, load_published, state_path


def learner_of(published: Any, learning_rate: float = 1e-3) -> Learner:
    """A learner at the published version."""
    return Learner(load_published(published.weights, published.version), learning_rate, (0.9, 0.95), 1.0)


def push(learner: Learner, seed: int) -> None:
    """One step along a random gradient."""
    rng = torch.Generator().manual_seed(seed)
    for parameter in learner.model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=rng)
    learner.step()


def same(left: Learner, right: Learner) -> bool:
    """Bit equality of the published forms."""
    a, b = left.bits(), right.bits()
    return all(np.array_equal(a[name], b[name]) for name in a)


def test_resuming_is_going_on(published: Any, tmp_path: Path) -> None:
    """Two steps, save, load, two steps give the same bits as four steps."""
    whole, half = learner_of(published), learner_of(published)
    for seed in range(4):
        push(whole, seed)
    push(half, 0)
    push(half, 1)
    version = published.weights.publish(half.bits(), parent=published.version).version
    half.save(state_path(tmp_path, version))
    resumed = Learner(load_published(published.weights, version), 1e-3, (0.9, 0.95), 1.0)
    resumed.resume(state_path(tmp_path, version), version)
    assert resumed.resumed and same(resumed, half)
    push(resumed, 2)
    push(resumed, 3)
    assert same(resumed, whole)


def test_steps_below_bf16_add_up(published: Any) -> None:
    """A step too small to show in BF16 is not lost: many of them do show."""
    learner = learner_of(published, learning_rate=1e-5)
    before = learner.bits()["model.embed_tokens.weight"]
    for _ in range(50):
        for parameter in learner.model.parameters():
            parameter.grad = torch.ones_like(parameter)
        learner.step()
    after = learner.bits()["model.embed_tokens.weight"]
    assert np.mean(before != after) > 0.01


def test_a_gradient_that_is_no_number_steps_nothing(published: Any) -> None:
    """The norm says so, and the weights stay."""
    learner, untouched = learner_of(published), learner_of(published)
    next(iter(learner.model.parameters())).grad = torch.full((12, 16), float("nan"))
    assert not np.isfinite(learner.step())
    assert same(learner, untouched)


def test_wrong_state_is_refused(published: Any, tmp_path: Path) -> None:
    """A torn file, and one that rounds to other bits, name the file and what to do."""
    path = state_path(tmp_path, published.version)
    learner = learner_of(published)
    push(learner, 0)
    learner.save(path)
    with pytest.raises(BadInputError, match="does not round to version"):
        learner_of(published).resume(path, published.version)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(BadInputError, match="cannot be read") as caught:
        learner_of(published).resume(path, published.version)
    assert str(path) in caught.value.hint


def test_weights_without_a_shape_are_refused(published: Any) -> None:
    """A version without config.json cannot be trained."""
    version = published.weights.publish({"w": np.zeros(2, np.uint16)}, parent=None).version
    with pytest.raises(MissingError, match=r"without config\.json"):
        load_published(published.weights, version)
