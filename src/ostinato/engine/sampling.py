"""Drawing tokens: one vectorised pass over all sequences that need a token, each with its own settings and generator.

Order as in vLLM: temperature, then top-k, then top-p on what top-k left, then renormalise. The log-probability that is
reported is the one of the distribution drawn from; at temperature 0 it is the plain log-softmax of the largest logit.

Shapes: M sequences, V vocabulary.
"""

import secrets
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ostinato.records import Sampling


class Drawn(NamedTuple):
    """One token and its natural log-probability for each sequence."""

    ids: list[int]
    logprobs: list[float]


class Drawer:
    """One sequence's settings and its own stream of random numbers: the same seed draws the same tokens, whatever else
    is in the batch."""

    def __init__(self, sampling: Sampling) -> None:
        self.temperature, self.top_k, self.top_p = sampling.temperature, sampling.top_k, sampling.top_p
        seed = secrets.randbits(64) if sampling.seed is None else sampling.seed
        self._random = np.random.Generator(np.random.Philox(key=seed % 2**64))

    @property
    def greedy(self) -> bool:
        """Whether the largest logit is taken."""
        return self.temperature == 0.0

    @property
    def truncated(self) -> bool:
        """Whether some tokens are ruled out."""
        return not self.greedy and (self.top_k > 0 or self.top_p < 1.0)

    def uniform(self) -> float:
        """The next random number in [0, 1). Greedy sequences use none."""
        return 0.0 if self.greedy else float(self._random.random())


def draw(logits_MV: Tensor, drawers: list[Drawer]) -> Drawn:
    """Draw one token for each row of `logits_MV` (float32)."""
    with torch.inference_mode():
        device = logits_MV.device
        temperatures = [1.0 if drawer.greedy else drawer.temperature for drawer in drawers]
        if any(temperature != 1.0 for temperature in temperatures):
            logits_MV = logits_MV / torch.tensor(temperatures, device=device)[:, None]
        cut = [row for row, drawer in enumerate(drawers) if drawer.truncated]
        if cut:
            logits_MV = logits_MV.index_copy(
                0, torch.tensor(cut, device=device), _truncate(logits_MV[cut], [drawers[row] for row in cut])
            )
        logprobs_MV = logits_MV.log_softmax(dim=-1)
        greedy = [drawer.greedy for drawer in drawers]
        if all(greedy):
            ids = logits_MV.argmax(dim=-1, keepdim=True)
        else:
            ids = _invert(logprobs_MV, [drawer.uniform() for drawer in drawers])
            if any(greedy):
                is_greedy = torch.tensor(greedy, device=device)[:, None]
                ids = torch.where(is_greedy, logits_MV.argmax(dim=-1, keepdim=True), ids)
        chosen = logprobs_MV.gather(1, ids)
        return Drawn(ids[:, 0].tolist(), chosen[:, 0].tolist())


def _invert(logprobs_MV: Tensor, uniforms: list[float]) -> Tensor:
    """Inverse transform: the first token whose cumulative probability exceeds the random number, int64 [M, 1]. Sums
    run in float64, so that a large vocabulary loses no tail; a token of probability 0 is never first."""
    cumulative = logprobs_MV.exp().cumsum(dim=-1, dtype=torch.float64)
    points = torch.tensor(uniforms, dtype=torch.float64, device=logprobs_MV.device)[:, None] * cumulative[:, -1:]
    return torch.searchsorted(cumulative, points, right=True).clamp_(max=logprobs_MV.shape[1] - 1)


def _truncate(logits_MV: Tensor, drawers: list[Drawer]) -> Tensor:
    """Minus infinity for what top-k and top-p rule out. The most likely token always stays."""
    V, device = logits_MV.shape[1], logits_MV.device
    ranked, order = logits_MV.sort(dim=-1, descending=True, stable=True)
    keep = torch.tensor([min(drawer.top_k, V) or V for drawer in drawers], device=device)[:, None]
    ranked = ranked.masked_fill(torch.arange(V, device=device) >= keep, float("-inf"))
    probs = ranked.softmax(dim=-1)
    before = probs.cumsum(dim=-1) - probs
    share = torch.tensor([drawer.top_p for drawer in drawers], device=device)[:, None]
    outside = (before >= share) & (share < 1.0)
    outside[:, 0] = False
    ranked = ranked.masked_fill(outside, float("-inf"))
    return torch.empty_like(ranked).scatter_(1, order, ranked)
