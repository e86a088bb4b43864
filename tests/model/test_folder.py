"""Folders and bits: round trips, and errors that name what is wrong."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from tests.tiny_model import DEEPSEEK

from ostinato.model import (
    Latent,
    ModelConfig,
    Transformer,
    Yarn,
    config_from_hf,
    config_to_hf,
    load_bits,
    load_folder,
    load_model,
    round_to_bf16,
    save_folder,
    state_to_bits,
)
from ostinato.records import BadInputError, MissingError

CONFIG = ModelConfig("qwen3_moe", 61, 32, 2, 4, 2, 8, 48, 4, 2, 24)


def test_configuration_round_trip() -> None:
    """What we write as config.json we read back equal, dense and mixture."""
    dense = ModelConfig("qwen3", 40, 24, 3, 3, 1, 16, 20, rope_theta=1e6, tie_word_embeddings=False)
    stretched = replace(dense, yarn=Yarn(4.0, 256, truncate=False))
    direct = replace(DEEPSEEK, latent=Latent(0, 12, 6, 4, 8, rope_interleave=False))
    for config in (CONFIG, dense, stretched, DEEPSEEK, direct):
        assert config_from_hf(json.loads(json.dumps(config_to_hf(config)))) == config


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model_type", "llama"),
        ("hidden_act", "gelu"),
        ("attention_bias", True),
        ("use_sliding_window", True),
        ("decoder_sparse_step", 2),
        ("mlp_only_layers", [0]),
        ("rope_parameters", {"rope_type": "yarn", "factor": 4.0}),
        ("rope_parameters", {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, "warp": 9}),
        ("rope_parameters", {"rope_type": "linear", "factor": 2.0}),
        ("layer_types", ["sliding_attention", "full_attention"]),
        ("quantization_config", {"bits": 4}),
        ("num_key_value_heads", 3),
        ("vocab_size", None),
        ("num_experts_per_tok", 9),
    ],
)
def test_unsupported_configuration_is_refused_by_field(field: str, value: object) -> None:
    """Each field that we cannot honour is named."""
    with pytest.raises(BadInputError, match=field) as caught:
        config_from_hf(config_to_hf(CONFIG) | {field: value})
    assert caught.value.param == field
    assert caught.value.hint


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("scoring_func", "softmax"),
        ("topk_method", "greedy"),
        ("moe_layer_freq", 2),
        ("num_key_value_heads", 2),
        ("first_k_dense_replace", 3),
        ("n_group", 3),
        ("topk_group", 5),
        ("num_experts_per_tok", 5),
        ("kv_lora_rank", 0),
        ("qk_rope_head_dim", 3),
    ],
)
def test_unsupported_deepseek_is_refused_by_field(field: str, value: object) -> None:
    """The same for what only this family has."""
    with pytest.raises(BadInputError, match=field) as caught:
        config_from_hf(config_to_hf(DEEPSEEK) | {field: value})
    assert caught.value.param == field


def test_the_bias_of_a_router_stays_exact(tmp_path: Path) -> None:
    """Through a folder, and through bits."""
    model = Transformer(DEEPSEEK, seed=5)
    name = "model.layers.1.mlp.gate.e_score_correction_bias"
    bias = torch.linspace(0.1, 0.2, 8)
    model.state_dict()[name].copy_(bias)
    save_folder(tmp_path, model)
    assert torch.equal(load_model(tmp_path).state_dict()[name], bias)
    bits = state_to_bits(model)
    assert bits[name].dtype == np.float32
    assert bits["model.layers.1.mlp.gate.weight"].dtype == np.uint16
    other = Transformer(DEEPSEEK, seed=6)
    load_bits(other, bits)
    assert torch.equal(other.state_dict()[name], bias)


def test_layers_for_multi_token_prediction_are_left_with_a_word(caplog: pytest.LogCaptureFixture) -> None:
    """DeepSeek-V3's files hold one more layer than its configuration counts; others must not."""
    bits = state_to_bits(Transformer(DEEPSEEK, seed=5))
    more = bits | {"model.layers.3.eh_proj.weight": bits["model.norm.weight"]}
    load_bits(Transformer(DEEPSEEK), more)
    assert "1 tensors of layers after the 3" in caplog.text
    own = state_to_bits(Transformer(CONFIG))
    with pytest.raises(BadInputError, match="unexpected tensor"):
        load_bits(Transformer(CONFIG), own | {"model.layers.2.eh_proj.weight": own["model.norm.weight"]})


