"""Muon for hidden matrices, AdamW for the rest.

Source: Keller Jordan et al., "Muon: an optimizer for hidden layers in neural networks" (2024),
https://kellerjordan.github.io/posts/muon/, with its quintic Newton-Schulz coefficients. Differences: matrices of one
shape (stacked experts too) are orthogonalised in one batch; no weight decay.
"""

from collections.abc import Iterable

import torch
from msgspec import Struct
from torch import Tensor, nn

_A, _B, _C = 3.4445, -4.7750, 2.0315


class OptimConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Learning rates and how they fall."""

    muon_lr: float = 0.02
    """Of hidden matrices; the update has a spectral norm near one."""
    adam_lr: float = 3e-3
    """Of embeddings, routers and norms."""
    momentum: float = 0.95
    """Of Muon (Nesterov)."""
    decay_share: float = 0.6
    floor: float = 0.0
    """The share of both rates at which the fall ends."""
    """The last part of the run over which both rates fall linearly to zero."""


def orthogonalise(update: Tensor, steps: int = 5) -> Tensor:
    """The nearest semi-orthogonal matrix, roughly: singular values end in about 0.7 to 1.2. [..., R, C], any batch
    dimensions; computed in bfloat16 as the source does, returned in float32."""
    x: Tensor = update.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = _A * x + (_B * gram + _C * gram @ gram) @ x
    straight: Tensor = x.mT if tall else x
    return straight.float()


class Muon(torch.optim.Optimizer):
    """The optimiser for matrices: parameters of at least two dimensions, the last two of which are the matrix."""

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float, momentum: float) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # noqa: ARG002 - the base class has it
        """One update of every parameter that has a gradient."""
        for group in self.param_groups:
            shapes: dict[tuple[int, int], list[tuple[nn.Parameter, Tensor]]] = {}
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if "momentum" not in state:
                    state["momentum"] = torch.zeros_like(parameter)
                buffer = state["momentum"]
                buffer.lerp_(parameter.grad, 1 - group["momentum"])
                update = parameter.grad.lerp(buffer, group["momentum"])
                shapes.setdefault((parameter.shape[-2], parameter.shape[-1]), []).append((parameter, update))
            for (rows, columns), members in shapes.items():
                flat = torch.cat([update.reshape(-1, rows, columns) for _, update in members])
                scale = -group["lr"] * max(1.0, rows / columns) ** 0.5
                start = 0
                whole = orthogonalise(flat)
                for parameter, update in members:
                    end = start + update.numel() // (rows * columns)
                    parameter.add_(whole[start:end].view_as(parameter), alpha=scale)
                    start = end


class MatrixOptimizer:
    """Muon and AdamW over a `Transformer`, with one schedule by progress."""

    def __init__(self, model: nn.Module, config: OptimConfig) -> None:
        named = list(model.named_parameters())
        matrices = [parameter for name, parameter in named if is_hidden_matrix(name, parameter)]
        others = [parameter for name, parameter in named if not is_hidden_matrix(name, parameter)]
        self.config = config
        self.muon = Muon(matrices, config.muon_lr, config.momentum)
        self.adam = torch.optim.AdamW(others, lr=config.adam_lr, betas=(0.9, 0.95), weight_decay=0.0)

    def step(self, progress: float) -> float:
        """Update and clear the gradients. `progress` is the share of the run that is over, 0 to 1; returns the factor
        on the learning rates."""
        left, share, floor = max(0.0, 1.0 - progress), self.config.decay_share, self.config.floor
        factor = floor + (1 - floor) * min(1.0, left / share) if share > 0 else 1.0
        for optimizer, lr in ((self.muon, self.config.muon_lr), (self.adam, self.config.adam_lr)):
            for group in optimizer.param_groups:
                group["lr"] = lr * factor
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return factor

    def state_dict(self) -> dict[str, object]:
        """For `load_state_dict`."""
        return {"muon": self.muon.state_dict(), "adam": self.adam.state_dict()}

    def load_state_dict(self, state: dict[str, dict[str, object]]) -> None:
        """Continue where `state_dict` was taken."""
        self.muon.load_state_dict(state["muon"])
        self.adam.load_state_dict(state["adam"])


def is_hidden_matrix(name: str, parameter: Tensor) -> bool:
    """Whether Muon takes a parameter: matrices that are neither embedding, output nor router."""
    return parameter.dim() >= 2 and not any(part in name for part in ("embed_tokens", "lm_head", "mlp.gate.weight"))
