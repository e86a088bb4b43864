"""Experiments: always-valid statistics, the verdict, promotion and roll-back. Finished sessions of both arms come in
from the store; a verdict and a release record go out. May import records, store, weights and evals.
"""

from ostinato.deploy.decide import METRICS, Decision, ExperimentConfig, Metric, Observation, decide
from ostinato.deploy.sequences import Interval, boundary, compare, mixture_rho, persons_needed

__all__ = [
    "METRICS",
    "Decision",
    "ExperimentConfig",
    "Interval",
    "Metric",
    "Observation",
    "boundary",
    "compare",
    "decide",
    "mixture_rho",
    "persons_needed",
]
