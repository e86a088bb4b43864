"""The parts of a decoder layer: rotary embedding, attention with grouped heads, feed-forward, mixture of experts.

Sources: Qwen3 technical report (arXiv:2505.09388); the reference is transformers' `modeling_qwen3_moe.py`, from which
this differs in three ways: queries, keys and values go through one matrix product; documents may be packed; a caller
may prescribe the experts (expert replay).

Shapes: B rows, T positions, S cache slots, H hidden, N tokens (B x T), Q heads, K key heads, D head size, E experts,
k experts for each token.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from ostinato.model.config import ModelConfig


class Rotary(NamedTuple):
    """Cosines and sines of the positions, float32 [B, 1, T, D]."""

    cos: Tensor
    sin: Tensor


class KVCache:
    """Keys and values of up to `slots` positions for `rows` sequences: float32 [layers, rows, K, slots, D].

    The slot is the position. Slots past a row's length may hold rubbish from padding: it is never attended to, because
    a position only sees slots up to its own, and each slot is written before a real token can reach it."""

    def __init__(self, config: ModelConfig, rows: int, slots: int, device: torch.device | str = "cpu") -> None:
        shape = (config.num_layers, rows, config.num_kv_heads, slots, config.head_dim)
        self.keys = torch.zeros(shape, device=device)
        self.values = torch.zeros(shape, device=device)
        self.used = 0

    def write(self, layer: int, keys_BKTD: Tensor, values_BKTD: Tensor, positions_BT: Tensor) -> tuple[Tensor, Tensor]:
        """Store new positions of `layer`; returns its first `used` slots, [B, K, used, D] each."""
        index = positions_BT[:, None, :, None].expand_as(keys_BKTD)
        self.keys[layer].scatter_(2, index, keys_BKTD.float())
        self.values[layer].scatter_(2, index, values_BKTD.float())
        return self.keys[layer, :, :, : self.used], self.values[layer, :, :, : self.used]

    def reach(self, positions_BT: Tensor) -> None:
        """Note up to which slot the next `write` goes, so that attention covers no more than that."""
        self.used = max(self.used, int(positions_BT.max()) + 1)


class RMSNorm(nn.Module):
    """Root-mean-square normalisation over the last dimension, with a learned scale."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """The same shape, in float32."""
        return F.rms_norm(x.float(), (x.shape[-1],), self.weight, self.eps)


def rotary(positions_BT: Tensor, head_dim: int, theta: float) -> Rotary:
    """Rotary angles (RoPE, arXiv:2104.09864) in the half-split layout of Hugging Face."""
    powers = torch.arange(0, head_dim, 2, device=positions_BT.device).float() / head_dim
    angles = positions_BT.float()[..., None] * (1.0 / theta**powers)
    angles = torch.cat((angles, angles), dim=-1)[:, None]
    return Rotary(angles.cos(), angles.sin())


def rotate(x_BQTD: Tensor, at: Rotary) -> Tensor:
    """Turn queries or keys by their positions."""
    half = x_BQTD.shape[-1] // 2
    turned = torch.cat((-x_BQTD[..., half:], x_BQTD[..., :half]), dim=-1)
    return x_BQTD * at.cos + turned * at.sin


class Linear(nn.Module):
    """A weight matrix [out, in] without bias, named as Hugging Face names it."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] to [..., out]."""
        return F.linear(x, self.weight)


class Attention(nn.Module):
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


def _attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    if q.device.type != "cpu" or (q.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
    # On a CPU the backward pass of attention is about twice slower in bfloat16 than in float32.
    with torch.autocast("cpu", enabled=False):
        return F.scaled_dot_product_attention(q.float(), k.float(), v.float(), attn_mask=mask, is_causal=mask is None)


class FeedForward(nn.Module):
    """SwiGLU (arXiv:2002.05202)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate_proj = Linear(config.hidden_size, config.intermediate_size)
        self.up_proj = Linear(config.hidden_size, config.intermediate_size)
        self.down_proj = Linear(config.intermediate_size, config.hidden_size)

    def forward(self, x_BTH: Tensor) -> Tensor:
        """The same shape."""
        fused = torch.cat((self.gate_proj.weight, self.up_proj.weight))
        gate, up = F.linear(x_BTH, fused).chunk(2, dim=-1)
        return F.linear(F.silu(gate) * up, self.down_proj.weight)
