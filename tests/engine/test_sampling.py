"""Drawing tokens: distributions, log-probabilities, seeds."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from ostinato.engine.sampling import Drawer, draw
from ostinato.records import Sampling


def _logits(vocab: int = 12, seed: int = 0) -> torch.Tensor:
    return torch.randn(vocab, generator=torch.Generator().manual_seed(seed)) * 1.5


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_draws_follow_the_softmax(temperature: float) -> None:
    """A chi-square test over 20,000 draws does not tell them from the softmax."""
    logits, count = _logits(), 20_000
    drawers = [Drawer(Sampling(temperature=temperature, seed=seed)) for seed in range(count)]
    drawn = draw(logits.expand(count, -1), drawers)
    observed = np.bincount(drawn.ids, minlength=12)
    probs = (logits / temperature).double().softmax(0)
    assert stats.chisquare(observed, (probs * count).numpy()).pvalue > 1e-4
    expected = (logits / temperature).log_softmax(0)
    assert all(abs(value - float(expected[i])) < 1e-5 for i, value in zip(drawn.ids, drawn.logprobs, strict=True))


@pytest.mark.parametrize(("top_k", "top_p", "kept"), [(3, 1.0, 3), (0, 0.7, None), (5, 0.8, None), (1, 1.0, 1)])
def test_truncated_distributions_are_normalised(top_k: int, top_p: float, kept: int | None) -> None:
    """Only allowed tokens are drawn, and the reported probabilities of all of them sum to one."""
    logits = _logits(seed=4)
    drawers = [Drawer(Sampling(top_k=top_k, top_p=top_p, seed=seed)) for seed in range(3000)]
    drawn = draw(logits.expand(3000, -1), drawers)
    seen = dict(zip(drawn.ids, drawn.logprobs, strict=True))
    assert math.isclose(sum(math.exp(value) for value in seen.values()), 1.0, abs_tol=1e-5)
    assert kept is None or len(seen) == kept
    probs = logits.softmax(0)
    ranked = probs.sort(descending=True).indices.tolist()
    assert set(seen) == set(ranked[: len(seen)])
    if top_p < 1:
        within = probs[ranked[: top_k or 12]].cumsum(0) / probs[ranked[: top_k or 12]].sum()
        assert len(seen) == int((within < top_p).sum()) + 1


def test_greedy_reports_the_plain_log_softmax() -> None:
    """Temperature 0 takes the largest logit, whatever top-k and top-p say."""
    logits = torch.stack([_logits(seed=seed) for seed in range(5)])
    drawn = draw(logits, [Drawer(Sampling(temperature=0, top_k=2, top_p=0.5)) for _ in range(5)])
    assert drawn.ids == logits.argmax(1).tolist()
    torch.testing.assert_close(torch.tensor(drawn.logprobs), logits.log_softmax(1).max(1).values)


def test_settings_of_one_row_leave_the_others_alone() -> None:
    """A seeded row draws the same token alone and among greedy, hot and truncated rows."""
    logits = torch.stack([_logits(40, seed) for seed in range(4)])
    kinds = [Sampling(temperature=0.9, seed=5), Sampling(temperature=0), Sampling(top_k=2), Sampling(top_p=0.3)]
    for _ in range(20):
        among = draw(logits, [Drawer(kind) for kind in kinds])
        alone = draw(logits[:1], [Drawer(kinds[0])])
        assert among.ids[0] == alone.ids[0]
        assert math.isclose(among.logprobs[0], alone.logprobs[0], abs_tol=1e-6)
        assert among.ids[1] == int(logits[1].argmax())


def test_a_token_of_probability_zero_is_never_drawn() -> None:
    """Minus infinity stays out, also at the ends of the vocabulary."""
    logits = torch.full((1, 6), float("-inf"))
    logits[0, 2] = logits[0, 3] = 0.0
    drawn = {draw(logits, [Drawer(Sampling(seed=seed))]).ids[0] for seed in range(200)}
    assert drawn == {2, 3}


def test_seeds_may_be_any_whole_number() -> None:
    """Negative and huge seeds are seeds too."""
    for seed in (-1, 0, 2**70):
        logits = _logits(300)[None]
        assert draw(logits, [Drawer(Sampling(seed=seed))]) == draw(logits, [Drawer(Sampling(seed=seed))])
