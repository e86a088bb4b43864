"""Where keys and values lie.

`Rows` holds one sequence per row, running or kept for re-use: prompts are computed straight into their row. `Zone`
holds the sequences that decode now, without gaps, so that one batched product reads them where they are; keys stand
transposed there, which makes scores about twice as fast. A sequence is copied from its row into the zone when its
prompt is done, and what it drew is copied back when it ends.

Shapes: R rows, A zone slots, K key heads, T positions, C size of a key, U of a value, L layers with experts,
k experts for each token.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ostinato.engine.projections import head_sizes
from ostinato.model import ModelConfig


def row_bytes(config: ModelConfig, max_len: int) -> int:
    """Bytes of the keys and values of one sequence of `max_len` positions."""
    heads, key, value = head_sizes(config)
    return max_len * config.num_layers * heads * (key + value) * 4


class Rows:
    """Keys float32 [R, K, T, C] and values [R, K, T, U] for each layer, and the expert choices uint16 [R, T, L, k]."""

    def __init__(self, config: ModelConfig, rows: int, max_len: int, device: str = "cpu") -> None:
        heads, key, value = head_sizes(config)
        self.keys = [_zeros((rows, heads, max_len, key), device) for _ in range(config.num_layers)]
        self.values = [_zeros((rows, heads, max_len, value), device) for _ in range(config.num_layers)]
        self.experts: NDArray[np.uint16] = np.zeros(
            (rows, max_len, config.num_moe_layers, config.num_experts_per_tok), np.uint16
        )

    def copy(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` positions of a row into another."""
        for tensor in (*self.keys, *self.values):
            tensor[target, :, :length] = tensor[source, :, :length]
        self.experts[target, :length] = self.experts[source, :length]


class Zone:
    """Keys float32 [A, K, C, T] and values [A, K, T, U] for each layer, and the index arithmetic to write into them."""

    def __init__(self, config: ModelConfig, slots: int, max_len: int, device: str = "cpu") -> None:
        (K, C, U), L = head_sizes(config), config.num_layers
        self.slots, self.kv_heads, self.max_len = slots, K, max_len
        self.keys = [_zeros((slots, K, C, max_len), device) for _ in range(L)]
        self.values = [_zeros((slots, K, max_len, U), device) for _ in range(L)]
        self._key_base = (torch.arange(slots * K * C, device=device) * max_len).view(slots, K * C)
        self._value_base = (torch.arange(slots * K, device=device) * max_len).view(slots, K)
        self._along = torch.arange(max_len, device=device)

    def fill(self, slot: int, rows: Rows, row: int, length: int) -> None:
        """Bring the first `length` positions of a row in."""
        for layer in range(len(self.keys)):
            self.keys[layer][slot, :, :, :length] = rows.keys[layer][row, :, :length].transpose(1, 2)
            self.values[layer][slot, :, :length] = rows.values[layer][row, :, :length]

    def spill(self, slot: int, rows: Rows, row: int, start: int, end: int) -> None:
        """Bring the positions from `start` to `end` back into a row."""
        for layer in range(len(self.keys)):
            rows.keys[layer][row, :, start:end] = self.keys[layer][slot, :, :, start:end].transpose(1, 2)
            rows.values[layer][row, :, start:end] = self.values[layer][slot, :, start:end]

    def move(self, source: int, target: int, length: int) -> None:
        """Close a gap: copy the first `length` positions of one slot over another."""
        for layer in range(len(self.keys)):
            self.keys[layer][target, :, :, :length] = self.keys[layer][source, :, :, :length]
            self.values[layer][target, :, :length] = self.values[layer][source, :, :length]

    def key_index(self, positions_D: Tensor) -> Tensor:
        """Where the flat keys of one layer take a new position of slots 0 to D - 1: int64 [D x K x C]."""
        return (self._key_base[: len(positions_D)] + positions_D[:, None]).view(-1)

    def value_index(self, positions_D: Tensor) -> Tensor:
        """The same for values seen as [A x K x T, U]: int64 [D x K]."""
        return (self._value_base[: len(positions_D)] + positions_D[:, None]).view(-1)

    def mask(self, positions_D: Tensor, length: int) -> Tensor:
        """Float32 [D x K, 1, length]: 0 up to each slot's own position, minus infinity after it."""
        hidden = self._along[:length] > positions_D[:, None]
        mask = torch.zeros(hidden.shape, device=hidden.device).masked_fill_(hidden, float("-inf"))
        return mask.repeat_interleave(self.kv_heads, 0)[:, None]


def _zeros(shape: tuple[int, ...], device: str) -> Tensor:
    if device == "cpu":
        # NumPy asks the system for zeroed pages, which take no memory before they are written; torch writes them all.
        return torch.from_numpy(np.zeros(shape, np.float32))
    return torch.zeros(shape, device=device)
