"""A mixture of experts whose choices can be prescribed (expert replay).

Qwen3-MoE's router is a softmax over all experts; the k largest are used and, if the configuration says so, their shares
are made to sum to one. DeepSeek-V3's router scores each expert by a sigmoid, chooses within the best groups by score
plus a bias, and takes the shares from the scores alone. With replay the experts come from the caller, and their shares
are still computed from this router, so that gradients reach it (Router Replay, arXiv:2510.11370).

Shapes: N tokens, H hidden, E experts, I width of an expert, k experts for each token, G groups.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from ostinato.model.config import Groups, ModelConfig
from ostinato.model.layers import FeedForward, Linear


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


class Scores(NamedTuple):
    """What a router thinks of the experts: `scores_NE` gives the shares, `choice_NE` the order of choice, and
    `probs_NE` sums to one; all float32."""

    scores: Tensor
    choice: Tensor
    probs: Tensor


class SoftmaxRouter(Linear):
    """Qwen3-MoE."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config.hidden_size, config.num_experts)
        self.normalise = config.norm_topk_prob

    def scores(self, x_NH: Tensor) -> Scores:
        """Softmax over all experts."""
        probs = self(x_NH).float().softmax(dim=-1)
        return Scores(probs, probs, probs)

    def shares(self, scores_Nk: Tensor) -> Tensor:
        """Of the chosen experts."""
        return scores_Nk / scores_Nk.sum(dim=-1, keepdim=True) if self.normalise else scores_Nk


class GroupRouter(Linear):
    """DeepSeek-V3. The bias balances the load, is no parameter of the loss and stays float32 in files."""

    e_score_correction_bias: Tensor

    def __init__(self, config: ModelConfig, groups: Groups) -> None:
        super().__init__(config.hidden_size, config.num_experts)
        self.groups, self.normalise = groups, config.norm_topk_prob
        self.register_buffer("e_score_correction_bias", torch.zeros(config.num_experts))

    def scores(self, x_NH: Tensor) -> Scores:
        """Sigmoids; experts outside the best groups (by the sum of their two best) are never chosen."""
        with torch.autocast(x_NH.device.type, enabled=False):
            scores = F.linear(x_NH.float(), self.weight.float()).sigmoid()
        choice = group_choice(scores, self.e_score_correction_bias, self.groups)
        return Scores(scores, choice, scores / scores.sum(dim=-1, keepdim=True))

    def shares(self, scores_Nk: Tensor) -> Tensor:
        """Of the chosen experts."""
        return group_shares(scores_Nk, self.groups, normalise=self.normalise)


def group_choice(scores_NE: Tensor, bias_E: Tensor, groups: Groups) -> Tensor:
    """What DeepSeek-V3 orders the experts by [N, E]: score plus bias, minus infinity outside the best groups."""
    choice_NGe = (scores_NE + bias_E).view(len(scores_NE), groups.n_group, -1)
    best = choice_NGe.topk(2, dim=-1).values.sum(dim=-1).topk(groups.topk_group, dim=-1).indices
    out = torch.ones(choice_NGe.shape[:2], dtype=torch.bool, device=scores_NE.device).scatter(1, best, False)
    return choice_NGe.masked_fill(out[..., None], -torch.inf).flatten(1)


def group_shares(scores_Nk: Tensor, groups: Groups, *, normalise: bool) -> Tensor:
    """The shares of the chosen experts, from their scores alone."""
    if normalise:
        scores_Nk = scores_Nk / (scores_Nk.sum(dim=-1, keepdim=True) + 1e-20)
    return scores_Nk * groups.routed_scaling_factor


class MixtureOfExperts(nn.Module):
    """Router, experts, and shared experts that see every token. `dense` picks how the experts are computed; the result
    is the same but for rounding.

    `plausibility` guards replay: a prescribed expert whose score is below that part of the lowest score among the
    router's own choices is replaced by the router's best other choice. 0 replays whatever is given."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.top_k, self.dense, self.plausibility = config.num_experts_per_tok, False, 0.0
        self.gate = GroupRouter(config, config.groups) if config.groups else SoftmaxRouter(config)
        self.experts = Experts(config)
        self.shared_experts = (
            FeedForward(config.hidden_size, config.moe_intermediate_size * config.num_shared_experts)
            if config.num_shared_experts
            else None
        )

    def forward(self, x_NH: Tensor, replay_Nk: Tensor | None = None) -> Routed:
        """`replay_Nk` holds expert numbers; a row that starts with -1 chooses for itself."""
        routed = self.gate.scores(x_NH)
        chosen = routed.choice.topk(self.top_k, dim=-1).indices
        if replay_Nk is not None:
            replayed = replay_Nk.clamp(min=0)
            if self.plausibility:
                replayed = _plausible(replayed, chosen, routed, self.plausibility)
            chosen = torch.where(replay_Nk[:, :1] >= 0, replayed, chosen)
        shares = self.gate.shares(routed.scores.gather(1, chosen))
        compute = self.experts.dense if self.dense else self.experts.sorted
        out = compute(x_NH, chosen, shares)
        if self.shared_experts is not None:
            out = out + self.shared_experts(x_NH)
        return Routed(out, chosen, routed.probs)


def _plausible(replay_Nk: Tensor, own_Nk: Tensor, routed: Scores, plausibility: float) -> Tensor:
    """`replay_Nk` where its scores are high enough, else the best experts by choice that are not in it yet. A row in
    which all are plausible keeps its order."""
    scores = routed.scores.gather(1, replay_Nk)
    lowest = routed.scores.gather(1, own_Nk).amin(dim=1, keepdim=True)
    kept = scores >= plausibility * lowest
    bonus = torch.where(kept, torch.inf, 0.0).to(scores.dtype)
    ranked = routed.choice.scatter(1, replay_Nk, routed.choice.gather(1, replay_Nk).nan_to_num(neginf=-1e9) + bonus)
    mended = ranked.topk(replay_Nk.shape[1], dim=-1).indices
    return torch.where(kept.all(dim=1, keepdim=True), replay_Nk, mended)
