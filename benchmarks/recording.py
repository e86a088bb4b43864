"""Sessions of persons with the seed model, for benchmarks that need some."""

import asyncio
import time
from pathlib import Path

from ostinato.render import format_for
from ostinato.rewards import DistilConfig, Distiller
from ostinato.services import SEED_MODEL, Services, first_release
from ostinato.store import Ledger
from ostinato.tinyworld import PersonsConfig, run_persons
from ostinato.weights import WeightStore

SEED = 8200
"""Of the population."""


async def use(data: Path, services: Services, many: int) -> None:
    """Let persons have `many` sessions with the release."""
    where = services.addresses
    folder = str(data / "persons")
    await run_persons(
        PersonsConfig(
            where.gateway, where.envs, folder, seed=SEED, population=400, sessions=many, concurrency=16,
            progress=str(data / "progress.jsonl"),
        )
    )  # fmt: skip


def record(data: Path, sessions: int) -> str:
    """Let persons use the seed model and reward what they did, in the data folder `data`; the release's version."""
    weights = WeightStore(data / "weights")
    with Ledger.open(data) as ledger:
        release = first_release(ledger, weights, SEED_MODEL)
        services = Services(data, release)
        try:
            asyncio.run(use(data, services, sessions))
        finally:
            services.end()
        Distiller(ledger, format_for(weights.frame(release)), DistilConfig(window_s=0.0)).distil(time.time())
    return release
