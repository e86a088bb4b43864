"""Weights laid out for inference: fewer and larger matrix products than the trainer's module, the same numbers.

What differs from `model.Transformer`, none of which changes a result beyond rounding in float32:
- matrices are transposed ([in, out]) and fused: query, key, value in one; gates, ups and the router in one;
- the scale of an RMS norm is folded into the matrix after it, with the factor sqrt(H), because the runner divides by
  hypot(|x|, sqrt(H eps)), which is sqrt(H (mean(x^2) + eps));
- query and key channels are reordered from Hugging Face's half-split rotary layout (i, i + C/2) to neighbours, so that
  a rotation is one complex product; both get the same order, hence the same scores;
- the attention scale 1/sqrt(C) is folded into the query norm.

Shapes: H hidden, Q query heads, K key heads, C head size, E experts, I width of an expert, V vocabulary, T positions.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ostinato.engine.experts import DenseExperts, FeedForward, FeedForwardPart, RoutedExperts
from ostinato.model import ModelConfig, Transformer, load_bits, round_to_bf16

ROUTED_FROM = 4
"""From this ratio of experts to chosen experts on, only the chosen ones are computed."""


class LayerWeights(NamedTuple):
    """One layer: `qkv` [H, (Q+2K)C], `qk_scale` [Q+K, C], `out` [QC, H], and the feed-forward part."""

    qkv: Tensor
    qk_scale: Tensor
    out: Tensor
    feed_forward: FeedForwardPart


class Weights(NamedTuple):
    """One version ready to run: `embed` [V, H], `head` [H, V], `turns` complex64 [T, C/2] (the rotary factors),
    `eps_hidden` and `eps_head` float32 [1]: sqrt(size x eps)."""

    version: str
    config: ModelConfig
    embed: Tensor
    head: Tensor
    turns: Tensor
    eps_hidden: Tensor
    eps_head: Tensor
    layers: tuple[LayerWeights, ...]


def build_weights(
    version: str, config: ModelConfig, arrays: Mapping[str, NDArray[np.generic]], max_len: int, device: str = "cpu"
) -> Weights:
    """Float32 weights, rounded to BF16, from arrays under Hugging Face's names. Raises `BadInputError` naming the
    tensor that is missing, unexpected or of the wrong shape."""
    model = Transformer(config)
    load_bits(model, dict(arrays))
    with torch.inference_mode():
        state = {name: round_to_bf16(tensor).to(device) for name, tensor in model.state_dict().items()}
        embed = state["model.embed_tokens.weight"]
        out = embed if config.tie_word_embeddings else state["lm_head.weight"]
        root = math.sqrt(config.hidden_size)
        return Weights(
            version=version,
            config=config,
            embed=embed,
            head=(out * (state["model.norm.weight"] * root)).t().contiguous(),
            turns=_turns(config, max_len).to(device),
            eps_hidden=_eps(config.hidden_size, config, device),
            eps_head=_eps(config.head_dim, config, device),
            layers=tuple(_layer(config, state, f"model.layers.{i}.") for i in range(config.num_layers)),
        )


def _layer(config: ModelConfig, state: Mapping[str, Tensor], prefix: str) -> LayerWeights:
    root = math.sqrt(config.hidden_size)
    heads, keys, size = config.num_heads, config.num_kv_heads, config.head_dim
    order = torch.arange(size).view(2, size // 2).t().reshape(-1)

    def neighbours(name: str, count: int) -> Tensor:
        matrix = state[prefix + name]
        return matrix.view(count, size, -1)[:, order].reshape(count * size, -1)

    query = neighbours("self_attn.q_proj.weight", heads)
    key = neighbours("self_attn.k_proj.weight", keys)
    fused = torch.cat((query, key, state[prefix + "self_attn.v_proj.weight"]))
    # The query's norm factor sqrt(C) and the attention scale 1/sqrt(C) cancel.
    query_scale = state[prefix + "self_attn.q_norm.weight"][order]
    key_scale = state[prefix + "self_attn.k_norm.weight"][order] * math.sqrt(size)
    return LayerWeights(
        qkv=(fused * (state[prefix + "input_layernorm.weight"] * root)).t().contiguous(),
        qk_scale=torch.cat((query_scale.expand(heads, size), key_scale.expand(keys, size))).contiguous(),
        out=state[prefix + "self_attn.o_proj.weight"].t().contiguous(),
        feed_forward=_feed_forward(config, state, prefix),
    )


def _feed_forward(config: ModelConfig, state: Mapping[str, Tensor], prefix: str) -> FeedForwardPart:
    norm = state[prefix + "post_attention_layernorm.weight"] * math.sqrt(config.hidden_size)
    if not config.is_moe:
        gate, up = state[prefix + "mlp.gate_proj.weight"], state[prefix + "mlp.up_proj.weight"]
        down = state[prefix + "mlp.down_proj.weight"].t().contiguous()
        return FeedForward((torch.cat((gate, up)) * norm).t().contiguous(), down)
    router = state[prefix + "mlp.gate.weight"] * norm
    gate, up = (state[prefix + f"mlp.experts.{part}_proj"] * norm for part in ("gate", "up"))
    down = state[prefix + "mlp.experts.down_proj"].transpose(1, 2)
    if config.num_experts >= ROUTED_FROM * config.num_experts_per_tok:
        mixed = torch.cat((gate, up), dim=1).transpose(1, 2).contiguous()
        return RoutedExperts(config, router.t().contiguous(), mixed, down.contiguous())
    fused = torch.cat((gate.flatten(0, 1), up.flatten(0, 1), router))
    return DenseExperts(config, fused.t().contiguous(), down.flatten(0, 1).contiguous())


def _turns(config: ModelConfig, max_len: int) -> Tensor:
    powers = torch.arange(0, config.head_dim, 2).float() / config.head_dim
    angles = torch.arange(max_len).float()[:, None] * (1.0 / config.rope_theta**powers)
    return torch.polar(torch.ones_like(angles), angles)


def _eps(size: int, config: ModelConfig, device: str) -> Tensor:
    return torch.tensor([math.sqrt(size * config.rms_norm_eps)], device=device)
