"""Hugging Face folders in and out."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from ostinato.records import BadInputError, ConflictError, MissingError
from ostinato.weights import WeightStore
from ostinato.weights.folders import round_to_bf16


def tensors() -> dict[str, torch.Tensor]:
    """One tensor of each type that can be read."""
    generator = torch.Generator().manual_seed(3)
    values = torch.randn(6, 5, generator=generator)
    return {"a": values.bfloat16(), "b": values, "c": values.half()}


def test_rounding_is_that_of_torch() -> None:
    """Rounding to BF16 agrees with torch on ordinary values, ties, infinities and NaN."""
    words = np.concatenate([np.random.default_rng(0).integers(0, 2**32, 20_000, np.uint32), np.arange(0, 2**32, 32768)])
    values = words.astype(np.uint32).view(np.float32)
    wanted = torch.from_numpy(values).bfloat16()
    got = torch.from_numpy(round_to_bf16(values)).view(torch.bfloat16)
    assert torch.equal(torch.nan_to_num(got, 1.5), torch.nan_to_num(wanted, 1.5))
    assert torch.equal(got.isnan(), wanted.isnan())


@pytest.mark.parametrize("sharded", [False, True])
def test_a_folder_goes_in_and_out(tmp_path: Path, sharded: bool) -> None:
    """A folder, sharded or not, comes back as torch would round it, with its other files; again it is the same."""
    source, target = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    if sharded:
        parts = {f"model-{i}-of-3.safetensors": {name: t} for i, (name, t) in enumerate(tensors().items())}
        for file, part in parts.items():
            save_file(part, source / file)
        index = {"weight_map": {name: file for file, part in parts.items() for name in part}}
        (source / "model.safetensors.index.json").write_text(json.dumps(index))
    else:
        save_file(tensors(), source / "model.safetensors", metadata={"format": "pt"})
    (source / "config.json").write_text("{}")
    store = WeightStore(tmp_path / "weights")
    version = store.import_folder(source)
    assert version.kind == "anchor" and version.meta["rounded_tensors"] == 2
    store.export_folder(version.version, target)
    loaded = load_file(target / "model.safetensors")
    assert all(torch.equal(loaded[name], tensor.bfloat16()) for name, tensor in tensors().items())
    assert sorted(path.name for path in target.iterdir()) == ["config.json", "model.safetensors"]
    assert store.import_folder(target) == version
    with pytest.raises(ConflictError, match="holds a model already"):
        store.export_folder(version.version, target)


def test_bad_folders_are_refused(tmp_path: Path) -> None:
    """A missing folder, file or shard, a cut file and a strange type each get an error that names them."""
    store = WeightStore(tmp_path / "weights")
    with pytest.raises(MissingError, match="There is no model folder"):
        store.import_folder(tmp_path / "nowhere")
    with pytest.raises(MissingError, match=r"neither model\.safetensors"):
        store.import_folder(tmp_path)
    file = tmp_path / "model.safetensors"
    save_file(tensors(), file)
    whole = file.read_bytes()
    for length in (0, 4, 50, len(whole) - 1):
        file.write_bytes(whole[:length])
        with pytest.raises(BadInputError, match="not a whole safetensors file"):
            store.import_folder(tmp_path)
    save_file({"count": torch.arange(3)}, file)
    with pytest.raises(BadInputError, match="Tensor count has type I64"):
        store.import_folder(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "gone.safetensors"}}')
    with pytest.raises(MissingError, match=r"shard gone\.safetensors, which is missing"):
        store.import_folder(tmp_path)
