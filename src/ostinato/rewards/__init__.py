"""Signals to rewards. A session's feedback and recorded turns come in; its outcome, a reward with named parts (or a
named exclusion) and the figures that experiments compare go out. May import records, store, render and envs.client.
"""

from ostinato.rewards.compose import EXCLUDED, RewardConfig, effort_cost, reward_of, reward_parts, rule_name
from ostinato.rewards.distil import DistilConfig, DistilCounts, Distiller
from ostinato.rewards.followup_rules import rule_score
from ostinato.rewards.followups import Classifier, dissatisfaction, shipped
from ostinato.rewards.metrics import live_metrics
from ostinato.rewards.recompute import Change, Recomputed, apply, recompute
from ostinato.rewards.signals import KEPT_FROM, Signals, outcome_of, signals_of

__all__ = [
    "EXCLUDED",
    "KEPT_FROM",
    "Change",
    "Classifier",
    "DistilConfig",
    "DistilCounts",
    "Distiller",
    "Recomputed",
    "RewardConfig",
    "Signals",
    "apply",
    "dissatisfaction",
    "effort_cost",
    "live_metrics",
    "outcome_of",
    "recompute",
    "reward_of",
    "reward_parts",
    "rule_name",
    "rule_score",
    "shipped",
    "signals_of",
]
