# ruff: noqa: N815 - shape suffixes name the fields too
"""One pass of the model over a mixed batch: one token of each sequence that decodes, and pieces of prompts.

All tokens of a pass are packed into one [N, H] matrix, whatever sequence they belong to; only attention looks at
sequences. At the sizes of the seed model the number of operations decides, not the arithmetic, so each is spent with
care (see layout.py). The shapes are those of Qwen3 (arXiv:2505.09388), Qwen3-MoE and DeepSeek-V3 (arXiv:2412.19437).

Shapes: N tokens of a pass, D decoding tokens (the first D of N), H hidden, Q query heads, K key heads, C size of a key,
U of a value, T positions, L layers with experts, k experts for each token, M tokens whose logits are wanted,
V vocabulary.
"""

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor

from ostinato.engine.kv import Rows, Zone
from ostinato.engine.layout import LayerWeights, Weights
from ostinato.engine.projections import Heads, normed


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
    """Logits float32 [M, V] and the chosen experts uint16 [N, L, k] (L = k = 0 for a dense model)."""

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
            hidden, experts = layer.feed_forward(hidden, normed(hidden, weights.eps_hidden))
            if experts is not None:
                chosen.append(experts)
        if len(batch.wanted) != len(batch.tokens):
            hidden = hidden[batch.wanted]
        logits = torch.mm(normed(hidden, weights.eps_hidden), weights.head)
        return Pass(logits, _experts(chosen, len(batch.tokens)))


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
    """The attention's output [N, QU], before the output matrix."""
    heads = layer.projection(normed(hidden_NH, weights.eps_hidden), shared.turns)
    parts: list[Tensor] = []
    at = batch.decoding
    if at:
        assert zone is not None
        first = Heads(*(part[:at] for part in heads)) if batch.pieces else heads
        parts.append(_decode(first, number, zone, shared))
    for piece, mask in zip(batch.pieces, shared.piece_masks, strict=True):
        inside = Heads(*(part[at : at + piece.length] for part in heads))
        parts.append(_prefill(inside, number, rows, piece, mask))
        at += piece.length
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _decode(heads: Heads, number: int, zone: Zone, shared: _Shared) -> Tensor:
    """One query for each slot against its slot's keys: to [D, QU]."""
    assert shared.key_index is not None and shared.value_index is not None and shared.mask is not None
    D, Q, C = heads.queries.shape
    K, U = heads.values.shape[1:]
    keys, values = zone.keys[number], zone.values[number]
    keys.view(-1).index_copy_(0, shared.key_index, heads.keys.reshape(-1))
    values.view(-1, U).index_copy_(0, shared.value_index, heads.values.reshape(-1, U))
    keys = keys.view(-1, C, zone.max_len)[: D * K, :, : shared.length]
    values = values.view(-1, zone.max_len, U)[: D * K, : shared.length]
    scores = torch.baddbmm(shared.mask, heads.queries.reshape(D * K, Q // K, C), keys)
    return torch.bmm(scores.softmax(dim=-1), values).view(D, Q * U)


def _prefill(heads: Heads, number: int, rows: Rows, piece: Piece, mask: Tensor | None) -> Tensor:
    """A piece of a prompt against its row: to [n, QU]."""
    end = piece.start + piece.length
    keys, values = rows.keys[number][piece.row], rows.values[number][piece.row]
    keys[:, piece.start : end] = heads.keys.transpose(0, 1)
    values[:, piece.start : end] = heads.values.transpose(0, 1)
    out = F.scaled_dot_product_attention(
        heads.queries.transpose(0, 1)[None],
        keys[None, :, :end],
        values[None, :, :end],
        attn_mask=mask,
        is_causal=mask is None,
        scale=1.0,
        enable_gqa=heads.queries.shape[1] != heads.keys.shape[1],
    )
    return out[0].transpose(0, 1).reshape(piece.length, -1)


def _experts(chosen: list[Tensor], tokens: int) -> NDArray[np.uint16]:
    if not chosen:
        return np.zeros((tokens, 0, 0), np.uint16)
    stacked: NDArray[np.int64] = torch.stack(chosen, dim=1).cpu().numpy()
    return stacked.astype(np.uint16)
