"""The tiny mixture of experts of the tests: its shape, random weights, and how they are published."""

import msgspec
import torch

from ostinato.model import Groups, Latent, ModelConfig, Transformer, config_to_hf, load_bits, state_to_bits
from ostinato.weights import WeightStore

TINY = ModelConfig(
    family="qwen3_moe",
    vocab_size=96,
    hidden_size=32,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    intermediate_size=48,
    num_experts=4,
    num_experts_per_tok=2,
    moe_intermediate_size=16,
    max_position_embeddings=512,
)

DEEPSEEK = ModelConfig(
    family="deepseek_v3",
    vocab_size=96,
    hidden_size=32,
    num_layers=3,
    num_heads=4,
    num_kv_heads=4,
    head_dim=4,
    intermediate_size=48,
    num_experts=8,
    num_experts_per_tok=2,
    moe_intermediate_size=24,
    num_dense_layers=1,
    num_shared_experts=1,
    latent=Latent(10, 12, 6, 4, 8),
    groups=Groups(4, 2, 2.5),
)


def random_model(config: ModelConfig = TINY, seed: int = 0, scale: float = 8.0) -> Transformer:
    """A random model whose weights BF16 can hold; the larger `scale`, the sharper its logits."""
    model = Transformer(config, seed)
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(scale)
            else:
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=rng))
    load_bits(model, state_to_bits(model))
    return model.requires_grad_(False)


def publish(weights: WeightStore, model: Transformer, parent: str | None = None) -> str:
    """Store a model as a version, a delta where there is a parent; the version's name."""
    frame = {"config.json": msgspec.json.encode(config_to_hf(model.config))}
    return weights.publish(state_to_bits(model), parent=parent, frame=frame).version
