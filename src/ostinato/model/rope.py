"""Rotary position embedding (RoPE, arXiv:2104.09864), plain or stretched by YaRN (arXiv:2309.00071).

Shapes: B rows, T positions, D rotated size of a head.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ostinato.model.config import ModelConfig, Yarn


class Rotary(NamedTuple):
    """Cosines and sines of the positions, float32 [B, 1, T, D / 2], times YaRN's attention factor."""

    cos: Tensor
    sin: Tensor


def rotary(positions_BT: Tensor, config: ModelConfig) -> Rotary:
    """The rotations of these positions."""
    angles = positions_BT.float()[:, None, :, None] * frequencies(config, positions_BT.device)
    scale = rotary_scale(config)
    return Rotary(angles.cos() * scale, angles.sin() * scale)


def frequencies(config: ModelConfig, device: torch.device | str = "cpu") -> Tensor:
    """Radians for each position, float32 [D / 2]."""
    size = config.rotary_dim
    plain = 1.0 / config.rope_theta ** (torch.arange(0, size, 2, device=device).float() / size)
    if config.yarn is None:
        return plain
    low, high = _ramp_ends(config.yarn, size, config.rope_theta)
    ramp = (torch.arange(size // 2, device=device).float() - low) / (high - low if high != low else 0.001)
    stretched = ramp.clamp(0, 1)
    return plain / config.yarn.factor * stretched + plain * (1 - stretched)


def rotary_scale(config: ModelConfig) -> float:
    """What YaRN multiplies queries and keys by: its attention factor; 1 without YaRN."""
    yarn = config.yarn
    if yarn is None:
        return 1.0
    if yarn.attention_factor is not None:
        return yarn.attention_factor
    if yarn.mscale and yarn.mscale_all_dim:
        return yarn_mscale(yarn.factor, yarn.mscale) / yarn_mscale(yarn.factor, yarn.mscale_all_dim)
    return yarn_mscale(yarn.factor)


def yarn_mscale(factor: float, weight: float = 1.0) -> float:
    """0.1 x weight x ln(factor) + 1, the sharpening of attention over a context that is `factor` times as long."""
    return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0


def rotate(x_BQTD: Tensor, at: Rotary) -> Tensor:
    """Turn queries or keys whose pairs are (d, d + D / 2), the half-split layout of Hugging Face."""
    first, second = x_BQTD.chunk(2, dim=-1)
    return _turn(first, second, at)


def rotate_interleaved(x_BQTD: Tensor, at: Rotary) -> Tensor:
    """Turn queries or keys whose pairs are (2d, 2d + 1), the layout of DeepSeek. What comes out is half-split, which
    changes no product of a query with a key."""
    return _turn(x_BQTD[..., 0::2], x_BQTD[..., 1::2], at)


def _turn(first: Tensor, second: Tensor, at: Rotary) -> Tensor:
    return torch.cat((first * at.cos - second * at.sin, second * at.cos + first * at.sin), dim=-1)


def _ramp_ends(yarn: Yarn, size: int, theta: float) -> tuple[float, float]:
    """The pairs between which the stretch goes from none to all: those that turn `beta_fast` and `beta_slow` times
    within the context of the first training."""

    def pair(turns: float) -> float:
        return size * math.log(yarn.original_max_position_embeddings / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = pair(yarn.beta_fast), pair(yarn.beta_slow)
    if yarn.truncate:
        low, high = math.floor(low), math.ceil(high)
    return max(low, 0), min(high, size - 1)
