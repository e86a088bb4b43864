"""Supervised training: weighted next-token cross-entropy on batches, for a budget of minutes or steps.

One step is a list of batches whose gradients are added; the loss of all of them together is divided by the sum of
their weights, so that how documents are cut into batches does not matter.
"""

import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812
from msgspec import Struct
from torch import Tensor

from ostinato.model import Transformer, load_balance_loss
from ostinato.records import BadInputError, UnavailableError
from ostinato.trainer.optim import MatrixOptimizer, OptimConfig
from ostinato.trainer.packing import PackedBatch

StepBatches = list[PackedBatch]


class SftConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """How to train. Exactly one of `minutes` and `steps` is the budget."""

    minutes: float = 0.0
    """Wall-clock budget; 0 for a budget of steps."""
    steps: int = 0
    """Steps of the budget; 0 for a budget of minutes. Only this one is repeatable."""
    aux_weight: float = 0.01
    """Of the load-balancing loss of a mixture of experts."""
    clip: float = 1.0
    """Largest norm of the whole gradient."""
    bf16: bool = True
    """Matrix products in bfloat16 (autocast); weights, norms, attention on a CPU and the loss stay float32."""
    log_seconds: float = 10.0
    """Time between log lines."""
    checkpoint_minutes: float = 4.0
    """Time between checkpoints."""
    optim: OptimConfig = OptimConfig()


class SftLog(Struct, frozen=True):
    """One log line: means since the last one. `loss` is in nats for each unit of weight; `heavy_loss` counts only
    tokens of weight 1 (what the assistant says)."""

    step: int
    seconds: float
    tokens: int
    loss: float
    heavy_loss: float
    grad_norm: float
    lr_factor: float
    tokens_per_second: float


class Checkpoint(Struct, frozen=True):
    """Where a run stands: what was spent of its budget, and the seen tokens."""

    step: int = 0
    seconds: float = 0.0
    tokens: int = 0


def train_sft(
    model: Transformer,
    batches_from: Callable[[int], Iterator[StepBatches]],
    config: SftConfig,
    *,
    state_file: Path,
    on_log: Callable[[SftLog], None],
    on_checkpoint: Callable[[Checkpoint], None] = lambda _: None,
) -> Checkpoint:
    """Train `model` in place until the budget is spent, and return where it ended.

    `batches_from(step)` yields the batches of that step and on; it must not run dry. `state_file` holds weights,
    optimiser and progress; where it exists the run goes on from it. `on_checkpoint` is called whenever it was written,
    and at the end; its time does not count. Raises `UnavailableError` on a loss that is not finite."""
    if (config.minutes > 0) == (config.steps > 0):
        raise BadInputError("Give either minutes or steps.", hint="Set one of them above 0.", param="minutes")
    optimizer = MatrixOptimizer(model, config.optim)
    at = _restore(state_file, model, optimizer)
    meter = _Meter(at)
    batches = batches_from(at.step)
    model.train()
    while (progress := _progress(config, meter)) < 1.0:
        began = time.monotonic()
        batch = next(batches)
        meter.add(step_sft(model, batch, config), began)
        meter.lr_factor = optimizer.step(progress)
        if time.monotonic() - meter.logged >= config.log_seconds:
            on_log(meter.line())
        if meter.seconds - meter.saved >= 60 * config.checkpoint_minutes:
            _save(state_file, model, optimizer, meter, on_checkpoint)
    if meter.count:
        on_log(meter.line())
    _save(state_file, model, optimizer, meter, on_checkpoint)
    return meter.checkpoint()


class StepResult(Struct, frozen=True):
    """Sums over one step."""

    tokens: int
    loss: float
    weight: float
    heavy_loss: float
    heavy_weight: float
    grad_norm: float


