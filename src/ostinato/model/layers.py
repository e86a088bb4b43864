"""The small parts of a decoder layer. Shapes: B rows, T positions, H hidden."""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn


class RMSNorm(nn.Module):
    """Root-mean-square normalisation over the last dimension, with a learned scale."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """The same shape, in float32."""
        return F.rms_norm(x.float(), (x.shape[-1],), self.weight, self.eps)


class Linear(nn.Module):
    """A weight matrix [out, in] without bias, named as Hugging Face names it."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] to [..., out]."""
        return F.linear(x, self.weight)


class FeedForward(nn.Module):
    """SwiGLU (arXiv:2002.05202)."""

    def __init__(self, hidden_size: int, width: int) -> None:
        super().__init__()
        self.gate_proj = Linear(hidden_size, width)
        self.up_proj = Linear(hidden_size, width)
        self.down_proj = Linear(width, hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        """[..., H] to the same."""
        fused = torch.cat((self.gate_proj.weight, self.up_proj.weight))
        gate, up = F.linear(x, fused).chunk(2, dim=-1)
        return F.linear(F.silu(gate) * up, self.down_proj.weight)
