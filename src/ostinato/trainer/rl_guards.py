"""Checks before and after the steps: a version that fails one is never published."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from ostinato.model import Transformer
from ostinato.records import ConflictError
from ostinato.trainer.objective import CLIP_HIGH, CLIP_LOW, MicroBatch, token_values

MISMATCH_LIMIT = 0.02
"""Mean absolute difference of log-probabilities beyond which engine and trainer do not run the same model. The
prototype saw 0.005 with BF16 on one side and 3e-7 with float32 on both."""
CLIPPED_LIMIT = 0.5
ENTROPY_SHARE = 0.1


class Mismatch(NamedTuple):
    """Recorded against recomputed log-probabilities, before the first step, over `tokens` that the parent version
    itself drew: mean absolute difference, KL divergence from recorded to recomputed by the k3 estimator
    (r - 1 - ln r, nats), and the share of ratios outside 0.8 to 1.2."""

    tokens: int
    mean_abs: float
    kl: float
    outside: float


class StepStats(NamedTuple):
    """One optimiser step: loss, gradient norm before clipping, mean entropy (nats) and mean ratio over its tokens,
    the share of tokens whose gradient the clip removed, and how many tokens it had."""

    loss: float
    grad_norm: float
    entropy: float
    ratio: float
    clipped: float
    tokens: int


def measure_mismatch(model: Transformer, batches: Sequence[MicroBatch]) -> Mismatch:
    """See `Mismatch`; all zero where the parent drew nothing."""
    parts = []
    with torch.no_grad():
        for batch in batches:
            if bool(batch.own_N.any()):
                values = token_values(model, batch).logprobs_N
                parts.append((values - batch.behaviour_N)[batch.own_N])
    if not parts:
        return Mismatch(0, 0.0, 0.0, 0.0)
    log_ratio = torch.cat(parts).double()
    ratio = log_ratio.exp()
    outside = (ratio < 0.8) | (ratio > 1.2)
    return Mismatch(
        log_ratio.numel(),
        float(log_ratio.abs().mean()),
        float((ratio - 1 - log_ratio).mean()),
        float(outside.double().mean()),
    )


def check_mismatch(mismatch: Mismatch, parent: str) -> None:
    """Raises `ConflictError` when engine and trainer plainly disagree about the parent version."""
    if not mismatch.mean_abs <= MISMATCH_LIMIT:
        raise ConflictError(
            f"Recorded and recomputed log-probabilities of {parent} differ by {mismatch.mean_abs:.3g} on average over"
            f" {mismatch.tokens} tokens (limit {MISMATCH_LIMIT}): the engine does not compute what the trainer does.",
            hint="Check that both read the same weights folder, and that top_p was 1 and top_k 0.",
        )


def check_step(step: int, stats: StepStats) -> None:
    """Raises `ConflictError` on a loss or gradient that is not a number; nothing was stepped then."""
    if not (math.isfinite(stats.loss) and math.isfinite(stats.grad_norm)):
        raise ConflictError(
            f"Step {step} has loss {stats.loss} and gradient norm {stats.grad_norm}; nothing is published.",
            hint="Train again with a lower learning rate: --learning-rate.",
        )


def check_run(steps: Sequence[StepStats]) -> None:
    """Raises `ConflictError` when the policy ran away: entropy lost, or most of the tokens clipped, at the end."""
    tail = steps[-max(1, len(steps) // 4) :]
    entropy = sum(step.entropy for step in tail) / len(tail)
    clipped = sum(step.clipped for step in tail) / len(tail)
    if entropy < ENTROPY_SHARE * steps[0].entropy:
        raise ConflictError(
            f"The entropy fell from {steps[0].entropy:.3g} to {entropy:.3g} nats; nothing is published.",
            hint="Train again with a lower learning rate: --learning-rate.",
        )
    if clipped > CLIPPED_LIMIT:
        raise ConflictError(
            f"{clipped:.0%} of the tokens left the ratio bounds {CLIP_LOW} to {CLIP_HIGH}; nothing is published.",
            hint="Train again with a lower learning rate, or on fresher sessions: --max-age.",
        )
