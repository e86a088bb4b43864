"""What a version's name stands for: a SHA-256 over the frame and over every tensor's name, type, shape and bits."""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ostinato.records import BadInputError

Arrays = dict[str, NDArray[Any]]
"""Tensors by Hugging Face name: uint16 arrays hold BF16 bit patterns, float32 arrays hold F32."""

DTYPE_OF: dict[str, np.dtype[Any]] = {"BF16": np.dtype("<u2"), "F32": np.dtype("<f4")}
BITS_OF: dict[str, np.dtype[Any]] = {"BF16": np.dtype("<u2"), "F32": np.dtype("<u4")}


def name_of_dtype(name: str, array: NDArray[Any]) -> str:
    """`BF16` or `F32`. Raises `BadInputError` naming the tensor when it is neither uint16 nor float32."""
    if array.dtype == np.uint16:
        return "BF16"
    if array.dtype == np.float32:
        return "F32"
    raise BadInputError(
        f"Tensor {name} has type {array.dtype}, but weights are uint16 (BF16 bit patterns) or float32.",
        hint="Convert it first: `ostinato.model.state_to_bits` rounds a model to BF16 bits.",
    )


def bits(array: NDArray[Any]) -> NDArray[Any]:
    """The tensor as a flat little-endian array of unsigned integers (no copy where it is contiguous already)."""
    kind = BITS_OF["BF16" if array.dtype == np.uint16 else "F32"]
    flat: NDArray[Any] = np.ascontiguousarray(array).reshape(-1).view(kind)
    return flat


def content_digest(arrays: Mapping[str, NDArray[Any]], frame: str) -> str:
    """SHA-256, in hex, of the frame's hash and of all tensors in the order of their names: the same for the same
    content however it is stored."""
    digest = hashlib.sha256(f"ostinato-weights-1\x00{frame}\x00".encode())
    for name in sorted(arrays):
        array = arrays[name]
        shape = ",".join(str(size) for size in array.shape)
        digest.update(f"{name}\x00{name_of_dtype(name, array)}\x00{shape}\x00".encode())
        digest.update(bits(array).view(np.uint8).data)
    return digest.hexdigest()


def version_name(digest: str) -> str:
    """`v-` and the first 16 hex digits."""
    return f"v-{digest[:16]}"
