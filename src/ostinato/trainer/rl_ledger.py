"""Train on what the ledger holds, publish, give the sessions their fates.

Killed at any moment and run again, it does the same work once: the version is published first (again: the same content,
the same version), then a record of the run is written, then the fates are given in one transaction. A second run with
the same `run_id` that finds the record only gives the fates that are missing.
"""

import json
import sys
import time
from pathlib import Path

import msgspec
import torch

from ostinato.model import config_from_hf
from ostinato.records import Fate
from ostinato.store import Ledger, TrainSession, Transaction
from ostinato.trainer.baseline_fit import Past
from ostinato.trainer.checkpoint import write_whole
from ostinato.trainer.rl_guards import StepStats
from ostinato.trainer.rl_train import RLConfig, RLResult, train_rl
from ostinato.weights import WeightStore


def train_from_ledger(
    data: Path,
    parent: str,
    config: RLConfig,
    *,
    limit: int,
    run_id: str = "",
    threads: int = 1,
    quiet: bool = False,
) -> RLResult:
    """Train on at most `limit` sessions of the data folder and settle them. Each step is told on standard error as a
    line of JSON unless `quiet`. A `run_id` that was finished before gives its result again and trains nothing.

    A run on flipped rewards gives no fates: its candidate exists to be refused, and the sessions stay to be trained on.
    Sets torch to one thread, since `threads` share the work above it. Raises as `train_rl` does."""
    torch.set_num_threads(1)
    state = data / "trainer"
    record = state / f"run-{run_id}.json" if run_id else None
    weights = WeightStore(data / "weights")
    with Ledger.open(data) as ledger:
        if record is not None and record.exists():
            result = msgspec.json.decode(record.read_bytes(), type=RLResult)
        else:
            sessions, hot = _load(ledger, weights, parent, limit)
            result = train_rl(
                config,
                sessions,
                parent,
                weights,
                state,
                history=_history(ledger),
                threads=threads,
                progress=None if quiet else _tell,
            )
            result = msgspec.structs.replace(result, refused=result.refused | hot)
            if record is not None:
                write_whole(record, msgspec.json.encode(result))
        version = weights.get(result.version)
        ledger.put_version(version)
        if not config.flip_rewards:
            ledger.commit(lambda tx: _settle(tx, ledger, result))
    return result


def _load(ledger: Ledger, weights: WeightStore, parent: str, limit: int) -> tuple[list[TrainSession], dict[str, str]]:
    """The sessions, and those to refuse because a turn was not sampled at temperature 1: its log-probabilities are
    those of another distribution than the policy's."""
    shape = config_from_hf(json.loads(weights.frame(parent)["config.json"]))
    experts = (shape.num_moe_layers, shape.num_experts_per_tok)
    sessions, refused = [], {}
    for session in ledger.training_sessions(limit, experts):
        turns = ledger.turns(session.session_id, traces=False)
        hot = next((turn for turn in turns if turn.temperature != 1.0), None)
        if hot is None:
            sessions.append(session)
        else:
            refused[session.session_id] = f"turn {hot.index} was sampled at temperature {hot.temperature}, not 1"
    return sessions, refused


def _history(ledger: Ledger) -> dict[str, Past]:
    """Each person's rewards in sessions that were trained on before."""
    person_of = {row.session_id: row.person for row in ledger.sessions("live")}
    settled = {row.session_id for row in ledger.fates(Fate.TRAINED)}
    out: dict[str, Past] = {}
    for session_id, record in ledger.latest_rewards("live").items():
        if session_id in settled and record.reward is not None:
            past = out.get(person_of[session_id], Past(0, 0.0))
            out[person_of[session_id]] = Past(past.sessions + 1, past.total + record.reward)
    return out


def _settle(tx: Transaction, ledger: Ledger, result: RLResult) -> None:
    """Give every session of the run its fate; one that got a fate meanwhile (a person opted out) keeps it."""
    taken = {row.session_id for row in ledger.fates()}
    for session_id in result.trained:
        if session_id not in taken:
            tx.put_fate(session_id, Fate.TRAINED, "", result.version)
    for session_id in result.expired:
        if session_id not in taken:
            tx.put_fate(session_id, Fate.EXPIRED, "drawn by a version that is too old to correct for")
    for session_id, reason in result.refused.items():
        if session_id not in taken:
            tx.put_fate(session_id, Fate.FILTERED, reason)


def _tell(step: int, steps: int, stats: StepStats) -> None:
    line = {"done": step, "total": steps, "at": time.time(), **stats._asdict()}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