def step_sft(model: Transformer, batches: StepBatches, config: SftConfig) -> StepResult:
    """Forward and backward over all batches of a step, then clip; gradients stay on the parameters."""
    weight = sum(float(batch.weights_BT.sum()) for batch in batches)
    loss = heavy_loss = heavy_weight = 0.0
    tokens = sum(int((batch.segment_ids_BT >= 0).sum()) for batch in batches)
    for batch in batches:
        losses_BT, aux = _losses(model, batch, config)
        mine = (losses_BT * batch.weights_BT[:, 1:]).sum()
        share = float((batch.segment_ids_BT >= 0).sum()) / tokens
        (mine / weight + config.aux_weight * share * aux).backward()  # type: ignore[no-untyped-call]
        loss += float(mine.detach())
        heavy = batch.weights_BT[:, 1:] >= 1.0
        heavy_loss += float(losses_BT.detach()[heavy].sum())
        heavy_weight += float(heavy.sum())
    norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip))
    if not math.isfinite(loss) or not math.isfinite(norm):
        raise UnavailableError(
            f"The loss is {loss} and the gradient norm {norm}: training stopped.",
            hint="Start again from the last checkpoint with a lower learning rate.",
        )
    return StepResult(tokens, loss, weight, heavy_loss, heavy_weight, norm)


def _losses(model: Transformer, batch: PackedBatch, config: SftConfig) -> tuple[Tensor, Tensor]:
    with torch.autocast(batch.ids_BT.device.type, torch.bfloat16, enabled=config.bf16):
        out = model(
            batch.ids_BT,
            positions_BT=batch.positions_BT if not batch.single else None,
            segment_ids_BT=None if batch.single else batch.segment_ids_BT,
        )
    logits_BVT = out.logits_BTV[:, :-1].float().transpose(1, 2)
    losses_BT = F.cross_entropy(logits_BVT, batch.ids_BT[:, 1:], reduction="none")
    if not model.config.is_moe:
        return losses_BT, losses_BT.new_zeros(())
    return losses_BT, load_balance_loss(out.experts_BTLK, out.router_probs_BTLE, batch.segment_ids_BT >= 0)


class _Meter:
    """Sums for the log, and what is spent of the budget."""

    def __init__(self, at: Checkpoint) -> None:
        self.step, self.seconds, self.tokens = at.step, at.seconds, at.tokens
        self.saved = at.seconds
        self.lr_factor = 1.0
        self._clear()

    def add(self, result: StepResult, began: float) -> None:
        self.step += 1
        self.count += 1
        self.tokens += result.tokens
        self.seconds += time.monotonic() - began
        self.sums.append(result)

    def line(self) -> SftLog:
        total = {name: sum(getattr(one, name) for one in self.sums) for name in StepResult.__struct_fields__}
        line = SftLog(
            step=self.step,
            seconds=round(self.seconds, 1),
            tokens=self.tokens,
            loss=round(total["loss"] / max(total["weight"], 1e-9), 4),
            heavy_loss=round(total["heavy_loss"] / max(total["heavy_weight"], 1e-9), 4),
            grad_norm=round(total["grad_norm"] / self.count, 3),
            lr_factor=round(self.lr_factor, 4),
            tokens_per_second=round(total["tokens"] / max(self.seconds - self.since, 1e-9)),
        )
        self._clear()
        return line

    def checkpoint(self) -> Checkpoint:
        return Checkpoint(self.step, self.seconds, self.tokens)

    def _clear(self) -> None:
        self.sums: list[StepResult] = []
        self.count = 0
        self.since = self.seconds
        self.logged = time.monotonic()


def _progress(config: SftConfig, meter: _Meter) -> float:
    return meter.step / config.steps if config.steps else meter.seconds / (60 * config.minutes)


def _save(
    path: Path,
    model: Transformer,
    optimizer: MatrixOptimizer,
    meter: _Meter,
    on_checkpoint: Callable[[Checkpoint], None],
) -> None:
    meter.saved = meter.seconds
    part = path.with_suffix(".part")
    torch.save(
        {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "at": [meter.step, meter.seconds, meter.tokens],
        },
        part,
    )
    part.replace(path)
    on_checkpoint(meter.checkpoint())


def _restore(path: Path, model: Transformer, optimizer: MatrixOptimizer) -> Checkpoint:
    if not path.exists():
        return Checkpoint()
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    step, seconds, tokens = state["at"]
    return Checkpoint(step, seconds, tokens)
