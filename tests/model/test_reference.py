"""The transformer and its folders against Hugging Face's implementation, the oracle."""

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from ostinato.model import (
    Groups,
    Latent,
    ModelConfig,
    Transformer,
    Yarn,
    config_to_hf,
    load_balance_loss,
    load_model,
    save_folder,
)
from ostinato.model.bits import load_state


def deepseek(layers: int, latent: Latent, groups: Groups, **others: Any) -> ModelConfig:
    """Eight experts, two for each token, four heads."""
    sizes: dict[str, Any] = {"num_shared_experts": 1, "tie_word_embeddings": False, "latent": latent, "groups": groups}
    turned = latent.qk_rope_head_dim
    return ModelConfig("deepseek_v3", 61, 32, layers, 4, 4, turned, 48, 8, 2, 24, **sizes | others)


CASES = [
    ModelConfig("qwen3", 61, 32, 2, 4, 2, 8, 48),
    ModelConfig("qwen3", 40, 24, 3, 3, 1, 16, 20, rope_theta=1e6, tie_word_embeddings=False),
    ModelConfig("qwen3_moe", 61, 32, 2, 4, 2, 8, 48, 4, 2, 24),
    ModelConfig("qwen3_moe", 50, 16, 3, 2, 2, 10, 48, 6, 3, 12, norm_topk_prob=False, tie_word_embeddings=False),
    ModelConfig("qwen3_moe", 33, 40, 1, 5, 1, 8, 48, 8, 1, 16, rope_theta=500.0, rms_norm_eps=1e-5),
    ModelConfig("qwen3", 61, 32, 2, 4, 2, 32, 48, rope_theta=50.0, yarn=Yarn(4.0, 8)),
    ModelConfig("qwen3_moe", 61, 32, 2, 4, 2, 32, 48, 4, 2, 24, yarn=Yarn(3.0, 32, 1.3, 16.0, 2.0, truncate=False)),
    deepseek(3, Latent(10, 12, 6, 4, 8), Groups(4, 2, 2.5), num_dense_layers=1, num_shared_experts=1),
    deepseek(2, Latent(0, 16, 8, 6, 6, rope_interleave=False), Groups(1, 1, 1.0), norm_topk_prob=False),
    deepseek(
        2,
        Latent(8, 20, 4, 16, 10),
        Groups(2, 1, 2.0),
        num_shared_experts=2,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        yarn=Yarn(40.0, 8, mscale=0.7, mscale_all_dim=1.0),
    ),
]


def transformers_module() -> Any:
    """The library; its own deprecation warnings on import are not ours to fix."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import transformers

        return transformers


def hf_model(config: ModelConfig, seed: int = 0) -> Any:
    """Their model of the same shape, with larger weights than its own initialisation, so that errors show."""
    library = transformers_module()
    raw: dict[str, Any] = config_to_hf(config)
    if config.is_moe:
        raw["experts_implementation"] = "eager"
    name = {"qwen3": "Qwen3", "qwen3_moe": "Qwen3Moe", "deepseek_v3": "DeepseekV3"}[config.family]
    built = getattr(library, f"{name}Config")(**raw)
    model = getattr(library, f"{name}ForCausalLM")(built).float().eval()
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, 0.15, generator=rng)
            else:
                parameter.uniform_(0.5, 1.5, generator=rng)
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.uniform_(-0.3, 0.3, generator=rng)
    return model


def ours_of(model: Any, config: ModelConfig) -> Transformer:
    """Our transformer with the reference's weights; the library keeps experts fused in memory."""
    state: dict[str, torch.Tensor] = {}
    for name, tensor in model.state_dict().items():
        if name.endswith("experts.gate_up_proj"):
            for number, fused in enumerate(tensor):
                gate, up = fused.chunk(2)
                state[name.replace("gate_up_proj", f"{number}.gate_proj.weight")] = gate
                state[name.replace("gate_up_proj", f"{number}.up_proj.weight")] = up
        elif name.endswith("experts.down_proj"):
            for number, part in enumerate(tensor):
                state[name.replace("down_proj", f"{number}.down_proj.weight")] = part
        else:
            state[name] = tensor
    ours = Transformer(config)
    load_state(ours, state)
    return ours


def some_ids(config: ModelConfig) -> torch.Tensor:
    """Random ids, the same each time."""
    return torch.randint(config.vocab_size, (2, 17), generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("config", CASES)
@pytest.mark.parametrize("dense", [False, True])
def test_logits_and_gradients_are_those_of_transformers(config: ModelConfig, dense: bool) -> None:
    """Same weights, same ids: logits within 1e-5 and gradients within 1e-5 of the reference."""
    reference = hf_model(config)
    ours = ours_of(reference, config)
    ours.use_dense_experts(dense)
    ids = some_ids(config)
    expected, logits = reference(ids).logits, ours(ids).logits_BTV
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=0)
    target = torch.randn(logits.shape, generator=torch.Generator().manual_seed(5))
    (expected * target).mean().backward()
    (logits * target).mean().backward()
    theirs, mine = dict(reference.named_parameters()), dict(ours.named_parameters())
    names = [name for name in mine if name in theirs]
    assert len(mine) - len(names) == 2 * config.num_moe_layers, "all but the fused halves of the experts"
    for name in names:
        assert theirs[name].grad.abs().max() > 0
        torch.testing.assert_close(mine[name].grad, theirs[name].grad, atol=1e-5, rtol=1e-4, msg=name)


@pytest.mark.parametrize("config", CASES)
def test_transformers_reads_our_folder(config: ModelConfig, tmp_path: Path) -> None:
    """A folder that we write gives the same logits when the reference loads it."""
    ours = ours_of(hf_model(config), config)
    save_folder(tmp_path, ours, torch.float32)
    loaded = transformers_module().AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    if config.is_moe:
        loaded.set_experts_implementation("eager")
    ids = some_ids(config)
    torch.testing.assert_close(loaded(ids).logits, ours(ids).logits_BTV, atol=1e-5, rtol=0)


@pytest.mark.parametrize("config", CASES)
@pytest.mark.parametrize("shard", ["10GB", "8KB"])
def test_we_read_the_folder_of_transformers(config: ModelConfig, shard: str, tmp_path: Path) -> None:
    """A folder that the reference writes, whole or in shards, gives the same logits here, and the same shape."""
    reference = hf_model(config)
    reference.save_pretrained(tmp_path, max_shard_size=shard)
    assert (tmp_path / "model.safetensors.index.json").exists() == (shard == "8KB")
    ours = load_model(tmp_path)
    assert ours.config == config
    ids = some_ids(config)
    torch.testing.assert_close(ours(ids).logits_BTV, reference(ids).logits, atol=1e-5, rtol=0)


def test_load_balance_loss_is_that_of_transformers() -> None:
    """The auxiliary loss with and without a mask equals the reference implementation."""
    transformers_module()
    from transformers.models.qwen3_moe.modeling_qwen3_moe import load_balancing_loss_func as theirs

    logits = torch.randn(3, 2, 5, 4, generator=torch.Generator().manual_seed(0))
    probs = logits.softmax(-1).permute(1, 2, 0, 3)
    experts = probs.topk(2, dim=-1).indices
    layers = tuple(layer.reshape(10, 4) for layer in logits)
    torch.testing.assert_close(load_balance_loss(experts, probs), theirs(layers, 4, 2))
    mask = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 1, 0, 0]])
    expected = theirs(layers, 4, 2, attention_mask=mask)
    torch.testing.assert_close(load_balance_loss(experts, probs, mask), expected)
