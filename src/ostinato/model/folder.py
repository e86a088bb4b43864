"""Hugging Face folders: `config.json` beside one `model.safetensors`, or shards with an index."""

import json
import struct
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ostinato.model.bits import load_state
from ostinato.model.config import ModelConfig
from ostinato.model.hf_config import config_from_hf, config_to_hf
from ostinato.model.naming import to_hf_state
from ostinato.model.transformer import Transformer
from ostinato.records import BadInputError, MissingError, stays_float32

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
_HINT = "Copy or download the whole model folder again."


def load_folder(path: Path) -> tuple[ModelConfig, dict[str, Tensor]]:
    """The configuration and the tensors under their names in the files, in their own dtypes.

    Raises `MissingError` for a missing file, `BadInputError` for a torn or unsupported one."""
    if not path.is_dir():
        raise MissingError(f"There is no model folder {path}.", hint="Give a folder with config.json in it.")
    config = config_from_hf(_json(path / "config.json"))
    if not (path / INDEX).exists():
        return config, _tensors(path / WEIGHTS)
    index = _json(path / INDEX).get("weight_map")
    if not isinstance(index, dict):
        raise BadInputError(f"{path / INDEX} has no weight_map.", hint=_HINT)
    state: dict[str, Tensor] = {}
    for shard in sorted(set(index.values())):
        state |= _tensors(path / shard)
    for name, shard in index.items():
        if name not in state:
            raise BadInputError(f"{path / shard} lacks the tensor {name} that {INDEX} promises.", hint=_HINT)
    return config, state


def load_model(path: Path) -> Transformer:
    """A `Transformer` in float32 with the folder's weights. Errors as in `load_folder` and `load_bits`."""
    config, state = load_folder(path)
    model = Transformer(config)
    load_state(model, state)
    return model


def save_folder(path: Path, model: Transformer, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write `config.json` and `model.safetensors`, the weights rounded to `dtype`. Each file is replaced whole, so a
    reader sees the old one or the new one."""
    path.mkdir(parents=True, exist_ok=True)
    state = {
        name: tensor.detach().to("cpu", torch.float32 if stays_float32(name) else dtype).contiguous()
        for name, tensor in to_hf_state(model.state_dict()).items()
    }
    text = json.dumps(config_to_hf(model.config) | {"dtype": str(dtype).removeprefix("torch.")}, indent=2)
    part = path / "config.json.part"
    part.write_text(text + "\n")
    part.replace(path / "config.json")
    part = path / f"{WEIGHTS}.part"
    save_file(state, part, metadata={"format": "pt"})
    part.replace(path / WEIGHTS)


def _json(path: Path) -> dict[str, object]:
    if not path.exists():
        raise MissingError(f"{path} is missing.", hint=_HINT)
    try:
        value = json.loads(path.read_bytes())
    except ValueError as error:
        raise BadInputError(f"{path} is not JSON: {error}.", hint=_HINT) from error
    if not isinstance(value, dict):
        raise BadInputError(f"{path} is not a JSON object.", hint=_HINT)
    return value


def _tensors(path: Path) -> dict[str, Tensor]:
    if not path.exists():
        raise MissingError(f"{path} is missing.", hint=_HINT)
    try:
        return load_file(path)
    except (SafetensorError, struct.error, ValueError) as error:
        raise BadInputError(f"{path} is torn or not a safetensors file: {error}.", hint=_HINT) from error
