"""Experiments: a candidate beside the release, and what was decided."""

from typing import Literal

from msgspec import Struct

Verdict = Literal["running", "promoted", "stopped", "undecided", "blocked"]
"""`blocked`: the gate refused it, so no person met it."""


class Experiment(Struct, frozen=True):
    """One candidate's trial. `reason` is one sentence for people; `bench` and `live` are the figures it rests on."""

    experiment_id: str
    cycle: int
    candidate: str
    release: str
    started_at: float
    verdict: Verdict
    ended_at: float | None = None
    reason: str = ""
    bench: dict[str, float] = {}
    live: dict[str, float] = {}


class Look(Struct, frozen=True):
    """One look at a running experiment: the estimate of candidate minus release for one metric, and its always-valid
    interval, after `persons` persons in both arms together and `sessions` sessions."""

    experiment_id: str
    metric: str
    at: float
    persons: int
    sessions: int
    control: float
    candidate: float
    difference: float
    low: float
    high: float
