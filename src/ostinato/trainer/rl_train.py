"""Policy-gradient training on live sessions, one episode for each prompt: sessions and a parent version in, a
published child version out.

The order is the contract: admit, measure rewards against the baseline, measure the mismatch between engine and
trainer, step once through all sessions, check, publish, then save the optimiser's state. objective.py and
baseline_fit.py say what is computed; checkpoint.py how float32 masters and published bits go together.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from msgspec import Struct

from ostinato.model import Transformer
from ostinato.records import BadInputError
from ostinato.store import TrainSession
from ostinato.trainer.baseline_fit import Advantages, BaselineKind, Floats, History, advantages
from ostinato.trainer.checkpoint import Learner, load_published, state_path
from ostinato.trainer.objective import MicroBatch, policy_loss, token_gains, token_values
from ostinato.trainer.rl_batches import admit, ages, micro_batches
from ostinato.trainer.rl_guards import (
    Mismatch,
    StepStats,
    check_mismatch,
    check_run,
    check_step,
    measure_mismatch,
)
from ostinato.weights import WeightStore

TOKENS_PER_SESSION = 64
"""The divisor of the loss is the batch's sessions times this, whatever their lengths."""
METER_SESSIONS = 64


class RLConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """How to train. `batch_sessions` for each optimiser step; AdamW with `learning_rate` and `betas`, gradient clipped
    to `clip_norm`. Sessions drawn by a version more than `max_age` promotions old expire. `kl_weight` times the k1
    estimate of KL(policy || `kl_reference`) is taken off each session's reward (0: off). For `negative_weight` and
    `sure_from` see `objective.token_gains`. `flip_rewards` turns the sign of what a reward does to each token, which
    makes a candidate that the gate must block. `replay_plausibility`: see `model.MixtureOfExperts`. `seed` fixes the
    order of sessions."""

    batch_sessions: int = 64
    epochs: int = 1
    learning_rate: float = 4e-4
    betas: tuple[float, float] = (0.9, 0.95)
    clip_norm: float = 1.0
    max_age: int = 2
    baseline: BaselineKind = "ridge"
    kl_weight: float = 0.0
    kl_reference: str = ""
    flip_rewards: bool = False
    negative_weight: float = 0.25
    sure_from: float = 0.9
    replay_plausibility: float = 0.0
    seed: int = 0


class RLResult(Struct, frozen=True):
    """What came of a run: the published version, optimiser steps, figures by name, and the session ids that were
    trained on, that were too old, and that were refused (with the reason)."""

    version: str
    parent: str
    steps: int
    stats: dict[str, float]
    trained: list[str]
    expired: list[str]
    refused: dict[str, str]


Progress = Callable[[int, int, StepStats], None]


def train_rl(
    config: RLConfig,
    sessions: Sequence[TrainSession],
    parent: str,
    weights: WeightStore,
    state_folder: Path,
    *,
    history: History | None = None,
    threads: int = 1,
    progress: Progress | None = None,
) -> RLResult:
    """Train from `parent` on `sessions` and publish. `history` holds persons' rewards from before these sessions;
    `progress` is told (step, of how many, figures) after each step. `threads` share each step's work; let torch itself
    use one (`torch.set_num_threads(1)`).

    Raises `BadInputError` when too few sessions can be used, `ConflictError` when a guard refuses to publish."""
    model = load_published(weights, parent)
    model.require_plausible_replay(config.replay_plausibility)
    learner = Learner(model, config.learning_rate, config.betas, config.clip_norm)
    if state_path(state_folder, parent).exists():
        learner.resume(state_path(state_folder, parent), parent)
    drawn_by = {version for session in sessions for version in session.versions}
    admitted = admit(sessions, model.config, ages(weights, parent, drawn_by), config.max_age)
    gains = _advantages(config, admitted.sessions, model, weights, history or {})
    mismatch = measure_mismatch(model, _meter_batches(admitted.sessions, model, parent))
    check_mismatch(mismatch, parent)
    steps: list[StepStats] = []
    plan = _minibatches(config, len(admitted.sessions))
    with ThreadPoolExecutor(threads) as pool:
        for places in plan:
            batches = micro_batches([admitted.sessions[place] for place in places], model.config, parent, places)
            steps.append(_step(config, learner, batches, gains.values, pool))
            check_step(len(steps), steps[-1])
            if progress is not None:
                progress(len(steps), len(plan), steps[-1])
    check_run(steps)
    version = weights.publish(learner.bits(), parent=parent, meta=_meta(config, admitted.sessions, steps)).version
    learner.save(state_path(state_folder, version))
    return RLResult(
        version=version,
        parent=parent,
        steps=len(steps),
        stats=_stats(steps, gains, mismatch, learner.resumed),
        trained=[session.session_id for session in admitted.sessions],
        expired=admitted.expired,
        refused=admitted.refused,
    )


def _advantages(
    config: RLConfig, sessions: Sequence[TrainSession], model: Transformer, weights: WeightStore, history: History
) -> Advantages:
    rewards = np.array([session.reward for session in sessions], np.float64)
    if config.kl_weight:
        rewards = rewards - config.kl_weight * _divergence(config, sessions, model, weights)
    return advantages(sessions, rewards, config.baseline, history)


