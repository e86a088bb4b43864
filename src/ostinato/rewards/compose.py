"""Signals to one scalar, in named parts.

The rule that decides the weights: nothing may be cheaper than an honest try. Where asking back cost .1, and where
leaving early cost less than a reverted edit, the policy learned to ask and to leave. So each way of not doing the work
costs more than an edit that is reverted, and no outcome is free of reward unless it is excluded by name.
"""

import hashlib
import math
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct

from ostinato.records import Outcome, RewardRecord
from ostinato.rewards.signals import Signals, outcome_of

EXCLUDED = frozenset({Outcome.SANDBOX_DIED, Outcome.MODEL_ERROR, Outcome.NO_FEEDBACK})
"""Outcomes without a reward: a fault of ours, or nothing known. The model cannot bring them about."""


class RewardConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The weights.

    kept, reverted: of an edit that survives whole or not at all; a mended one lies between them by the surviving share.
    answered: no edit, and the person said that it was good. answered_silently: the same, but the person said nothing.
    asked: a question instead of an edit. undone: nothing done, empty answer, run broken off, abandoned, cancelled.
    dissatisfied: times the probability that the follow-up complains. invalid_call: each, at most `invalid_cap` of them.
    effort_weight: times the cost below of the generated tokens plus `call_tokens` for each tool call.
    effort_k, effort_q: the curve of that cost.
    discard_invalid: leave out every session with an invalid call. This pays for breaking calls where a task will fail;
    it is here to show that, and for nothing else."""

    kept: float = 1.0
    reverted: float = -0.6
    answered: float = 1.0
    answered_silently: float = 0.5
    asked: float = -1.8
    undone: float = -2.0
    dissatisfied: float = -0.3
    invalid_call: float = -0.1
    invalid_cap: int = 4
    effort_weight: float = -0.011
    effort_k: float = 1 / 40
    effort_q: float = 0.0
    call_tokens: float = 24.0
    discard_invalid: bool = False


def effort_cost(x: float, k: float, q: float) -> float:
    """C_{k,q}(x) = ((1 + k x)^(1-q) - 1) / (k (1-q)), in tokens; concave, slope 1 at 0. For q = 1 its limit
    ln(1 + k x) / k. Source: Composer 2 technical report (arXiv:2603.24477), section 4.2. Needs k > 0 and x >= 0."""
    if abs(q - 1) < 1e-9:
        return math.log1p(k * x) / k
    return float(((1 + k * x) ** (1 - q) - 1) / (k * (1 - q)))


def reward_parts(signals: Signals, outcome: Outcome, config: RewardConfig) -> dict[str, float]:
    """The named parts of the reward; their sum is the reward. Empty for an excluded outcome."""
    if outcome in EXCLUDED:
        return {}
    complaint = signals.dissatisfied if signals.dissatisfied is not None else float(signals.abandoned)
    effort = effort_cost(signals.tokens + config.call_tokens * signals.tool_calls, config.effort_k, config.effort_q)
    parts = {
        outcome.value: _outcome_weight(signals, outcome, config),
        "dissatisfied": config.dissatisfied * complaint,
        "invalid": config.invalid_call * min(signals.invalid_calls, config.invalid_cap),
        "effort": config.effort_weight * effort,
    }
    return {name: value for name, value in parts.items() if value != 0.0 or name == outcome.value}


def reward_of(session_id: str, signals: Signals, config: RewardConfig, at: float) -> RewardRecord:
    """The reward record of one session at time `at` (Unix seconds)."""
    outcome = outcome_of(signals)
    exclusion = outcome.value if outcome in EXCLUDED else ""
    if config.discard_invalid and signals.invalid_calls and not exclusion:
        exclusion = "invalid calls are discarded"
    parts = {} if exclusion else reward_parts(signals, outcome, config)
    return RewardRecord(
        session_id=session_id,
        outcome=outcome,
        reward=math.fsum(parts.values()) if parts else None,
        parts=parts,
        signals=signals.numbers(),
        rule=rule_name(config),
        at=at,
        exclusion=exclusion,
    )


@cache
def rule_name(config: RewardConfig) -> str:
    """The name of what computed a reward: changes with the settings and with the code of this room."""
    digest = hashlib.sha256(msgspec.json.encode(config))
    for name in ("compose.py", "signals.py", "followups.py", "followup_rules.py", "followups.json"):
        digest.update(Path(__file__).with_name(name).read_bytes())
    return f"kept-edits-{digest.hexdigest()[:12]}"


def _outcome_weight(signals: Signals, outcome: Outcome, config: RewardConfig) -> float:
    if outcome == Outcome.MENDED:
        assert signals.survival is not None, "only a measured edit is mended"
        return config.reverted + (config.kept - config.reverted) * signals.survival
    if outcome == Outcome.ANSWERED:
        return config.answered if signals.dissatisfied is not None else config.answered_silently
    weights = {Outcome.KEPT: config.kept, Outcome.REVERTED: config.reverted, Outcome.ASKED: config.asked}
    return weights.get(outcome, config.undone)
