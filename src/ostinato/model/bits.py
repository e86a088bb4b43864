"""Weights as BF16 bit patterns in NumPy, the form that the weights room stores: `uint16` arrays hold BF16 bits,
`float32` arrays hold numbers, names are those of Hugging Face's files."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from ostinato.model.naming import from_hf_state, to_hf_state
from ostinato.model.transformer import Transformer
from ostinato.records import BadInputError, stays_float32

Arrays = dict[str, np.ndarray]


def round_to_bf16(tensor: Tensor) -> Tensor:
    """Float32 numbers that BF16 can hold, rounded to nearest, ties to even. Engine and trainer both compute in float32
    on weights rounded so, and hence agree."""
    return tensor.bfloat16().float()


def state_to_bits(model: Transformer) -> Arrays:
    """All weights as BF16 bits (uint16), rounded to nearest even, under Hugging Face's names; those of
    `stays_float32` as float32."""
    out: Arrays = {}
    for name, tensor in to_hf_state(model.state_dict()).items():
        held = tensor.detach().cpu().contiguous()
        out[name] = held.clone().numpy() if stays_float32(name) else held.bfloat16().view(torch.uint16).numpy()
    return out


def load_bits(model: Transformer, arrays: Mapping[str, np.ndarray]) -> None:
    """Overwrite all weights. Raises `BadInputError` naming a missing or unexpected tensor, a wrong shape or dtype."""
    load_state(model, {name: _tensor(name, array) for name, array in arrays.items()})


def load_state(model: Transformer, hf_state: Mapping[str, Tensor]) -> None:
    """Overwrite all weights from tensors under Hugging Face's names, any floating dtype."""
    hint = "Check that config.json belongs to these weights, or fetch the model again."
    state = from_hf_state(model.config, hf_state)
    own = model.state_dict()
    for name in own:
        if name not in state:
            raise BadInputError(f"The weights lack the tensor {name}.", hint=hint)
    for name, tensor in state.items():
        if name not in own:
            raise BadInputError(f"The weights hold an unexpected tensor {name}.", hint=hint)
        if own[name].shape != tensor.shape:
            raise BadInputError(
                f"The tensor {name} has the shape {tuple(tensor.shape)}, expected {tuple(own[name].shape)}.", hint=hint
            )
    with torch.no_grad():
        for name, tensor in state.items():
            own[name].copy_(tensor)


def _tensor(name: str, array: np.ndarray) -> Tensor:
    if array.dtype == np.uint16:
        return torch.from_numpy(np.array(array)).view(torch.bfloat16)
    if array.dtype == np.float32:
        return torch.from_numpy(np.array(array))
    raise BadInputError(
        f"The array {name} has the dtype {array.dtype}.", hint="Give uint16 (BF16 bits) or float32 arrays."
    )
