"""Hugging Face model folders: safetensors read and written by hand, since NumPy has no BF16.

The format (github.com/huggingface/safetensors): 8 bytes little-endian header length, a JSON header of
`name -> {dtype, shape, data_offsets}`, then the raw little-endian bytes.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ostinato.records import BadInputError, ConflictError, MissingError, stays_float32
from ostinato.weights.content import Arrays, bits, name_of_dtype
from ostinato.weights.files import write_atomic

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_WEIGHT_SUFFIXES = (".safetensors", ".safetensors.index.json", ".bin", ".pt", ".pth", ".gguf")
_READ_DTYPES: dict[str, np.dtype[Any]] = {"BF16": np.dtype("<u2"), "F16": np.dtype("<f2"), "F32": np.dtype("<f4")}


def round_to_bf16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Bit patterns of `values` rounded to BF16, to nearest and ties to even; a NaN stays a NaN."""
    word = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (word + (0x7FFF + ((word >> 16) & 1))) >> 16
    quiet = (word >> 16) | 0x40
    return np.where(np.isnan(values), quiet, rounded).astype(np.uint16)


def read_folder(folder: Path) -> tuple[Arrays, dict[str, bytes], int]:
    """Tensors as BF16 bits (those of `stays_float32` as float32), the frame (every other plain file), and how many
    tensors were rounded from F32 or F16.

    Raises `MissingError` when the folder or a shard is not there, `BadInputError` when a file is torn or holds another
    type than BF16, F16 and F32."""
    if not folder.is_dir():
        raise MissingError(f"There is no model folder {folder}.", hint="Name a folder in Hugging Face layout.")
    arrays: Arrays = {}
    rounded = 0
    for path in _shards(folder):
        for name, array in _read_safetensors(path).items():
            if name in arrays:
                raise BadInputError(f"Tensor {name} stands in two files of {folder}.", hint="Save the model again.")
            if stays_float32(name):
                array = _exact(array)
            elif array.dtype != np.uint16:
                array, rounded = round_to_bf16(array.astype(np.float32)).reshape(array.shape), rounded + 1
            arrays[name] = array
    frame = {
        path.name: path.read_bytes()
        for path in sorted(folder.iterdir())
        if path.is_file() and not path.name.startswith(".") and not path.name.endswith(_WEIGHT_SUFFIXES)
    }
    return arrays, frame, rounded


def _exact(array: NDArray[Any]) -> NDArray[np.float32]:
    """BF16 bits, F16 or F32 as F32, which holds all of them."""
    if array.dtype == np.uint16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32)


def _shards(folder: Path) -> list[Path]:
    index = folder / INDEX
    if not index.exists():
        if not (folder / SINGLE).exists():
            raise MissingError(
                f"{folder} holds neither {SINGLE} nor {INDEX}.",
                hint="Save the model as safetensors: `model.save_pretrained(folder)`.",
            )
        return [folder / SINGLE]
    try:
        names = sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise BadInputError(f"{index} is not an index of shards ({error}).", hint="Download it again.") from error
    for name in names:
        if not (folder / name).is_file():
            raise MissingError(f"{index} names the shard {name}, which is missing.", hint="Download it again.")
    return [folder / name for name in names]


def _read_safetensors(path: Path) -> Arrays:
    data = np.fromfile(path, np.uint8)
    try:
        length = int.from_bytes(data[:8].tobytes(), "little")
        header: dict[str, Any] = json.loads(data[8 : 8 + length].tobytes())
        header.pop("__metadata__", None)
        body = data[8 + length :]
        return {name: _tensor(name, entry, body) for name, entry in header.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, BadInputError):
            raise
        raise BadInputError(
            f"{path} is not a whole safetensors file ({error}).", hint="Download or save it again."
        ) from error


def _tensor(name: str, entry: dict[str, Any], body: NDArray[np.uint8]) -> NDArray[Any]:
    if entry["dtype"] not in _READ_DTYPES:
        raise BadInputError(
            f"Tensor {name} has type {entry['dtype']}; BF16, F16 and F32 can be read.",
            hint="Save the model in one of those: `model.to(torch.bfloat16).save_pretrained(folder)`.",
        )
    start, end = entry["data_offsets"]
    dtype, shape = _READ_DTYPES[entry["dtype"]], tuple(entry["shape"])
    if not 0 <= start <= end <= body.size or end - start != int(np.prod(shape, dtype=np.int64)) * dtype.itemsize:
        raise ValueError(f"tensor {name} of shape {shape} lies at bytes {start} to {end} of {body.size}")
    tensor: NDArray[Any] = body[start:end].copy().view(dtype).reshape(shape)
    return tensor


def write_folder(folder: Path, arrays: Arrays, frame: dict[str, bytes]) -> None:
    """Write the model as one safetensors file with its frame; the safetensors file comes last, so that a folder with
    one is complete. Raises `ConflictError` when the folder holds a model already."""
    if any((folder / name).exists() for name in (SINGLE, INDEX)):
        raise ConflictError(f"The folder {folder} holds a model already.", hint="Name a new folder.")
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in frame.items():
        write_atomic(folder / name, content)
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at, parts = 0, []
    for name in sorted(arrays):
        raw = bits(arrays[name]).tobytes()
        dtype = name_of_dtype(name, arrays[name])
        header[name] = {"dtype": dtype, "shape": arrays[name].shape, "data_offsets": [at, at + len(raw)]}
        at += len(raw)
        parts.append(raw)
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    write_atomic(folder / SINGLE, b"".join([len(head).to_bytes(8, "little"), head, *parts]))
