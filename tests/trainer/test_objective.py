"""The objective: its gradient, its bounds, and what it computes with."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from ostinato.model import Transformer, load_bits
from ostinato.trainer.checkpoint import load_published
from ostinato.trainer.objective import policy_loss, token_gains, token_values
from ostinato.trainer.rl_batches import micro_batches


def test_the_gradient_is_reinforce_when_on_policy() -> None:
    """On a bandit with logits z, the gradient of the loss is -A (one-hot(a) - p) / divisor, summed over tokens."""
    logits = torch.tensor([0.3, -0.2, 0.9], requires_grad=True)
    actions, gains = torch.tensor([0, 2, 2, 1]), torch.tensor([1.5, -0.5, 0.25, -2.0])
    logprobs = logits.log_softmax(0)[actions]
    policy_loss(logprobs, logprobs.detach(), gains, 7.0).loss.backward()  # type: ignore[no-untyped-call]
    p = [math.exp(z) for z in (0.3, -0.2, 0.9)]
    p = [value / sum(p) for value in p]
    by_hand = [
        -sum(gain * ((action == k) - p[k]) for action, gain in zip(actions.tolist(), gains.tolist(), strict=True)) / 7
        for k in range(3)
    ]
    assert logits.grad is not None
    np.testing.assert_allclose(logits.grad.numpy(), by_hand, rtol=1e-5)


@pytest.mark.parametrize(
    ("ratio", "gain", "slope"),
    [
        (1.1, 1.0, 1.1),
        (1.1, -1.0, -1.1),
        (1.3, 1.0, 0.0),
        (0.5, 1.0, 0.5),
        (0.7, -1.0, 0.0),
        (2.0, -1.0, -2.0),
        (4.0, -1.0, 0.0),
    ],
)
def test_the_ratio_is_bounded_on_both_sides(ratio: float, gain: float, slope: float) -> None:
    """No gradient where the policy has already gone too far the way that the advantage points, nor beyond the floor."""
    logprob = torch.tensor([math.log(ratio)], requires_grad=True)
    result = policy_loss(logprob, torch.zeros(1), torch.tensor([gain]), 1.0)
    result.loss.backward()  # type: ignore[no-untyped-call]
    assert logprob.grad is not None
    assert float(logprob.grad) == pytest.approx(-slope, rel=1e-5)
    assert bool(result.clipped_N) == (slope == 0.0)


def test_recorded_values_come_back(published: Any, draw: Any) -> None:
    """The trainer's log-probabilities equal those of the engine's kind of forward pass on the published bits within
    1e-6, from rows of different lengths in one padded micro-batch."""
    sessions = [
        *draw(published.weights, published.version, 6, lambda _: 0.0, tokens=2),
        *draw(published.weights, published.version, 6, lambda _: 0.0, seed=1, tokens=9),
    ]
    model = load_published(published.weights, published.version)
    (batch,) = micro_batches(sessions, model.config, published.version)
    with torch.no_grad():
        values = token_values(model, batch)
    assert float((values.logprobs_N - batch.behaviour_N).abs().max()) < 1e-6
    assert batch.ids_BT.shape == (12, 12) and values.logprobs_N.numel() == 6 * 2 + 6 * 9
    again = Transformer(model.config)
    load_bits(again, published.weights.fetch(published.version))
    with torch.no_grad():
        assert torch.equal(again.hidden(batch.ids_BT)[0], model.hidden(batch.ids_BT)[0])


def test_recorded_experts_are_used(published: Any, draw: Any) -> None:
    """Other experts than the router's own change the values, and gradients still reach the router."""
    sessions = draw(published.weights, published.version, 4, lambda _: 0.0)
    model = load_published(published.weights, published.version)
    (batch,) = micro_batches(sessions, model.config, published.version)
    assert batch.experts_BTLK is not None
    assert (batch.experts_BTLK[:, -1] == -1).all() and (batch.experts_BTLK[:, :-1] >= 0).all()
    own = token_values(model, batch).logprobs_N
    others = torch.where(batch.experts_BTLK < 0, -1, (batch.experts_BTLK + 1) % model.config.num_experts)
    values = token_values(model, batch._replace(experts_BTLK=others)).logprobs_N
    assert float((values - own).detach().abs().max()) > 1e-3
    values.sum().backward()  # type: ignore[no-untyped-call]
    router = dict(model.named_parameters())["model.layers.0.mlp.gate.weight"]
    assert router.grad is not None and float(router.grad.abs().max()) > 0


def test_negative_advantages_are_damped_and_spare_what_was_sure() -> None:
    """Positive ones stay; negative ones shrink, and vanish where the token was all but certain; 1 spares nothing."""
    gains = torch.tensor([2.0, 2.0, -2.0, -2.0])
    behaviour = torch.tensor([0.99, 0.5, 0.99, 0.5]).log()
    assert token_gains(gains, behaviour, 0.25, 0.9).tolist() == [2.0, 2.0, 0.0, -0.5]
    assert token_gains(gains, behaviour, 1.0, 1.0).tolist() == gains.tolist()