def _divergence(config: RLConfig, sessions: Sequence[TrainSession], model: Transformer, weights: WeightStore) -> Floats:
    """Each session's k1 = sum over its sampled tokens of log mu - log pi_ref [S]: its gradient as a reward is that of
    the KL divergence, which k1 as a loss would not have."""
    if not config.kl_reference:
        raise BadInputError("A KL weight without a reference.", hint="Name the version: --kl-reference VERSION.")
    reference = load_published(weights, config.kl_reference)
    totals = torch.zeros(len(sessions), dtype=torch.float64)
    with torch.no_grad():
        for batch in micro_batches(sessions, model.config, config.kl_reference):
            values = token_values(reference, batch).logprobs_N
            totals.index_add_(0, batch.session_N, (batch.behaviour_N - values).double())
    return totals.numpy()


def _meter_batches(sessions: Sequence[TrainSession], model: Transformer, parent: str) -> list[MicroBatch]:
    own = [session for session in sessions if parent in session.versions]
    return micro_batches(own[:METER_SESSIONS], model.config, parent)


def _minibatches(config: RLConfig, count: int) -> list[list[int]]:
    """Which sessions each step takes: every session once in an epoch, in random order, in nearly equal parts."""
    rng = np.random.default_rng(config.seed)
    parts = max(1, round(count / config.batch_sessions))
    return [part.tolist() for _ in range(config.epochs) for part in np.array_split(rng.permutation(count), parts)]


class _Part(NamedTuple):
    """One micro-batch's share of a step: gradients in the order of the parameters, and sums over its tokens."""

    gradients: tuple[torch.Tensor, ...]
    loss: float
    entropy: float
    ratio: float
    clipped: float
    tokens: int


def _part(config: RLConfig, learner: Learner, batch: MicroBatch, gain_S: torch.Tensor) -> _Part:
    values = token_values(learner.model, batch)
    gain_N = token_gains(gain_S[batch.session_N], batch.behaviour_N, config.negative_weight, config.sure_from)
    if config.flip_rewards:
        gain_N = -gain_N
    divisor = config.batch_sessions * TOKENS_PER_SESSION
    result = policy_loss(values.logprobs_N, batch.behaviour_N, gain_N, divisor)
    gradients = torch.autograd.grad(result.loss, list(learner.model.parameters()))
    return _Part(
        gradients,
        loss=float(result.loss.detach()),
        entropy=float(values.entropy_N.sum()),
        ratio=float(result.ratio_N.sum()),
        clipped=float(result.clipped_N.sum()),
        tokens=values.entropy_N.numel(),
    )


def _step(
    config: RLConfig, learner: Learner, batches: Sequence[MicroBatch], gains: Floats, pool: Executor
) -> StepStats:
    """One optimiser step over all tokens of `batches`.

    Micro-batches are shared among threads and their gradients added up in order, so the result does not depend on the
    number of threads. (Threads inside an operation would spin while they wait, and starve whoever shares the cores.)"""
    gain_S = torch.from_numpy(gains).float()
    parts = []
    for part in pool.map(lambda batch: _part(config, learner, batch, gain_S), batches):
        learner.accumulate(part.gradients)
        parts.append(part._replace(gradients=()))
    loss, entropy, ratio, clipped, tokens = (sum(figure) for figure in zip(*(part[1:] for part in parts), strict=True))
    return StepStats(loss, learner.step(), entropy / tokens, ratio / tokens, clipped / tokens, int(tokens))


def _meta(
    config: RLConfig, sessions: Sequence[TrainSession], steps: Sequence[StepStats]
) -> dict[str, str | int | float]:
    return {
        "recipe": "rl",
        "sessions": len(sessions),
        "steps": len(steps),
        "learning_rate": config.learning_rate,
        "epochs": config.epochs,
        "negative_weight": config.negative_weight,
        "sure_from": config.sure_from,
        "replay_plausibility": config.replay_plausibility,
        "flip_rewards": int(config.flip_rewards),
    }


def _stats(steps: Sequence[StepStats], gains: Advantages, mismatch: Mismatch, resumed: bool) -> dict[str, float]:
    """The figures of a run by name."""
    count = len(steps)
    return {
        "tokens_sampled": float(sum(step.tokens for step in steps)),
        "grad_norm": sum(step.grad_norm for step in steps) / count,
        "entropy_first": steps[0].entropy,
        "entropy_last": steps[-1].entropy,
        "ratio_last": steps[-1].ratio,
        "clipped": sum(step.clipped for step in steps) / count,
        "reward_scale": gains.scale,
        "baseline_variance_left": gains.variance_left,
        "mismatch_tokens": float(mismatch.tokens),
        "mismatch_mean_abs": mismatch.mean_abs,
        "mismatch_kl": mismatch.kl,
        "mismatch_outside": mismatch.outside,
        "resumed": float(resumed),
    }
