"""Queries, keys and values of a layer at inference, from the normalised residual stream.

Grouped heads (Qwen3) need one matrix product. Latent attention (DeepSeek-V3, arXiv:2405.04434) is computed in its
absorbed form: the matrices that would make each head's keys and values from a position's latent vector are multiplied
into those of the queries and of the output, so that all heads share one key (rotated part, latent) and one value (the
latent): grouped heads with a single key head.

Shapes: N tokens, H hidden, Q query heads, K key heads, C size of a query or key, U size of a value, R rotated size,
Z latent size, A size of the queries' latent.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from ostinato.model import LATENT_EPS, ModelConfig, latent_scale


class HeadSizes(NamedTuple):
    """Key heads, size of a key, size of a value: what the cache holds for each position."""

    heads: int
    key: int
    value: int


def head_sizes(config: ModelConfig) -> HeadSizes:
    """Of one layer."""
    if config.latent is None:
        return HeadSizes(config.num_kv_heads, config.head_dim, config.head_dim)
    return HeadSizes(1, config.latent.qk_rope_head_dim + config.latent.kv_lora_rank, config.latent.kv_lora_rank)


class Heads(NamedTuple):
    """Queries [N, Q, C], scaled and rotated, keys [N, K, C], rotated, and values [N, K, U]."""

    queries: Tensor
    keys: Tensor
    values: Tensor


class Projection(Protocol):
    """What the runner needs of an attention's input side."""

    def __call__(self, normed_NH: Tensor, turns_N1R: Tensor) -> Heads:
        """`turns` complex64 [N, 1, R / 2] are the rotary factors of the tokens' positions."""
        ...


def normed(x: Tensor, eps: Tensor) -> Tensor:
    """`x` over its root mean square, without the factor that layout.py folded into the next matrix."""
    scale: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True).hypot_(eps)
    return x / scale


def scaled_eps(size: int, eps: float, device: torch.device | str) -> Tensor:
    """float32 [1]: sqrt(size x eps), the second argument of `normed`."""
    return torch.tensor([math.sqrt(size * eps)], device=device)


