"""Muon and its companion: orthogonal updates, the right parameters, the schedule, resumption."""

import pytest
import torch
from torch import nn

from ostinato.model import ModelConfig, Transformer
from ostinato.trainer import MatrixOptimizer, OptimConfig
from ostinato.trainer.optim import Muon, is_hidden_matrix, orthogonalise

CONFIG = ModelConfig("qwen3_moe", 61, 32, 1, 4, 2, 8, 48, 4, 2, 24)


@pytest.mark.parametrize("shape", [(16, 16), (8, 24), (24, 8), (3, 16, 8)])
def test_orthogonalise_flattens_singular_values(shape: tuple[int, ...]) -> None:
    """Singular values come near one, singular vectors stay."""
    update = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    flat = orthogonalise(update)
    assert flat.shape == update.shape
    values = torch.linalg.svdvals(flat)
    assert values.min() > 0.4
    assert values.max() < 1.4
    left, _, right = torch.linalg.svd(update, full_matrices=False)
    cosine = (flat * (left @ right)).sum() / flat.norm() / (left @ right).norm()
    assert cosine > 0.9


def test_stacked_matrices_are_updated_as_if_alone() -> None:
    """A stack of experts gets the update that each matrix would get by itself."""
    start = torch.randn(3, 8, 16, generator=torch.Generator().manual_seed(1))
    grads = torch.randn(2, 3, 8, 16, generator=torch.Generator().manual_seed(2))
    stacked = nn.Parameter(start.clone())
    alone = [nn.Parameter(part.clone()) for part in start]
    together, apart = Muon([stacked], 0.02, 0.95), Muon(alone, 0.02, 0.95)
    for grad in grads:
        stacked.grad = grad.clone()
        for parameter, part in zip(alone, grad, strict=True):
            parameter.grad = part.clone()
        together.step()
        apart.step()
    torch.testing.assert_close(stacked.detach(), torch.stack([one.detach() for one in alone]), atol=1e-4, rtol=0)
    assert not torch.allclose(stacked.detach(), start)


def test_parameters_are_split_by_kind() -> None:
    """Muon takes hidden matrices and experts; embedding, router and norms go to AdamW; none is left out."""
    model = Transformer(CONFIG)
    names = {name for name, parameter in model.named_parameters() if is_hidden_matrix(name, parameter)}
    assert "model.layers.0.mlp.experts.gate_proj" in names
    assert "model.layers.0.self_attn.q_proj.weight" in names
    assert not any("norm" in name or "embed" in name or name.endswith("gate.weight") for name in names)
    optimizer = MatrixOptimizer(model, OptimConfig())
    held = sum(len(group["params"]) for one in (optimizer.muon, optimizer.adam) for group in one.param_groups)
    assert held == len(list(model.parameters()))


def test_learning_rates_fall_at_the_end() -> None:
    """Constant first, then linear to zero over the stated share."""
    optimizer = MatrixOptimizer(Transformer(CONFIG), OptimConfig(decay_share=0.6))
    factors = [optimizer.step(progress) for progress in (0.0, 0.4, 0.7, 1.0)]
    assert factors == pytest.approx([1.0, 1.0, 0.5, 0.0])
    assert optimizer.muon.param_groups[0]["lr"] == 0.0
    assert MatrixOptimizer(Transformer(CONFIG), OptimConfig(decay_share=0.0)).step(1.0) == 1.0
