"""Experiments: always-valid statistics, the verdict, promotion and roll-back, and monitors of what versions
do. Finished sessions come in from the store; a verdict and alarms go out. May import records, store, weights and evals.
"""

from ostinato.deploy.decide import METRICS, Decision, ExperimentConfig, Metric, Observation, decide
from ostinato.deploy.monitors import MONITORS, Alarm, Monitor, MonitorConfig, watch
from ostinato.deploy.sequences import Interval, boundary, compare, mixture_rho, persons_needed

__all__ = [
    "METRICS",
    "MONITORS",
    "Alarm",
    "Decision",
    "ExperimentConfig",
    "Interval",
    "Metric",
    "Monitor",
    "MonitorConfig",
    "Observation",
    "boundary",
    "compare",
    "decide",
    "mixture_rho",
    "persons_needed",
    "watch",
]