class GroupedProjection:
    """`qkv` [H, (Q + 2K)C] and the scales of the norms of queries and keys [Q + K, C]."""

    def __init__(self, config: ModelConfig, state: Mapping[str, Tensor], prefix: str, norm_H: Tensor) -> None:
        self.query_heads, self.key_heads, self.size = config.num_heads, config.num_kv_heads, config.head_dim
        order = torch.arange(self.size).view(2, self.size // 2).t().reshape(-1)

        def neighbours(name: str, count: int) -> Tensor:
            matrix = state[prefix + name]
            return matrix.view(count, self.size, -1)[:, order].reshape(count * self.size, -1)

        query = neighbours("self_attn.q_proj.weight", self.query_heads)
        key = neighbours("self_attn.k_proj.weight", self.key_heads)
        fused = torch.cat((query, key, state[prefix + "self_attn.v_proj.weight"]))
        # The query's norm factor sqrt(C) and the attention scale 1/sqrt(C) cancel.
        query_scale = state[prefix + "self_attn.q_norm.weight"][order].expand(self.query_heads, self.size)
        key_scale = state[prefix + "self_attn.k_norm.weight"][order] * math.sqrt(self.size)
        self.qkv = (fused * norm_H).t().contiguous()
        self.scale = torch.cat((query_scale, key_scale.expand(self.key_heads, self.size))).contiguous()
        self.eps = scaled_eps(self.size, config.rms_norm_eps, norm_H.device)

    def __call__(self, normed_NH: Tensor, turns_N1R: Tensor) -> Heads:
        """One product; norm and rotation in place."""
        N, Q, K, C = len(normed_NH), self.query_heads, self.key_heads, self.size
        mixed = torch.mm(normed_NH, self.qkv).view(N, Q + 2 * K, C)
        qk = mixed[:, : Q + K]
        qk.div_(torch.linalg.vector_norm(qk, dim=-1, keepdim=True).hypot_(self.eps)).mul_(self.scale)
        torch.view_as_complex(qk.view(N, Q + K, C // 2, 2)).mul_(turns_N1R)
        return Heads(mixed[:, :Q], mixed[:, Q : Q + K], mixed[:, Q + K :])


class LatentProjection:
    """`first` [H, Z + R + A] makes the latents, `query` [A or H, Q(R + Z)] the queries; `out` [QZ, H] belongs to the
    layer and holds the matrices of the values."""

    def __init__(self, config: ModelConfig, state: Mapping[str, Tensor], prefix: str, norm_H: Tensor) -> None:
        sizes = config.latent
        assert sizes is not None, "built for configurations that have it"
        self.heads, self.latent, self.turned = config.num_heads, sizes.kv_lora_rank, sizes.qk_rope_head_dim
        inside = prefix + "self_attn."
        own = {name.removeprefix(inside): tensor for name, tensor in state.items() if name.startswith(inside)}
        turns = self._order(sizes.rope_interleave)
        first = own["kv_a_proj_with_mqa.weight"]
        rows = [first[: self.latent], first[self.latent :][turns]]
        norm_Z = own["kv_a_layernorm.weight"] * math.sqrt(self.latent)
        up = own["kv_b_proj.weight"].view(self.heads, -1, self.latent) * norm_Z
        to_keys, to_values = torch.split(up, [sizes.qk_nope_head_dim, sizes.v_head_dim], dim=1)
        last = own["q_b_proj.weight" if sizes.q_lora_rank else "q_proj.weight"]
        last = last.view(self.heads, -1, last.shape[1])
        plain, turned = torch.split(last, [sizes.qk_nope_head_dim, self.turned], dim=1)
        absorbed = to_keys.transpose(1, 2) @ plain
        query = torch.cat((turned[:, turns], absorbed), dim=1).flatten(0, 1) * latent_scale(config)
        if sizes.q_lora_rank:
            rows.append(own["q_a_proj.weight"])
            query = query * (own["q_a_layernorm.weight"] * math.sqrt(sizes.q_lora_rank))
        else:
            query = query * norm_H
        self.through_latent = bool(sizes.q_lora_rank)
        self.first = (torch.cat(rows) * norm_H).t().contiguous()
        self.query = query.t().contiguous()
        output = own["o_proj.weight"].view(-1, self.heads, sizes.v_head_dim)
        self.out = torch.einsum("oqv,qvz->qzo", output, to_values).flatten(0, 1).contiguous()
        self.eps = scaled_eps(self.latent, LATENT_EPS, norm_H.device)
        self.query_eps = scaled_eps(max(sizes.q_lora_rank, 1), LATENT_EPS, norm_H.device)

    def __call__(self, normed_NH: Tensor, turns_N1R: Tensor) -> Heads:
        """Two products."""
        Z, R = self.latent, self.turned
        mixed = torch.mm(normed_NH, self.first)
        latent = normed(mixed[:, :Z], self.eps)
        source = normed(mixed[:, Z + R :], self.query_eps) if self.through_latent else normed_NH
        queries = torch.mm(source, self.query).view(len(mixed), self.heads, R + Z)
        turned = torch.cat((queries[..., :R], mixed[:, None, Z : Z + R]), dim=1)
        torch.view_as_complex(turned.view(len(mixed), self.heads + 1, R // 2, 2)).mul_(turns_N1R)
        queries = torch.cat((turned[:, :-1], queries[..., R:]), dim=-1)
        keys = torch.cat((turned[:, -1], latent), dim=-1)
        return Heads(queries, keys[:, None], latent[:, None])

    def _order(self, interleaved: bool) -> Tensor:
        """Where the two numbers of each rotated pair stand, as neighbours."""
        along = torch.arange(self.turned)
        return along if interleaved else along.view(2, self.turned // 2).t().reshape(-1)
