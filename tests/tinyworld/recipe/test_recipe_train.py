"""The recipe as a whole, for a moment: it writes a folder that everyone can read, and goes on where it was."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from ostinato.model import load_model
from ostinato.render import TinyFormat, format_for
from ostinato.tinyworld.recipe.data import DataConfig
from ostinato.tinyworld.recipe.train import MODEL, SeedConfig, train_seed

TINY = replace(MODEL, hidden_size=32, num_layers=1, head_dim=16, num_heads=2, num_kv_heads=1, moe_intermediate_size=16)


def test_the_recipe_writes_a_whole_model_folder(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Weights, configuration, tokenizer, log and sources; a second run over it has nothing left to train."""
    config = SeedConfig(
        tmp_path,
        pretraining_steps=2,
        steps=4,
        eval_episodes=2,
        model=TINY,
        data=DataConfig(demonstrations=3, drills=1, windows=2, window=32, chunk=2),
    )
    report = train_seed(config)
    assert report.episodes == 6
    assert load_model(tmp_path).config == TINY
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert isinstance(format_for(files), TinyFormat)
    assert b"Python Software Foundation" in files["sources.txt"]
    assert b"steps" in files["RECIPE.md"]
    lines = [json.loads(line) for line in files["log.jsonl"].splitlines()]
    assert {"pretraining", "demonstrations"} <= {line.get("phase") for line in lines}
    assert sum("evaluation" in line for line in lines) == 3
    assert train_seed(config) == report
    assert (tmp_path / "model.safetensors").read_bytes() == files["model.safetensors"]
    capfd.readouterr()