def test_folder_round_trip_in_bf16(tmp_path: Path) -> None:
    """A saved folder loads as the same weights rounded to BF16."""
    model = Transformer(CONFIG, seed=5)
    save_folder(tmp_path, model)
    loaded = load_model(tmp_path)
    for name, parameter in model.named_parameters():
        assert torch.equal(loaded.get_parameter(name), round_to_bf16(parameter.detach()))


def test_bits_round_trip() -> None:
    """Bits carry Hugging Face's names and round to nearest even; loading them gives the rounded weights."""
    model = Transformer(CONFIG, seed=5)
    with torch.no_grad():
        model.model.norm.weight[0] = 1.00390625  # halfway between two BF16 numbers: ties go to the even one
    bits = state_to_bits(model)
    assert bits["model.layers.1.mlp.experts.3.up_proj.weight"].shape == (24, 32)
    assert all(array.dtype == np.uint16 for array in bits.values())
    assert "lm_head.weight" not in bits
    other = Transformer(CONFIG, seed=6)
    load_bits(other, bits)
    assert other.model.norm.weight[0] == 1.0
    for name, parameter in model.named_parameters():
        assert torch.equal(other.get_parameter(name), round_to_bf16(parameter.detach()))
    load_bits(other, bits | {"model.norm.weight": np.full(32, 0.3, dtype=np.float32)})
    assert torch.equal(other.model.norm.weight, torch.full((32,), 0.3))


def test_wrong_tensors_are_named() -> None:
    """Missing, unexpected, misshapen, mistyped, an expert too few and one too many."""
    model = Transformer(CONFIG)
    bits = state_to_bits(model)
    expert = "model.layers.0.mlp.experts.2.down_proj.weight"
    cases = {
        "lack the tensor model.norm.weight": {k: v for k, v in bits.items() if k != "model.norm.weight"},
        "Expert 2 of model.layers.0.mlp.experts.down_proj": {k: v for k, v in bits.items() if k != expert},
        "holds expert 4": bits | {expert.replace(".2.", ".4."): bits[expert]},
        "unexpected tensor model.extra": bits | {"model.extra": bits["model.norm.weight"]},
        "model.norm.weight has the shape": bits | {"model.norm.weight": np.zeros(3, dtype=np.uint16)},
        "dtype float64": bits | {"model.norm.weight": np.zeros(32)},
        "lm_head.weight differs": bits | {"lm_head.weight": np.zeros((61, 32), dtype=np.uint16)},
    }
    for message, arrays in cases.items():
        with pytest.raises(BadInputError, match=message):
            load_bits(model, arrays)


def test_torn_and_missing_files_are_named(tmp_path: Path) -> None:
    """Every way in which a folder can be incomplete says which file, and what to do."""
    with pytest.raises(MissingError, match="nowhere"):
        load_folder(tmp_path / "nowhere")
    with pytest.raises(MissingError, match=r"config\.json"):
        load_folder(tmp_path)
    save_folder(tmp_path, Transformer(CONFIG))
    weights = tmp_path / "model.safetensors"
    whole = weights.read_bytes()
    for cut in (0, 5, 100, len(whole) - 1):
        weights.write_bytes(whole[:cut])
        with pytest.raises(BadInputError, match=r"model\.safetensors is torn"):
            load_folder(tmp_path)
    weights.unlink()
    with pytest.raises(MissingError, match=r"model\.safetensors"):
        load_folder(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"model.norm.weight": "part-1.safetensors"}}))
    with pytest.raises(MissingError, match=r"part-1\.safetensors"):
        load_folder(tmp_path)
    (tmp_path / "part-1.safetensors").write_bytes(whole)
    index.write_text(json.dumps({"weight_map": {"gone": "part-1.safetensors"}}))
    with pytest.raises(BadInputError, match="lacks the tensor gone"):
        load_folder(tmp_path)
    index.write_text("{}")
    with pytest.raises(BadInputError, match="weight_map"):
        load_folder(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(BadInputError, match="not JSON"):
        load_folder(tmp_path)
