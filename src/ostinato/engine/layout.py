"""Weights laid out for inference: fewer and larger matrix products than the trainer's module, the same numbers.

What differs from `model.Transformer`, none of which changes a result beyond rounding in float32:
- matrices are transposed ([in, out]) and fused: query, key, value in one; gates, ups and the router in one;
- the scale of an RMS norm is folded into the matrix after it, with the factor sqrt(H), because the runner divides by
  hypot(|x|, sqrt(H eps)), which is sqrt(H (mean(x^2) + eps));
- query and key channels are reordered from Hugging Face's half-split rotary layout (i, i + C/2) to neighbours, so that
  a rotation is one complex product; both get the same order, hence the same scores;
- the attention scale is folded into the queries;
- latent attention is absorbed (see projections.py).

Shapes: H hidden, Q query heads, K key heads, C size of a key, U of a value, R of the rotated part, E experts, I width
of an expert, T positions.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ostinato.engine.experts import DenseExperts, FeedForward, FeedForwardPart, Route, RoutedExperts, SharedExperts
from ostinato.engine.projections import GroupedProjection, LatentProjection, Projection, scaled_eps
from ostinato.model import ModelConfig, Transformer, frequencies, load_bits, rotary_scale, round_to_bf16
from ostinato.records import stays_float32

ROUTED_FROM = 4
"""From this ratio of experts to chosen experts on, only the chosen ones are computed."""


class LayerWeights(NamedTuple):
    """One layer: what makes queries, keys and values, `out` [QU, H], and the feed-forward part."""

    projection: Projection
    out: Tensor
    feed_forward: FeedForwardPart


class Weights(NamedTuple):
    """One version ready to run: `embed` [V, H], `head` [H, V], `turns` complex64 [T, R/2] (the rotary factors),
    `eps_hidden` float32 [1] (sqrt(H x eps))."""

    version: str
    config: ModelConfig
    embed: Tensor
    head: Tensor
    turns: Tensor
    eps_hidden: Tensor
    layers: tuple[LayerWeights, ...]


def build_weights(
    version: str, config: ModelConfig, arrays: Mapping[str, NDArray[np.generic]], max_len: int, device: str = "cpu"
) -> Weights:
    """Float32 weights, rounded to BF16, from arrays under Hugging Face's names. Raises `BadInputError` naming the
    tensor that is missing, unexpected or of the wrong shape."""
    model = Transformer(config)
    load_bits(model, dict(arrays))
    with torch.inference_mode():
        state = {
            name: (tensor if stays_float32(name) else round_to_bf16(tensor)).to(device)
            for name, tensor in model.state_dict().items()
        }
        embed = state["model.embed_tokens.weight"]
        out = embed if config.tie_word_embeddings else state["lm_head.weight"]
        root = math.sqrt(config.hidden_size)
        return Weights(
            version=version,
            config=config,
            embed=embed,
            head=(out * (state["model.norm.weight"] * root)).t().contiguous(),
            turns=_turns(config, max_len).to(device),
            eps_hidden=scaled_eps(config.hidden_size, config.rms_norm_eps, device),
            layers=tuple(_layer(config, state, number) for number in range(config.num_layers)),
        )


def _layer(config: ModelConfig, state: Mapping[str, Tensor], number: int) -> LayerWeights:
    prefix = f"model.layers.{number}."
    norm = state[prefix + "input_layernorm.weight"] * math.sqrt(config.hidden_size)
    feed_forward = _feed_forward(config, state, prefix, number)
    if config.latent is not None:
        latent = LatentProjection(config, state, prefix, norm)
        return LayerWeights(latent, latent.out, feed_forward)
    grouped = GroupedProjection(config, state, prefix, norm)
    return LayerWeights(grouped, state[prefix + "self_attn.o_proj.weight"].t().contiguous(), feed_forward)


def _feed_forward(config: ModelConfig, state: Mapping[str, Tensor], prefix: str, number: int) -> FeedForwardPart:
    norm = state[prefix + "post_attention_layernorm.weight"] * math.sqrt(config.hidden_size)
    if not config.is_moe or number < config.num_dense_layers:
        return _plain(state, prefix + "mlp.", norm)
    experts = _experts(config, state, prefix + "mlp.", norm)
    if not config.num_shared_experts:
        return experts
    return SharedExperts(experts, _plain(state, prefix + "mlp.shared_experts.", norm))


def _plain(state: Mapping[str, Tensor], prefix: str, norm: Tensor) -> FeedForward:
    gate, up, down = (state[prefix + f"{part}_proj.weight"] for part in ("gate", "up", "down"))
    return FeedForward((torch.cat((gate, up)) * norm).t().contiguous(), down.t().contiguous())


def _experts(config: ModelConfig, state: Mapping[str, Tensor], prefix: str, norm: Tensor) -> FeedForwardPart:
    router = state[prefix + "gate.weight"] * norm
    route = Route(config, state.get(prefix + "gate.e_score_correction_bias"))
    gate, up = (state[prefix + f"experts.{part}_proj"] * norm for part in ("gate", "up"))
    down = state[prefix + "experts.down_proj"].transpose(1, 2)
    if config.num_experts >= ROUTED_FROM * config.num_experts_per_tok:
        mixed = torch.cat((gate, up), dim=1).transpose(1, 2).contiguous()
        return RoutedExperts(route, router.t().contiguous(), mixed, down.contiguous())
    fused = torch.cat((gate.flatten(0, 1), up.flatten(0, 1), router))
    return DenseExperts(route, fused.t().contiguous(), down.flatten(0, 1).contiguous())


def _turns(config: ModelConfig, max_len: int) -> Tensor:
    angles = torch.arange(max_len).float()[:, None] * frequencies(config)
    return torch.polar(torch.full_like(angles, rotary_scale(config)), angles)
