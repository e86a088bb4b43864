"""The fused runner against the plain model."""

from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from tests.tiny_model import DEEPSEEK

from ostinato.engine.experts import DenseExperts, RoutedExperts
from ostinato.engine.kv import Rows, Zone
from ostinato.engine.layout import build_weights
from ostinato.engine.runner import Batch, Piece, run_pass
from ostinato.model import Groups, Latent, ModelConfig, Yarn, state_to_bits
from ostinato.records import BadInputError

STRETCHED = Yarn(40.0, 8, mscale=0.7, mscale_all_dim=1.0)
NAMES = ["moe", "moe-plain-shares", "moe-routed", "dense", "yarn", "latent", "latent-plain-query", "latent-yarn"]
SHAPES = [
    ModelConfig("qwen3_moe", 70, 32, 2, 4, 2, 8, 0, 4, 2, 16),
    ModelConfig("qwen3_moe", 70, 32, 3, 4, 4, 16, 0, 5, 3, 24, norm_topk_prob=False, tie_word_embeddings=False),
    ModelConfig("qwen3_moe", 70, 32, 2, 6, 2, 8, 0, 8, 2, 16, rope_theta=1e6),
    ModelConfig("qwen3", 70, 24, 2, 4, 1, 8, 40),
    ModelConfig("qwen3", 70, 24, 2, 4, 1, 32, 40, rope_theta=50.0, yarn=Yarn(4.0, 8)),
    replace(DEEPSEEK, tie_word_embeddings=False, latent=Latent(10, 11, 6, 4, 8)),
    replace(
        DEEPSEEK, num_dense_layers=0, latent=Latent(0, 12, 6, 8, 8, rope_interleave=False), groups=Groups(1, 1, 1.0)
    ),
    replace(
        DEEPSEEK,
        num_experts=4,
        groups=Groups(2, 2, 2.0),
        num_shared_experts=2,
        yarn=STRETCHED,
    ),
]


@pytest.mark.parametrize("config", SHAPES, ids=NAMES)
def test_runner_matches_the_plain_model(config: ModelConfig, oracle: Any) -> None:
    """Pieces of prompts and decoding steps of several sequences give the logits and experts of one plain pass."""
    model = oracle.make(config, seed=3)
    weights = build_weights("v", config, state_to_bits(model), 64)
    rows, zone = Rows(config, 6, 64), Zone(config, 4, 64)
    rng = np.random.default_rng(0)
    texts = [rng.integers(0, config.vocab_size, length).tolist() for length in (20, 33, 27)]
    got: list[list[torch.Tensor]] = [[] for _ in texts]
    experts: list[list[np.ndarray[Any, Any]]] = [[] for _ in texts]

    def run(spans: list[tuple[int, int, int]], decoding: int) -> None:
        """(text, start, end) of each part; the first `decoding` parts are one token each, in zone slot order."""
        tokens = [token for text, start, end in spans for token in texts[text][start:end]]
        positions = [position for _, start, end in spans for position in range(start, end)]
        pieces = [Piece(text + 1, start, end - start) for text, start, end in spans[decoding:]]
        out = run_pass(weights, rows, zone, Batch(tokens, positions, decoding, pieces, list(range(len(tokens)))))
        at = 0
        for text, start, end in spans:
            got[text].append(out.logits_MV[at : at + end - start])
            experts[text].append(out.experts_NLk[at : at + end - start])
            at += end - start

    run([(0, 0, 9), (1, 0, 20), (2, 0, 5)], 0)
    run([(0, 9, 17), (2, 5, 6), (1, 20, 28)], 0)
    zone.fill(0, rows, 2, 28)
    zone.fill(1, rows, 1, 17)
    for step in range(3):
        run([(1, 28 + step, 29 + step), (0, 17 + step, 18 + step), (2, 6 + 7 * step, 13 + 7 * step)], 2)
    for text, ids in enumerate(texts):
        logits = torch.cat(got[text])
        reference = model(torch.tensor([ids[: len(logits)]]))
        torch.testing.assert_close(logits, reference.logits_BTV[0], atol=1e-4, rtol=0)
        chosen = np.concatenate(experts[text])
        assert chosen.shape == (len(logits), config.num_moe_layers, config.num_experts_per_tok)
        assert chosen.flatten().tolist() == reference.experts_BTLK.flatten().tolist()


def test_many_experts_are_routed_and_few_are_dense(oracle: Any) -> None:
    """The layout picks the way to compute experts by their ratio."""
    for config, kind in ((SHAPES[0], DenseExperts), (SHAPES[2], RoutedExperts)):
        weights = build_weights("v", config, state_to_bits(oracle.make(config)), 16)
        assert all(isinstance(layer.feed_forward, kind) for layer in weights.layers)


def test_a_missing_tensor_is_named(oracle: Any) -> None:
    """Weights that lack a tensor are refused by its name."""
    arrays = state_to_bits(oracle.make(SHAPES[0]))
    del arrays["model.layers.1.self_attn.k_norm.weight"]
    with pytest.raises(BadInputError, match=r"model\.layers\.1\.self_attn\.k_norm\.weight"):
        build_weights("v", SHAPES[0], arrays, 16)


def test_zone_and_rows_carry_a_sequence_back_and_forth() -> None:
    """Filling, moving and spilling the zone keep keys and values as they were."""
    config = SHAPES[0]
    rows, zone = Rows(config, 3, 16), Zone(config, 4, 16)
    for tensor in (*rows.keys, *rows.values):
        tensor.normal_()
    zone.fill(3, rows, 0, 10)
    zone.move(3, 1, 10)
    zone.spill(1, rows, 2, 4, 10)
    for tensor in (*rows.keys, *rows.values):
        assert torch.equal(tensor[2, :, 4:10], tensor[0, :, 4:10])
        assert not torch.equal(tensor[2, :, :4], tensor[0, :, :4])
