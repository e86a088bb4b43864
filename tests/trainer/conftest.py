"""A tiny model, published, and sessions that it really drew."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from tests.tiny_model import TINY, publish, random_model

from ostinato.records import Outcome
from ostinato.store import UNKNOWN_EXPERT, Segment, TrainSession
from ostinato.trainer.checkpoint import load_published
from ostinato.weights import WeightStore

SMALL = replace(TINY, vocab_size=12, hidden_size=16, num_heads=2, num_kv_heads=1)
"""So small that a few hundred sessions find what pays."""


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Both cores may be busy."""
    torch.set_num_threads(1)


class Published(NamedTuple):
    """A weights folder with one version of a small mixture of experts."""

    weights: WeightStore
    version: str


@pytest.fixture
def published(tmp_path: Path) -> Published:
    """The seed of every test's line of versions."""
    weights = WeightStore(tmp_path / "weights")
    return Published(weights, publish(weights, random_model(SMALL, seed=5, scale=4.0)))


Draw = Callable[..., list[TrainSession]]


@pytest.fixture
def draw() -> Draw:
    """Sessions sampled from a version, one turn of `tokens` sampled tokens each after three prompt tokens; the reward
    is `worth(sampled ids)`."""

    def sample(
        weights: WeightStore,
        version: str,
        count: int,
        worth: Callable[[list[int]], float],
        seed: int = 0,
        tokens: int = 2,
    ) -> list[TrainSession]:
        model = load_published(weights, version)
        rng = torch.Generator().manual_seed(seed)
        ids = torch.randint(0, SMALL.vocab_size, (count, 3), generator=rng)
        logprobs = torch.zeros(count, 3)
        with torch.no_grad():
            for _ in range(tokens):
                out = model(ids).logits_BTV[:, -1].log_softmax(-1)
                drawn = torch.multinomial(out.exp(), 1, generator=rng)
                ids, logprobs = torch.cat([ids, drawn], 1), torch.cat([logprobs, out.gather(1, drawn)], 1)
            experts = model(ids).experts_BTLK.numpy().astype(np.uint16)
        experts[:, -1] = UNKNOWN_EXPERT
        sampled = np.arange(ids.shape[1]) >= 3
        return [
            TrainSession(
                session_id=f"s-{seed}-{number:04d}",
                person=f"p{number % 40}",
                arm=None,
                opened_at=float(number),
                request="please choose well",
                outcome=Outcome.KEPT,
                reward=worth(ids[number, 3:].tolist()),
                parts={},
                signals={},
                segments=(
                    Segment(
                        ids=ids[number].numpy().astype(np.int32),
                        sampled=sampled,
                        logprobs=logprobs[number].numpy(),
                        experts=experts[number],
                        version_index=np.where(sampled, 0, -1).astype(np.int32),
                    ),
                ),
                versions=(version,),
            )
            for number in range(count)
        ]

    return sample
