"""The transformer's own promises: packing, replay, cache, determinism."""

import pytest
import torch
from tests.tiny_model import DEEPSEEK
from torch import Tensor

from ostinato.model import KVCache, ModelConfig, Transformer
from ostinato.model.moe import MixtureOfExperts
from ostinato.records import BadInputError

DENSE = ModelConfig("qwen3", 61, 32, 2, 4, 2, 8, 48)
MOE = ModelConfig("qwen3_moe", 61, 32, 2, 4, 2, 8, 48, 4, 2, 24)


def ids_for(config: ModelConfig, rows: int = 2, length: int = 17) -> Tensor:
    """Random ids, the same each time."""
    return torch.randint(config.vocab_size, (rows, length), generator=torch.Generator().manual_seed(3))


def gradient(model: Transformer, name: str) -> Tensor:
    """The gradient of a parameter that must have one."""
    grad = dict(model.named_parameters())[name].grad
    assert grad is not None
    return grad


@pytest.mark.parametrize("config", [DENSE, MOE, DEEPSEEK])
def test_packed_documents_do_not_see_each_other(config: ModelConfig) -> None:
    """Two documents in one row give the logits that each gives alone."""
    model = Transformer(config, seed=1)
    first, second = ids_for(config, 1, 6), ids_for(config, 1, 9).flip(1)
    pad = torch.zeros(1, 3, dtype=torch.long)
    packed = torch.cat((first, second, pad), dim=1)
    segments = torch.tensor([[0] * 6 + [1] * 9 + [-1] * 3])
    together = model(packed, segment_ids_BT=segments).logits_BTV
    torch.testing.assert_close(together[:, :6], model(first).logits_BTV, atol=1e-5, rtol=0)
    torch.testing.assert_close(together[:, 6:15], model(second).logits_BTV, atol=1e-5, rtol=0)


@pytest.mark.parametrize("config", [DENSE, MOE, DEEPSEEK])
def test_cache_gives_the_logits_of_the_whole_forward(config: ModelConfig) -> None:
    """Ragged prefill with padding, then one token at a time, equals the forward over everything."""
    model = Transformer(config, seed=2)
    ids = ids_for(config, 2, 12)
    with torch.inference_mode():
        whole = model(ids).logits_BTV
        cache = KVCache(config, rows=2, slots=16)
        lengths = torch.tensor([5, 8])
        model(ids[:, :8], positions_BT=torch.arange(8).expand(2, 8), cache=cache)
        for step in range(4):
            at = lengths + step
            logits = model(ids.gather(1, at[:, None]), positions_BT=at[:, None], cache=cache).logits_BTV[:, 0]
            torch.testing.assert_close(logits, whole[torch.arange(2), at], atol=1e-5, rtol=0)


@pytest.mark.parametrize("config", [MOE, DEEPSEEK])
def test_replay_is_obeyed(config: ModelConfig) -> None:
    """Replaying the model's own experts gives equal logits; prescribed ones are used; rows of -1 choose themselves."""
    model = Transformer(config, seed=4)
    ids = ids_for(config)
    free = model(ids)
    assert torch.equal(free.logits_BTV, model(ids, experts_BTLK=free.experts_BTLK).logits_BTV)
    other = (free.experts_BTLK + 1) % config.num_experts
    changed = model(ids, experts_BTLK=other)
    assert torch.equal(changed.experts_BTLK, other)
    assert not torch.allclose(changed.logits_BTV, free.logits_BTV)
    changed.logits_BTV.square().mean().backward()
    assert gradient(model, "model.layers.1.mlp.gate.weight").abs().max() > 0
    own = model(ids, experts_BTLK=torch.full_like(other, -1))
    assert torch.equal(own.logits_BTV, free.logits_BTV)


@pytest.mark.parametrize("config", [MOE, DEEPSEEK])
def test_implausible_replay_is_mended(config: ModelConfig) -> None:
    """With a threshold of 1 only experts at least as good as the router's own last choice stay; the others become the
    router's best. With a lower one an expert stays exactly when its score reaches that part of the last choice's."""
    layer = MixtureOfExperts(config)
    rng = torch.Generator().manual_seed(8)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(0.0, 0.5, generator=rng)
    x = torch.randn(200, config.hidden_size, generator=rng)
    free = layer(x)
    given = torch.stack([torch.randperm(config.num_experts, generator=rng)[:2] for _ in range(200)])
    own = [set(row) for row in free.experts.tolist()]
    assert torch.equal(layer(x, given).experts, given), "0 replays whatever is given"
    layer.plausibility = 1.0
    mended = layer(x, given).experts
    assert any(set(row) != set(old) for row, old in zip(mended.tolist(), given.tolist(), strict=True))
    scores = layer.gate.scores(x).scores
    lowest = scores.gather(1, free.experts).amin(dim=1)
    for threshold in (1.0, 0.6):
        layer.plausibility = threshold
        for row, (old, new) in enumerate(zip(given.tolist(), layer(x, given).experts.tolist(), strict=True)):
            kept = {expert for expert in old if scores[row, expert] >= threshold * lowest[row]}
            assert kept <= set(new) and len(set(new)) == 2
            assert set(new) - kept <= own[row]
    layer.plausibility = 1.0
    torch.testing.assert_close(layer(x, free.experts).out, free.out, atol=0, rtol=0)
    chooses = torch.full_like(given, -1)
    assert torch.equal(layer(x, chooses).experts, free.experts)


def test_equal_runs_are_equal_to_the_bit() -> None:
    """Same seed, same ids: the same logits and gradients, bit for bit."""
    results = []
    for _ in range(2):
        model = Transformer(MOE, seed=9)
        logits = model(ids_for(MOE)).logits_BTV
        logits.square().mean().backward()
        results.append((logits.detach(), gradient(model, "model.embed_tokens.weight")))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])


def test_bad_shapes_are_named() -> None:
    """Ids without a batch, experts of another shape, a cache without positions."""
    model = Transformer(MOE)
    with pytest.raises(BadInputError, match="shape"):
        model(torch.zeros(3, dtype=torch.long))
    with pytest.raises(BadInputError, match="Experts to replay"):
        model(ids_for(MOE), experts_BTLK=torch.zeros(2, 17, 1, 1, dtype=torch.long))
    with pytest.raises(BadInputError, match="positions"):
        model(ids_for(MOE), cache=KVCache(MOE, 2, 32))
