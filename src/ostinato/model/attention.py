"""Attention: grouped heads (Qwen3), and latent (DeepSeek-V3), with the cache that both share.

Sources: Qwen3 technical report (arXiv:2505.09388), DeepSeek-V3 technical report (arXiv:2412.19437); the references are
transformers' `modeling_qwen3_moe.py` and `modeling_deepseek_v3.py`, from which this differs in that documents may be
packed, and that the grouped form makes queries, keys and values in one matrix product.

Shapes: B rows, T positions, S cache slots, H hidden, Q heads, K key heads, D head size.
"""

import math

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from ostinato.model.config import ModelConfig
from ostinato.model.layers import Linear, RMSNorm
from ostinato.model.rope import Rotary, rotate, rotate_interleaved, yarn_mscale

LATENT_EPS = 1e-6
"""Of the norms inside latent attention, whatever the configuration says of the others."""


class KVCache:
    """Keys and values of up to `slots` positions for `rows` sequences: float32 [layers, rows, K, slots, D]. With latent
    attention K is 1, the key is the latent vector and the value the rotated key.

    The slot is the position. Slots past a row's length may hold rubbish from padding: it is never attended to, because
    a position only sees slots up to its own, and each slot is written before a real token can reach it."""

    def __init__(self, config: ModelConfig, rows: int, slots: int, device: torch.device | str = "cpu") -> None:
        heads, key, value = config.num_kv_heads, config.head_dim, config.head_dim
        if config.latent:
            heads, key, value = 1, config.latent.kv_lora_rank, config.latent.qk_rope_head_dim
        self.keys = torch.zeros(config.num_layers, rows, heads, slots, key, device=device)
        self.values = torch.zeros(config.num_layers, rows, heads, slots, value, device=device)
        self.used = 0

    def write(self, layer: int, keys_BKTD: Tensor, values_BKTD: Tensor, positions_BT: Tensor) -> tuple[Tensor, Tensor]:
        """Store new positions of `layer`; returns its first `used` slots, [B, K, used, D] each."""
        index = positions_BT[:, None, :, None]
        self.keys[layer].scatter_(2, index.expand_as(keys_BKTD), keys_BKTD.float())
        self.values[layer].scatter_(2, index.expand_as(values_BKTD), values_BKTD.float())
        return self.keys[layer, :, :, : self.used], self.values[layer, :, :, : self.used]

    def reach(self, positions_BT: Tensor) -> None:
        """Note up to which slot the next `write` goes, so that attention covers no more than that."""
        self.used = max(self.used, int(positions_BT.max()) + 1)


