"""The feed-forward part of a layer at inference: plain, all experts at once, or only the chosen experts.

Shapes: N tokens, H hidden, E experts, I width of an expert, k experts for each token. Each part maps the residual
stream [N, H] and its normalised form [N, H] to the new residual stream and the chosen experts [N, k] (int64; None for
a plain part).
"""

from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from ostinato.model import ModelConfig, group_choice, group_shares


class Mixed(NamedTuple):
    """The residual stream [N, H] after the part, and its chosen experts [N, k] or None."""

    hidden: Tensor
    experts: Tensor | None


class FeedForwardPart(Protocol):
    """What the runner needs of a feed-forward part."""

    def __call__(self, hidden_NH: Tensor, normed_NH: Tensor) -> Mixed:
        """Add the part's output to the residual stream."""
        ...


class FeedForward:
    """SwiGLU: `gate_up` [H, 2I], `down` [I, H]."""

    def __init__(self, gate_up: Tensor, down: Tensor) -> None:
        self.gate_up, self.down = gate_up, down
        self.width = down.shape[0]

    def __call__(self, hidden_NH: Tensor, normed_NH: Tensor) -> Mixed:
        """No experts are chosen."""
        mixed = torch.mm(normed_NH, self.gate_up)
        wide = F.silu(mixed[:, : self.width]).mul_(mixed[:, self.width :])
        return Mixed(torch.addmm(hidden_NH, wide, self.down), None)


class Route:
    """Which experts a token goes to, from the router's logits: as `model.moe` says, for both kinds of router. `bias_E`
    belongs to a router with groups."""

    def __init__(self, config: ModelConfig, bias_E: Tensor | None) -> None:
        self.experts, self.top_k, self.normalise = config.num_experts, config.num_experts_per_tok, config.norm_topk_prob
        self.groups, self.bias = config.groups, bias_E

    def __call__(self, logits_NE: Tensor) -> tuple[Tensor, Tensor]:
        """Shares [N, k] and numbers [N, k] of the chosen experts, largest first."""
        if self.groups is not None:
            assert self.bias is not None, "a router with groups has one"
            scores_NE = logits_NE.sigmoid()
            experts = group_choice(scores_NE, self.bias, self.groups).topk(self.top_k, dim=-1).indices
            return group_shares(scores_NE.gather(1, experts), self.groups, normalise=self.normalise), experts
        top, experts = logits_NE.topk(self.top_k, dim=-1)
        if self.normalise:
            # Probabilities over all experts, renormalised over the chosen, are a softmax over the chosen logits.
            return top.softmax(dim=-1), experts
        return logits_NE.softmax(dim=-1).gather(1, experts), experts


class DenseExperts:
    """All experts for every token; those not chosen get the share 0. More arithmetic, but four operations whatever the
    batch: fastest where there are few experts. `fused` [H, 2EI + E] holds gates, ups and router; `down` [EI, H]."""

    def __init__(self, route: Route, fused: Tensor, down: Tensor) -> None:
        self.route, self.fused, self.down = route, fused, down
        self.width = down.shape[0]

    def __call__(self, hidden_NH: Tensor, normed_NH: Tensor) -> Mixed:
        """One product in, one product out."""
        mixed = torch.mm(normed_NH, self.fused)
        N, E = mixed.shape[0], self.route.experts
        shares, experts = self.route(mixed[:, 2 * self.width :])
        shares_NE = mixed.new_zeros(N, E).scatter_(1, experts, shares)
        wide = F.silu(mixed[:, : self.width]).mul_(mixed[:, self.width : 2 * self.width])
        wide.view(N, E, -1).mul_(shares_NE[:, :, None])
        return Mixed(torch.addmm(hidden_NH, wide, self.down), experts)


class RoutedExperts:
    """Each expert sees only its own tokens: least arithmetic, for many experts. `router` [H, E], `gate_up` [E, H, 2I],
    `down` [E, I, H]."""

    def __init__(self, route: Route, router: Tensor, gate_up: Tensor, down: Tensor) -> None:
        self.route, self.router, self.gate_up, self.down = route, router, gate_up, down

    def __call__(self, hidden_NH: Tensor, normed_NH: Tensor) -> Mixed:
        """Tokens are visited expert by expert, in rising order of the expert's number."""
        shares, experts = self.route(torch.mm(normed_NH, self.router))
        out = hidden_NH.clone()
        for expert in sorted(set(experts.flatten().tolist())):
            rows, place = (experts == expert).nonzero(as_tuple=True)
            gate, up = torch.mm(normed_NH[rows], self.gate_up[expert]).chunk(2, dim=1)
            wide = F.silu(gate).mul_(up).mul_(shares[rows, place][:, None])
            out.index_add_(0, rows, torch.mm(wide, self.down[expert]))
        return Mixed(out, experts)


class SharedExperts:
    """Experts, and a plain part that sees every token beside them."""

    def __init__(self, experts: FeedForwardPart, shared: FeedForward) -> None:
        self.experts, self.shared = experts, shared

    def __call__(self, hidden_NH: Tensor, normed_NH: Tensor) -> Mixed:
        """Both are added to the residual stream."""
        mixed = self.experts(hidden_NH, normed_NH)
        return Mixed(self.shared(mixed.hidden, normed_NH).hidden, mixed.experts)
