"""Supervised training: it learns, the cut into batches changes nothing, a stopped run goes on to the same weights."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from ostinato.model import ModelConfig, Transformer
from ostinato.records import BadInputError, UnavailableError
from ostinato.trainer import Document, SftConfig, SftLog, StepBatches, bucket, pack, step_sft, train_sft

CONFIG = ModelConfig("qwen3_moe", 32, 32, 2, 4, 2, 8, 48, 4, 2, 24)
DENSE = ModelConfig("qwen3", 32, 32, 2, 4, 2, 8, 48)


def documents(step: int) -> list[Document]:
    """Counting upwards from somewhere: easy to learn."""
    rng = torch.Generator().manual_seed(step)
    starts = torch.randint(0, 8, (6,), generator=rng).tolist()
    sizes = torch.randint(5, 20, (6,), generator=rng).tolist()
    return [Document(list(range(start, start + size)), [1.0] * size) for start, size in zip(starts, sizes, strict=True)]


def batches_from(step: int) -> Iterator[StepBatches]:
    """Steps without end."""
    while True:
        yield list(bucket(documents(step), 64))
        step += 1


@pytest.mark.parametrize("model", [CONFIG, DENSE])
@pytest.mark.parametrize("bf16", [False, True])
def test_loss_falls(model: ModelConfig, bf16: bool, tmp_path: Path) -> None:
    """A model learns to count, in both precisions."""
    lines: list[SftLog] = []
    config = SftConfig(steps=40, bf16=bf16, log_seconds=0)
    end = train_sft(Transformer(model), batches_from, config, state_file=tmp_path / "s.pt", on_log=lines.append)
    assert end.step == lines[-1].step == 40
    assert lines[0].loss > 3
    assert lines[-1].loss < lines[0].loss / 2
    assert lines[-1].tokens == sum(len(one.ids) for step in range(40) for one in documents(step))


def test_gradients_do_not_depend_on_the_cut() -> None:
    """One packed batch, or several buckets: the same gradient. The balance loss is off, as it is not a sum."""
    config = SftConfig(steps=1, bf16=False, aux_weight=0.0, clip=1e9)
    grads = []
    for batches in ([pack(documents(0), 40)], list(bucket(documents(0), 1000)), list(bucket(documents(0), 25))):
        model = Transformer(CONFIG, seed=3)
        step_sft(model, batches, config)
        grads.append(torch.cat([one.grad.flatten() for one in model.parameters() if one.grad is not None]))
    torch.testing.assert_close(grads[1], grads[0], atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(grads[2], grads[0], atol=1e-6, rtol=1e-4)


def test_a_stopped_run_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    """Stopping after a checkpoint and going on gives, bit for bit, what an unbroken run gives."""

    class StopError(Exception):
        pass

    def stop(_: object) -> None:
        raise StopError

    config = SftConfig(steps=6, checkpoint_minutes=0.0)
    whole, broken = Transformer(CONFIG), Transformer(CONFIG)
    train_sft(whole, batches_from, config, state_file=tmp_path / "whole.pt", on_log=lambda _: None)
    with pytest.raises(StopError):
        train_sft(broken, batches_from, config, state_file=tmp_path / "b.pt", on_log=lambda _: None, on_checkpoint=stop)
    fresh = Transformer(CONFIG, seed=8)
    end = train_sft(fresh, batches_from, config, state_file=tmp_path / "b.pt", on_log=lambda _: None)
    assert end.step == 6
    for mine, expected in zip(fresh.parameters(), whole.parameters(), strict=True):
        assert torch.equal(mine, expected)


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path: Path) -> None:
    """A broken weight is reported, not trained on."""
    model = Transformer(CONFIG)
    with torch.no_grad():
        model.model.norm.weight[0] = float("nan")
    with pytest.raises(UnavailableError, match="loss is nan"):
        train_sft(model, batches_from, SftConfig(steps=2), state_file=tmp_path / "s.pt", on_log=lambda _: None)


def test_the_budget_is_minutes_or_steps(tmp_path: Path) -> None:
    """Both or neither is refused; minutes alone end the run."""
    for config in (SftConfig(), SftConfig(minutes=1, steps=1)):
        with pytest.raises(BadInputError, match="either minutes or steps"):
            train_sft(Transformer(CONFIG), batches_from, config, state_file=tmp_path / "s.pt", on_log=lambda _: None)
    end = train_sft(
        Transformer(CONFIG), batches_from, SftConfig(minutes=0.001), state_file=tmp_path / "s.pt", on_log=lambda _: None
    )
    assert end.step >= 1
    assert end.seconds >= 0.06
