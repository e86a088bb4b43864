"""A mixture of experts whose choices can be prescribed (expert replay).

The router is a softmax over all experts; the k largest are used and, if the configuration says so, their shares are
made to sum to one (Qwen3-MoE). With replay the experts come from the caller, and their shares are still computed from
this router, so that gradients reach it (Router Replay, arXiv:2510.11370).

Shapes: N tokens, H hidden, E experts, I width of an expert, k experts for each token.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from ostinato.model.config import ModelConfig
from ostinato.model.layers import Linear


class Routed(NamedTuple):
    """Output [N, H], chosen experts int64 [N, k], and the router's probabilities float32 [N, E]."""

    out: Tensor
    experts: Tensor
    probs: Tensor


class Experts(nn.Module):
    """The stacked matrices of all experts of a layer; one matrix each in Hugging Face's files (see naming.py)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        E, H, width = config.num_experts, config.hidden_size, config.moe_intermediate_size
        self.gate_proj = nn.Parameter(torch.empty(E, width, H))
        self.up_proj = nn.Parameter(torch.empty(E, width, H))
        self.down_proj = nn.Parameter(torch.empty(E, H, width))

    def sorted(self, x_NH: Tensor, experts_Nk: Tensor, shares_Nk: Tensor) -> Tensor:
        """Each expert sees only its own tokens: least arithmetic. Summation order is fixed, so it is deterministic."""
        N, k = experts_Nk.shape
        flat = experts_Nk.reshape(-1)
        order = torch.argsort(flat, stable=True)
        counts = torch.bincount(flat, minlength=self.gate_proj.shape[0]).tolist()
        fused = torch.cat((self.gate_proj, self.up_proj), dim=1)
        parts = []
        for expert, rows in enumerate(torch.split(x_NH[order // k], counts)):
            gate, up = F.linear(rows, fused[expert]).chunk(2, dim=-1)
            parts.append(F.linear(F.silu(gate) * up, self.down_proj[expert]))
        inverse = torch.empty_like(order)
        inverse[order] = torch.arange(order.numel(), device=order.device)
        picked = torch.cat(parts)[inverse].view(N, k, -1)
        return (picked * shares_Nk[..., None].to(picked.dtype)).sum(dim=1)

    def dense(self, x_NH: Tensor, experts_Nk: Tensor, shares_Nk: Tensor) -> Tensor:
        """Every expert sees every token and unchosen ones get the share 0: more arithmetic, but fixed shapes and few
        operations, which wins for a handful of experts (small batches, compiled training)."""
        E = self.gate_proj.shape[0]
        shares_NE = torch.zeros(x_NH.shape[0], E, device=x_NH.device, dtype=shares_Nk.dtype)
        shares_NE = shares_NE.scatter(1, experts_Nk, shares_Nk)
        fused = torch.cat((self.gate_proj, self.up_proj), dim=1)
        mixed = F.linear(x_NH, fused.flatten(0, 1)).view(x_NH.shape[0], E, -1)
        gate, up = mixed.chunk(2, dim=-1)
        wide = F.silu(gate) * up * shares_NE[..., None].to(up.dtype)
        return F.linear(wide.flatten(1), self.down_proj.transpose(0, 1).flatten(1))


class MixtureOfExperts(nn.Module):
    """Router and experts. `dense` picks how the experts are computed; the result is the same but for rounding."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.top_k, self.normalise, self.dense = config.num_experts_per_tok, config.norm_topk_prob, False
        self.gate = Linear(config.hidden_size, config.num_experts)
        self.experts = Experts(config)

    def forward(self, x_NH: Tensor, replay_Nk: Tensor | None = None) -> Routed:
        """`replay_Nk` holds expert numbers; a row that starts with -1 chooses for itself."""
        probs = self.gate(x_NH).float().softmax(dim=-1)
        chosen = probs.topk(self.top_k, dim=-1).indices
        if replay_Nk is not None:
            chosen = torch.where(replay_Nk[:, :1] >= 0, replay_Nk, chosen)
        shares = probs.gather(1, chosen)
        if self.normalise:
            shares = shares / shares.sum(dim=-1, keepdim=True)
        compute = self.experts.dense if self.dense else self.experts.sorted
        return Routed(compute(x_NH, chosen, shares), chosen, probs)
