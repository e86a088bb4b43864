"""Which objective learns from sessions that one version drew, taken several steps on at once?

Persons use the seed model, then every objective trains a candidate from the same sessions and the same parent, and all
candidates get the same requests of persons who never trained anything. The figures of docs/decisions/0004-objective.md.

    python -m benchmarks.objective --json
    python -m benchmarks.objective --sessions 200 --exam 60     # a shorter look, which proves nothing
"""

import argparse
import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from unittest.mock import patch

import torch
from torch import Tensor

from benchmarks.learning import by_person, dissatisfied, estimate, mean_of, persistence, solved, tokens
from benchmarks.recording import SEED, use
from benchmarks.reporting import Figure, finish
from ostinato.engine import EngineClient
from ostinato.render import format_for
from ostinato.rewards import DistilConfig, Distiller
from ostinato.services import SEED_MODEL, Services, first_release
from ostinato.store import Ledger, TrainSession
from ostinato.tinyworld import RequestsConfig, Truth, run_requests
from ostinato.trainer import RLConfig, train_rl
from ostinato.trainer.objective import PolicyLoss
from ostinato.weights import WeightStore

MOST_WEIGHT = 2.0
SHIPPED = "two-sided clip, negative advantages damped and not for sure tokens"
TRUNCATED = "truncated importance weights"
NUMBERS: tuple[tuple[str, Callable[[Truth], float | None]], ...] = (
    ("kept", persistence),
    ("solved", solved),
    ("dissatisfied", dissatisfied),
    ("tokens", tokens),
    ("invalid calls", lambda truth: float(truth.invalid_calls)),
)


@dataclass(frozen=True)
class Objective:
    """One way to train. `truncated`: truncated importance weights in the place of the two-sided clip."""

    config: RLConfig
    truncated: bool = False


OBJECTIVES = {
    SHIPPED: Objective(RLConfig(epochs=3)),
    "the same, 1 pass": Objective(RLConfig(epochs=1)),
    "the same, for sure tokens too": Objective(RLConfig(epochs=3, sure_from=1.0)),
    "two-sided clip alone": Objective(RLConfig(epochs=3, negative_weight=1.0, sure_from=1.0)),
    "two-sided clip alone, rate 2e-4": Objective(
        RLConfig(epochs=3, negative_weight=1.0, sure_from=1.0, learning_rate=2e-4)
    ),
    TRUNCATED: Objective(RLConfig(epochs=3, negative_weight=1.0, sure_from=1.0, learning_rate=2e-4), truncated=True),
    "sign-flipped rewards": Objective(RLConfig(epochs=3, flip_rewards=True)),
}


def truncated_loss(logprobs_N: Tensor, behaviour_N: Tensor, advantages_N: Tensor, divisor: float) -> PolicyLoss:
    """-sum of min(r, 2) A log pi / divisor, the weight held constant (IMPALA's truncation, arXiv:1802.01561)."""
    ratio_N = (logprobs_N - behaviour_N).exp().detach()
    weight_N = ratio_N.clamp(max=MOST_WEIGHT)
    return PolicyLoss(-(weight_N * advantages_N * logprobs_N).sum() / divisor, ratio_N, ratio_N > MOST_WEIGHT)


def train(data: Path, parent: str, sessions: list[TrainSession]) -> dict[str, str]:
    """Name -> version of every objective."""
    torch.set_num_threads(1)
    weights = WeightStore(data / "weights")
    made: dict[str, str] = {}
    for name, objective in OBJECTIVES.items():
        patched: AbstractContextManager[object] = nullcontext()
        if objective.truncated:
            patched = patch("ostinato.trainer.rl_train.policy_loss", truncated_loss)
        with patched:
            result = train_rl(objective.config, sessions, parent, weights, data / f"trainer-{len(made)}", threads=2)
        made[name] = result.version
    return made


async def exam(services: Services, versions: dict[str, str], many: int) -> dict[str, list[Truth]]:
    """The same requests for every version."""
    client = EngineClient(services.addresses.engine)
    truths = {}
    for name, version in versions.items():
        await client.load("evaluation", version)
        truths[name] = await run_requests(
            RequestsConfig(
                gateway=services.addresses.gateway, envs=services.addresses.envs, model="ostinato@evaluation",
                sessions=many, seed=SEED + 1, concurrency=16,
            )
        )  # fmt: skip
    await client.close()
    return truths


def run(data: Path, sessions: int, many: int) -> tuple[dict[str, list[Truth]], int]:
    """Use, train, examine. Returns truths by objective ("parent" is the seed model) and the sessions trained on."""
    weights = WeightStore(data / "weights")
    with Ledger.open(data) as ledger:
        parent = first_release(ledger, weights, SEED_MODEL)
        services = Services(data, parent)
        try:
            asyncio.run(use(data, services, sessions))
            Distiller(ledger, format_for(weights.frame(parent)), DistilConfig(window_s=0.0)).distil(time.time())
            found = list(ledger.training_sessions(sessions, experts_shape=(4, 2)))
            versions = {"parent": parent} | train(data, parent, found)
            return asyncio.run(exam(services, versions, many)), len(found)
        finally:
            services.end()


def figures_of(truths: dict[str, list[Truth]]) -> list[Figure]:
    """Each objective against the parent, and what decided: the shipped one against truncated weights."""
    figures = []
    parent = truths["parent"]
    for name, rows in truths.items():
        if name == "parent":
            continue
        for what, number in NUMBERS:
            change = estimate(by_person(parent, rows, number))
            text = (
                f"{mean_of(parent, number):.3f} -> {mean_of(rows, number):.3f} ({change.mean:+.3f} [{change.low:+.3f}, "
            )
            target, holds = "", None
            if what == "kept" and name == SHIPPED:
                target, holds = "higher, off zero", change.low > 0
            elif what == "solved" and name.startswith("sign-flipped"):
                target, holds = "lower, off zero", change.high < 0
            figures.append(Figure(f"{name}: {what}", f"{text}{change.high:+.3f}])", target, holds, len(rows)))
    lead = estimate(by_person(truths[TRUNCATED], truths[SHIPPED], persistence))
    text = f"{lead.mean:+.3f} [{lead.low:+.3f}, {lead.high:+.3f}]"
    figures.append(
        Figure(f"kept: {SHIPPED}, minus {TRUNCATED}", text, "above zero, off zero", lead.low > 0, len(parent))
    )
    return figures


def main() -> None:
    """Run, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    parser.add_argument("--sessions", type=int, default=1400, help="live sessions of the seed model")
    parser.add_argument("--exam", type=int, default=400, help="requests for each candidate")
    options = parser.parse_args()
    data = Path(mkdtemp(prefix="ostinato-objective-"))
    begin = time.monotonic()
    truths, trained = run(data, options.sessions, options.exam)
    minutes = (time.monotonic() - begin) / 60
    notes = f"One population (seed {SEED}), {trained} sessions trained on, {minutes:.0f} minutes. Data in {data}."
    finish("objective", figures_of(truths), notes, as_json=options.json)


if __name__ == "__main__":
    main()
