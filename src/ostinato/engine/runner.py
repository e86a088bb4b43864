# ruff: noqa: N815 - shape suffixes name the fields too
"""One pass of the model over a mixed batch: one token of each sequence that decodes, and pieces of prompts.

All tokens of a pass are packed into one [N, H] matrix, whatever sequence they belong to; only attention looks at
sequences. At the sizes of the seed model the number of operations decides, not the arithmetic, so each is spent with
care (see layout.py). The shape is Qwen3's (arXiv:2505.09388) and Qwen3-MoE's.

Shapes: N tokens of a pass, D decoding tokens (the first D of N), H hidden, Q query heads, K key heads, C head size,
T positions, L layers, k experts for each token, M tokens whose logits are wanted, V vocabulary.
"""

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor

from ostinato.engine.kv import Rows, Zone
from ostinato.engine.layout import LayerWeights, Weights


class Piece(NamedTuple):
    """`length` tokens of one prompt, at positions from `start` on, computed into `row`."""

    row: int
    start: int
    length: int


class Batch(NamedTuple):
    """`tokens` and `positions` of the pass: first one for each zone slot 0 to D - 1, then the pieces' in their order.
    `wanted` are the indices of the tokens whose logits are needed."""

    tokens: list[int]
    positions: list[int]
    decoding: int
    pieces: list[Piece]
    wanted: list[int]


class Pass(NamedTuple):
    """Logits float32 [M, V] and the chosen experts uint16 [N, L, k] (k = 0 for a dense model)."""

    logits_MV: Tensor
    experts_NLk: NDArray[np.uint16]


class _Shared(NamedTuple):
    """What all layers of a pass use."""

    turns: Tensor
    key_index: Tensor | None
    value_index: Tensor | None
    mask: Tensor | None
    length: int
    piece_masks: list[Tensor | None]


def run_pass(weights: Weights, rows: Rows, zone: Zone | None, batch: Batch) -> Pass:
    """Compute a batch; keys and values are written to `rows` and `zone`. `zone` may be None when nothing decodes."""
    with torch.inference_mode():
        device = weights.embed.device
        positions = torch.tensor(batch.positions, device=device)
        shared = _share(weights, zone, batch, positions)
        hidden = weights.embed.index_select(0, torch.tensor(batch.tokens, device=device))
        chosen: list[Tensor] = []
        for number, layer in enumerate(weights.layers):
            attended = _attend(weights, layer, number, hidden, rows, zone, batch, shared)
            hidden = torch.addmm(hidden, attended, layer.out)
            hidden, experts = layer.feed_forward(hidden, _normed(hidden, weights.eps_hidden))
            if experts is not None:
                chosen.append(experts)
        if len(batch.wanted) != len(batch.tokens):
            hidden = hidden[batch.wanted]
        logits = torch.mm(_normed(hidden, weights.eps_hidden), weights.head)
        return Pass(logits, _experts(chosen, len(batch.tokens), len(weights.layers)))


def _normed(x: Tensor, eps: Tensor) -> Tensor:
    """`x` over its root mean square, without the factor that layout.py folded into the next matrix."""
    scale: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True).hypot_(eps)
    return x / scale


def _share(weights: Weights, zone: Zone | None, batch: Batch, positions: Tensor) -> _Shared:
    turns = weights.turns.index_select(0, positions)[:, None]
    masks = [_piece_mask(piece, positions.device) for piece in batch.pieces]
    if not batch.decoding:
        return _Shared(turns, None, None, None, 0, masks)
    assert zone is not None
    length = max(batch.positions[: batch.decoding]) + 1
    own = positions[: batch.decoding]
    return _Shared(turns, zone.key_index(own), zone.value_index(own), zone.mask(own, length), length, masks)


def _piece_mask(piece: Piece, device: torch.device) -> Tensor | None:
    """None where plain causal attention is meant; else float32 [length, start + length]."""
    if piece.start == 0:
        return None
    shape = (piece.length, piece.start + piece.length)
    return torch.full(shape, float("-inf"), device=device).triu_(piece.start + 1)


def _attend(
    weights: Weights,
    layer: LayerWeights,
    number: int,
    hidden_NH: Tensor,
    rows: Rows,
    zone: Zone | None,
    batch: Batch,
    shared: _Shared,
) -> Tensor:
    """The attention's output [N, QC], before the output matrix."""
    config = weights.config
    N, Q, K, C = hidden_NH.shape[0], config.num_heads, config.num_kv_heads, config.head_dim
    mixed = torch.mm(_normed(hidden_NH, weights.eps_hidden), layer.qkv).view(N, Q + 2 * K, C)
    qk = mixed[:, : Q + K]
    qk.div_(torch.linalg.vector_norm(qk, dim=-1, keepdim=True).hypot_(weights.eps_head)).mul_(layer.qk_scale)
    torch.view_as_complex(qk.view(N, Q + K, C // 2, 2)).mul_(shared.turns)
    parts: list[Tensor] = []
    at = batch.decoding
    if at:
        assert zone is not None
        parts.append(_decode(mixed[:at], Q, K, number, zone, shared))
    for piece, mask in zip(batch.pieces, shared.piece_masks, strict=True):
        parts.append(_prefill(mixed[at : at + piece.length], Q, K, number, rows, piece, mask))
        at += piece.length
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _decode(mixed: Tensor, Q: int, K: int, number: int, zone: Zone, shared: _Shared) -> Tensor:
    """One query for each slot against its slot's keys: [D, Q + 2K, C] to [D, QC]."""
    assert shared.key_index is not None and shared.value_index is not None and shared.mask is not None
    D, _, C = mixed.shape
    keys, values = zone.keys[number], zone.values[number]
    keys.view(-1).index_copy_(0, shared.key_index, mixed[:, Q : Q + K].reshape(-1))
    values.view(-1, C).index_copy_(0, shared.value_index, mixed[:, Q + K :].reshape(-1, C))
    keys = keys.view(-1, C, zone.max_len)[: D * K, :, : shared.length]
    values = values.view(-1, zone.max_len, C)[: D * K, : shared.length]
    scores = torch.baddbmm(shared.mask, mixed[:, :Q].reshape(D * K, Q // K, C), keys)
    return torch.bmm(scores.softmax(dim=-1), values).view(D, Q * C)


def _prefill(mixed: Tensor, Q: int, K: int, number: int, rows: Rows, piece: Piece, mask: Tensor | None) -> Tensor:
    """A piece of a prompt against its row: [n, Q + 2K, C] to [n, QC]."""
    end = piece.start + piece.length
    keys, values = rows.keys[number][piece.row], rows.values[number][piece.row]
    keys[:, piece.start : end] = mixed[:, Q : Q + K].transpose(0, 1)
    values[:, piece.start : end] = mixed[:, Q + K :].transpose(0, 1)
    out = F.scaled_dot_product_attention(
        mixed[:, :Q].transpose(0, 1)[None],
        keys[None, :, :end],
        values[None, :, :end],
        attn_mask=mask,
        is_causal=mask is None,
        scale=1.0,
        enable_gqa=Q != K,
    )
    return out[0].transpose(0, 1).reshape(piece.length, -1)


def _experts(chosen: list[Tensor], tokens: int, layers: int) -> NDArray[np.uint16]:
    if not chosen:
        return np.zeros((tokens, layers, 0), np.uint16)
    stacked: NDArray[np.int64] = torch.stack(chosen, dim=1).cpu().numpy()
    return stacked.astype(np.uint16)