class GroupedAttention(nn.Module):
    """Causal attention with grouped key heads and normalised queries and keys."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = config.num_heads, config.num_kv_heads, config.head_dim
        self.q_proj = Linear(config.hidden_size, self.heads * self.head_dim)
        self.k_proj = Linear(config.hidden_size, self.kv_heads * self.head_dim)
        self.v_proj = Linear(config.hidden_size, self.kv_heads * self.head_dim)
        self.o_proj = Linear(self.heads * self.head_dim, config.hidden_size)
        self.q_norm = RMSNorm(self.head_dim, config.rms_norm_eps)
        self.k_norm = RMSNorm(self.head_dim, config.rms_norm_eps)

    def forward(
        self, x_BTH: Tensor, at: Rotary, mask: Tensor | None, positions_BT: Tensor, layer: int, cache: KVCache | None
    ) -> Tensor:
        """`mask` is bool [B, 1, T, T or S], True where attention is allowed; None means plain causal."""
        B, T, _ = x_BTH.shape
        fused = torch.cat((self.q_proj.weight, self.k_proj.weight, self.v_proj.weight))
        mixed = F.linear(x_BTH, fused).view(B, T, self.heads + 2 * self.kv_heads, self.head_dim)
        q, k, v = torch.split(mixed, [self.heads, self.kv_heads, self.kv_heads], dim=2)
        q = rotate(self.q_norm(q).transpose(1, 2), at).to(v.dtype)
        k = rotate(self.k_norm(k).transpose(1, 2), at).to(v.dtype)
        v = v.transpose(1, 2)
        if cache is not None:
            k, v = cache.write(layer, k, v, positions_BT)
        groups = self.heads // self.kv_heads
        k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
        out = _attend(q, k, v, mask)
        return F.linear(out.transpose(1, 2).reshape(B, T, -1), self.o_proj.weight)


class LatentAttention(nn.Module):
    """Causal attention whose keys and values are made from one small vector for each position; that vector and the
    shared rotated key are what the cache holds."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        assert config.latent is not None, "built for configurations that have it"
        self.heads, self.sizes = config.num_heads, config.latent
        H, sizes = config.hidden_size, config.latent
        query = self.heads * (sizes.qk_nope_head_dim + sizes.qk_rope_head_dim)
        if sizes.q_lora_rank:
            self.q_a_proj = Linear(H, sizes.q_lora_rank)
            self.q_a_layernorm = RMSNorm(sizes.q_lora_rank, LATENT_EPS)
            self.q_b_proj = Linear(sizes.q_lora_rank, query)
        else:
            self.q_proj = Linear(H, query)
        self.kv_a_proj_with_mqa = Linear(H, sizes.kv_lora_rank + sizes.qk_rope_head_dim)
        self.kv_a_layernorm = RMSNorm(sizes.kv_lora_rank, LATENT_EPS)
        self.kv_b_proj = Linear(sizes.kv_lora_rank, self.heads * (sizes.qk_nope_head_dim + sizes.v_head_dim))
        self.o_proj = Linear(self.heads * sizes.v_head_dim, H)
        self.rotate = rotate_interleaved if sizes.rope_interleave else rotate
        self.scale = latent_scale(config)

    def forward(
        self, x_BTH: Tensor, at: Rotary, mask: Tensor | None, positions_BT: Tensor, layer: int, cache: KVCache | None
    ) -> Tensor:
        """As `GroupedAttention.forward`."""
        B, T, _ = x_BTH.shape
        sizes = self.sizes
        plain, turned = torch.split(self._queries(x_BTH), [sizes.qk_nope_head_dim, sizes.qk_rope_head_dim], dim=-1)
        mixed = self.kv_a_proj_with_mqa(x_BTH)[:, None]
        latent, shared = torch.split(mixed, [sizes.kv_lora_rank, sizes.qk_rope_head_dim], dim=-1)
        latent, shared = self.kv_a_layernorm(latent).to(mixed.dtype), self.rotate(shared, at).to(mixed.dtype)
        if cache is not None:
            latent, shared = cache.write(layer, latent, shared, positions_BT)
        S = latent.shape[2]
        wide = self.kv_b_proj(latent[:, 0]).view(B, S, self.heads, -1).transpose(1, 2)
        keys, values = torch.split(wide, [sizes.qk_nope_head_dim, sizes.v_head_dim], dim=-1)
        q = torch.cat((plain, self.rotate(turned, at).to(plain.dtype)), dim=-1)
        k = torch.cat((keys, shared.to(keys.dtype).expand(-1, self.heads, -1, -1)), dim=-1)
        out = _attend(q, k, values, mask, self.scale)
        return F.linear(out.transpose(1, 2).reshape(B, T, -1), self.o_proj.weight)

    def _queries(self, x_BTH: Tensor) -> Tensor:
        if not self.sizes.q_lora_rank:
            return self._by_heads(self.q_proj(x_BTH))
        return self._by_heads(self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x_BTH))))

    def _by_heads(self, x_BTF: Tensor) -> Tensor:
        return x_BTF.view(*x_BTF.shape[:2], self.heads, -1).transpose(1, 2)


def latent_scale(config: ModelConfig) -> float:
    """1 / sqrt(size of a key), sharpened twice where the context is stretched: YaRN's factor for `mscale_all_dim`."""
    assert config.latent is not None
    scale = 1 / math.sqrt(config.latent.qk_nope_head_dim + config.latent.qk_rope_head_dim)
    if config.yarn is not None and config.yarn.mscale_all_dim:
        scale *= yarn_mscale(config.yarn.factor, config.yarn.mscale_all_dim) ** 2
    return scale


def _attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float | None = None) -> Tensor:
    if q.device.type != "cpu" or (q.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, scale=scale)
    # On a CPU the backward pass of attention is about twice slower in bfloat16 than in float32.
    with torch.autocast("cpu", enabled=False):
        return F.scaled_dot_product_attention(
            q.float(), k.float(), v.float(), attn_mask=mask, is_causal=mask is None, scale=scale
        )
