"""From recorded sessions to micro-batches: which are admitted, and how their segments become rows.

Segments of about the same length share a micro-batch and are padded on the right. That wastes a few percent and needs
no mask beside the causal one, which on a CPU is faster than packing rows with a block mask.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ostinato.model import ModelConfig
from ostinato.records import MissingError
from ostinato.store import UNKNOWN_EXPERT, Segment, TrainSession
from ostinato.trainer.objective import MicroBatch
from ostinato.weights import WeightStore

MICRO_TOKENS = 2048
"""Padded tokens of a micro-batch: measured fastest on a CPU for the seed model (1,024 to 4,096 are close)."""


class Admission(NamedTuple):
    """What is trained on, and the ids of what is not: too old, or refused with a reason."""

    sessions: list[TrainSession]
    expired: list[str]
    refused: dict[str, str]


def admit(
    sessions: Sequence[TrainSession], config: ModelConfig, age_of: Mapping[str, int | None], max_age: int
) -> Admission:
    """Sort the sessions. `age_of` gives each version's age in promotions (None: unknown here)."""
    out = Admission([], [], {})
    for session in sessions:
        reason = refusal(session, config)
        ages = [age_of[version] for version in session.versions]
        if reason:
            out.refused[session.session_id] = reason
        elif any(age is None or age > max_age for age in ages):
            out.expired.append(session.session_id)
        else:
            out.sessions.append(session)
    return out


def ages(weights: WeightStore, parent: str, versions: Iterable[str]) -> dict[str, int | None]:
    """How many versions lie between `parent` and the nearest ancestor that each version shares with it; None for a
    version that is not stored here or comes from another line."""
    line = {version: age for age, version in enumerate(_ancestors(weights, parent))}
    out: dict[str, int | None] = {}
    for version in set(versions):
        out[version] = next((line[one] for one in _ancestors(weights, version) if one in line), None)
    return out


def _ancestors(weights: WeightStore, version: str | None) -> list[str]:
    found: list[str] = []
    while version is not None and version not in found:
        try:
            parent = weights.get(version).parent
        except MissingError:
            break
        found.append(version)
        version = parent
    return found


def refusal(session: TrainSession, config: ModelConfig) -> str:
    """Why a session cannot be trained on with this model ("" if it can)."""
    if not any(segment.sampled.any() for segment in session.segments):
        return "it has no sampled token"
    for segment in session.segments:
        reason = _segment_refusal(segment, config)
        if reason:
            return reason
    return ""


def _segment_refusal(segment: Segment, config: ModelConfig) -> str:
    length = len(segment.ids)
    if length > config.max_position_embeddings:
        return f"a segment of {length} tokens is longer than the model's {config.max_position_embeddings}"
    if length and (segment.ids.min() < 0 or segment.ids.max() >= config.vocab_size):
        return f"a token id lies outside the vocabulary of {config.vocab_size}"
    if length and segment.sampled[0]:
        return "a segment begins with a sampled token"
    drawn = segment.logprobs[segment.sampled]
    if not np.isfinite(drawn).all() or (drawn > 1e-3).any():
        return "a recorded log-probability is not one"
    if config.is_moe:
        wanted = (length, config.num_moe_layers, config.num_experts_per_tok)
        if segment.experts.shape != wanted:
            return f"recorded experts have the shape {segment.experts.shape}, this model needs {wanted}"
        known = segment.experts[segment.experts != UNKNOWN_EXPERT]
        if known.size and known.max() >= config.num_experts:
            return f"recorded expert {known.max()} does not exist; the model has {config.num_experts}"
    return ""


class _Row(NamedTuple):
    segment: Segment
    own: NDArray[np.bool_]
    place: int
    length: int


def micro_batches(
    sessions: Sequence[TrainSession], config: ModelConfig, parent: str, places: Sequence[int] | None = None
) -> list[MicroBatch]:
    """All segments of the sessions with sampled tokens, longest first, cut after the last sampled token.

    `places` are the sessions' numbers that `session_N` carries (their own order by default)."""
    rows = [
        _Row(segment, _drawn_by(segment, session, parent), place, int(np.flatnonzero(segment.sampled)[-1]) + 1)
        for place, session in zip(places if places is not None else range(len(sessions)), sessions, strict=True)
        for segment in session.segments
        if segment.sampled.any()
    ]
    rows.sort(key=lambda row: -row.length)
    out, start = [], 0
    while start < len(rows):
        count = max(1, MICRO_TOKENS // rows[start].length)
        out.append(_stack(rows[start : start + count], config))
        start += count
    return out


def _stack(rows: Sequence[_Row], config: ModelConfig) -> MicroBatch:
    B, T = len(rows), rows[0].length
    ids = np.zeros((B, T), np.int64)
    sampled = np.zeros((B, T), bool)
    behaviour = np.zeros((B, T), np.float32)
    own = np.zeros((B, T), bool)
    chosen = (B, T, config.num_moe_layers, config.num_experts_per_tok)
    experts = np.full(chosen, -1, np.int64) if config.is_moe else None
    for number, (segment, drawn_by_parent, _, length) in enumerate(rows):
        ids[number, :length] = segment.ids[:length]
        sampled[number, :length] = segment.sampled[:length]
        behaviour[number, :length] = segment.logprobs[:length]
        own[number, :length] = drawn_by_parent[:length]
        if experts is not None:
            experts[number, :length] = _replay(segment.experts[:length])
    row, column = np.nonzero(sampled)
    places = np.array([row.place for row in rows])
    return MicroBatch(
        torch.from_numpy(ids),
        None if experts is None else torch.from_numpy(experts),
        torch.from_numpy(row),
        torch.from_numpy(column),
        torch.from_numpy(behaviour[row, column]),
        torch.from_numpy(places[row]),
        torch.from_numpy(own[row, column]),
    )


def _drawn_by(segment: Segment, session: TrainSession, version: str) -> NDArray[np.bool_]:
    """Which tokens `version` drew in turns of its own [T]. In a turn that a swap cut, the rest was drawn on keys and
    values of the version before, so that nobody can recompute it exactly."""
    number = session.versions.index(version) if version in session.versions else -2
    place = np.arange(len(segment.sampled))
    begins = segment.sampled & ~np.concatenate([[False], segment.sampled[:-1]])
    first = np.maximum.accumulate(np.where(begins, place, 0))
    drawn: NDArray[np.bool_] = (segment.version_index == number) & (segment.version_index[first] == number)
    return drawn


def _replay(experts: NDArray[np.uint16]) -> NDArray[np.int64]:
    """Experts [T, L, K] with -1 for each token and layer of which any is unknown."""
    known = (experts != UNKNOWN_EXPERT).all(axis=-1, keepdims=True)
    return np.where(known, experts.astype(np.int64), -1)
