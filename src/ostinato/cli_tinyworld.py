"""The commands of the embedded world: its persons, the hacks that it shows, and the seed model's recipe."""

import asyncio
import signal
import sys
from pathlib import Path

from cyclopts import App

from ostinato.cli_parts import Data, say

tinyworld = App(name="tinyworld", help="The embedded world: the seed model's recipe and simulated persons.")


@tinyworld.command
def persons(
    *,
    data: Data = None,
    gateway: str,
    envs: str,
    persons: int = 400,
    sessions: int = 0,
    concurrency: int = 8,
    seed: int = 1,
    start: int = 0,
) -> None:
    """Let simulated persons use the agent through the gateway; one JSON line for each session.

    Args:
        persons: size of the population at a time.
        sessions: how many sessions; 0 goes on until the process is ended.
        start: sessions of the population to leave out, to go on where another run stopped.
    """
    from ostinato.settings import data_folder
    from ostinato.tinyworld import PersonsConfig, run_persons

    config = PersonsConfig(
        gateway=gateway,
        envs=envs,
        folder=str(data_folder(data) / "runs" / "persons"),
        seed=seed,
        population=persons,
        first=start,
        sessions=sessions,
        concurrency=concurrency,
    )

    async def run() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await run_persons(config, stop)

    asyncio.run(run())


@tinyworld.command
def hack(
    name: str,
    *,
    data: Data = None,
    fixed: bool = False,
    cycles: int = 2,
    seed: int = 1,
    model: Path | None = None,
) -> None:
    """Let the loop find a way to game a flawed reward, and see the monitors stop it: NAME is questions or broken-calls.

    Args:
        fixed: the same from the same start, with the reward that ships.
        cycles: how many candidates.
        seed: of the population.
        model: the first release; the shipped seed model by default.
    """
    from ostinato.demo import DemoConfig
    from ostinato.hack import hack_of, run_hack
    from ostinato.services import SEED_MODEL
    from ostinato.settings import data_folder
    from ostinato.view import console

    hack_of(name)
    folder = data or data_folder(None) / f"hack-{name}{'-fixed' if fixed else ''}"
    command = f"tinyworld hack {name}{' --fixed' if fixed else ''}"
    who = DemoConfig(seed=seed, model=model or SEED_MODEL, command=command)
    sys.exit(run_hack(folder.absolute(), name, who, console(), fixed=fixed, cycles=cycles))


@tinyworld.command
def train_seed(*, out: Path, steps: int = 1100, threads: int = 2, seed: int = 0) -> None:
    """Train the seed model afresh: tokenizer, a little pretraining, then the demonstrator's trajectories.

    Args:
        out: where the model folder is written; a stopped run in it is continued.
        steps: of training on demonstrations; 1100 take about 14 minutes on two cores.
    """
    from ostinato.tinyworld.recipe.train import SeedConfig
    from ostinato.tinyworld.recipe.train import train_seed as train

    say(train(SeedConfig(out, steps=steps, threads=threads, rng_seed=seed)))
