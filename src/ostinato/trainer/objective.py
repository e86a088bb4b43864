# ruff: noqa: N815 - shape suffixes name the fields too
"""The policy-gradient objective over the sampled tokens of whole sessions.

    loss = -sum over sessions s, sampled tokens t of  J(r_t, A_s) / divisor
    r_t  = exp(log pi(a_t) - log mu(a_t)),  pi: the trainer, mu: recorded when the token was drawn
    J    = min(r A, clip(r, 0.8, 1.28) A),  and for A < 0 at least 3 A
    A_s < 0 counts a part (`token_gains`), and not at all for tokens that mu was sure of

Sources: PPO's clipped surrogate (arXiv:1707.06347, eq. 7); the wider upper clip of DAPO (arXiv:2503.14476, section
3.1); the floor for negative advantages, which keeps one token with a huge ratio from ruling a step, is dual-clip PPO
(arXiv:1912.09729, eq. 5); one advantage for all tokens of a chain and a divisor that does not depend on lengths follow
Composer 2 (arXiv:2603.24477, section 4.1) and Dr. GRPO (arXiv:2503.20783). Different from all of them: one session for
each prompt, so the advantage comes from a baseline (baseline.py) and not from a group; the clip is two-sided about the
recorded probability, so it corrects for staleness, not only for steps within one batch. That few tokens, the uncertain
ones, decide where a text goes, and that learning may rest on them alone, is from arXiv:2506.01939.

Legend: B rows, T positions, L layers, K experts for each token, N sampled tokens, V vocabulary.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ostinato.model import Transformer

CLIP_LOW, CLIP_HIGH, NEGATIVE_FLOOR = 0.8, 1.28, 3.0


class MicroBatch(NamedTuple):
    """What goes through the model at once. `row_N`, `column_N` say where each sampled token stands (column at least
    1); `session_N` is its session's place in the batch; `own_N` is true where the parent version itself drew it."""

    ids_BT: Tensor
    experts_BTLK: Tensor | None
    row_N: Tensor
    column_N: Tensor
    behaviour_N: Tensor
    session_N: Tensor
    own_N: Tensor


class TokenValues(NamedTuple):
    """Of each sampled token: log-probability (natural logarithm, with gradient) and entropy (nats, without)."""

    logprobs_N: Tensor
    entropy_N: Tensor


class PolicyLoss(NamedTuple):
    """`loss` is a scalar with gradient; `ratio_N` are the importance ratios, `clipped_N` where no gradient flows."""

    loss: Tensor
    ratio_N: Tensor
    clipped_N: Tensor


def token_values(model: Transformer, batch: MicroBatch) -> TokenValues:
    """Log-probabilities of the sampled tokens at temperature 1, under the recorded experts where they are known.

    Only the positions before sampled tokens go through the output matrix."""
    hidden_BTH = model.hidden(batch.ids_BT, experts_BTLK=batch.experts_BTLK).hidden_BTH
    logprobs_NV = model.head(hidden_BTH[batch.row_N, batch.column_N - 1]).log_softmax(dim=-1)
    targets_N = batch.ids_BT[batch.row_N, batch.column_N]
    with torch.no_grad():
        entropy_N = -(logprobs_NV.exp() * logprobs_NV).sum(dim=-1)
    return TokenValues(logprobs_NV.gather(1, targets_N[:, None])[:, 0], entropy_N)


def token_gains(advantages_N: Tensor, behaviour_N: Tensor, negative_weight: float, sure_from: float) -> Tensor:
    """The advantages of tokens [N]: negative ones times `negative_weight`, and 0 for those that were drawn with a
    probability above `sure_from` (1: for none). A token that was all but certain decided nothing; pushing it down ruins
    the text that it stands in, and leaves the decision before it as it was."""
    damped_N = negative_weight * advantages_N * (behaviour_N.exp() <= sure_from)
    return torch.where(advantages_N < 0, damped_N, advantages_N)


def policy_loss(logprobs_N: Tensor, behaviour_N: Tensor, advantages_N: Tensor, divisor: float) -> PolicyLoss:
    """The loss above. `divisor` must not depend on the lengths of the sessions."""
    ratio_N = (logprobs_N - behaviour_N).exp()
    plain_N = ratio_N * advantages_N
    clipped_N = ratio_N.clamp(CLIP_LOW, CLIP_HIGH) * advantages_N
    bounded_N = torch.minimum(plain_N, clipped_N)
    floored_N = torch.where(advantages_N < 0, torch.maximum(bounded_N, NEGATIVE_FLOOR * advantages_N), bounded_N)
    still_N = (floored_N != plain_N).detach()
    return PolicyLoss(-floored_N.sum() / divisor, ratio_N.detach(), still_N)
