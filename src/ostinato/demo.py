"""`ostinato demo`: the whole loop on the embedded default, with simulated persons as its clients."""

import asyncio
import signal
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import aiohttp
from msgspec import Struct
from rich.console import Console

from ostinato.cycle import Controller
from ostinato.dashboard import accounts_line, version_rows, write_report
from ostinato.envs.client import EnvClient
from ostinato.processes import Process
from ostinato.records import OstinatoError
from ostinato.render import format_for
from ostinato.rewards import Distiller
from ostinato.services import SEED_MODEL, ServiceHands, Services, first_release
from ostinato.settings import CycleConfig, open_ledger
from ostinato.store import Ledger
from ostinato.view import Screen, version_table
from ostinato.weights import WeightStore

FIGURES_EVERY_S = 5.0
BEHIND_TRAINING = 10
"""Niceness of serving and persons: one machine does everything, and a training step should not wait for them."""
NOTE = (
    "Simulated persons used the seed model in compressed time: one second stood for one minute. They are clients over "
    "HTTP like any other; nothing in the loop knows that they are simulated."
)


class DemoConfig(Struct, frozen=True):
    """Who uses the model. `persons`: how many; `concurrency`: sessions at a time; `seed`: of the population; `command`:
    what was typed, to be typed again with the same --data."""

    persons: int = 400
    concurrency: int = 16
    seed: int = 1
    model: Path = SEED_MODEL
    quick: bool = False
    command: str = "demo"


class StoppedError(Exception):
    """The person pressed Ctrl-C (or the process was asked to end)."""


def run_demo(data: Path, cycle: CycleConfig, demo: DemoConfig, console: Console) -> int:
    """Turn the loop in `data` from where it is. Returns the exit status: 0 when all cycles are done."""
    with open_ledger(data):
        pass  # a folder that cannot be used is refused before the screen is taken
    title = "Ostinato demo" + (" (quick: one small cycle, too small to prove anything)" if demo.quick else "")
    with Ledger.open(data) as ledger, Screen(console, title) as screen:
        try:
            asyncio.run(_run(data, ledger, cycle, demo, screen))
        except (StoppedError, KeyboardInterrupt):
            _last_words(console, data, demo, "Stopped; nothing that was acknowledged is lost.")
            return 130
        except OstinatoError as error:
            _last_words(console, data, demo, f"Stopped: {error}")
            return 1
    with Ledger.open(data) as ledger:
        _show_end(console, ledger, data)
    return 0


async def _run(data: Path, ledger: Ledger, config: CycleConfig, demo: DemoConfig, screen: Screen) -> None:
    """Start the processes, turn the loop, end the processes."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    weights = WeightStore(data / "weights")
    release = first_release(ledger, weights, demo.model)
    distiller = Distiller(ledger, format_for(weights.frame(release)), config.distil)
    running = ledger.running_experiment()
    candidate = running.candidate if running else ""
    services = await asyncio.to_thread(Services, data, release, candidate=candidate, niceness=BEHIND_TRAINING)
    try:
        people = _people(services, ledger, demo)
        screen.follow(people.stdout)
        async with EnvClient(services.addresses.envs) as envs, aiohttp.ClientSession() as http:
            hands = ServiceHands(services, config, http)
            controller = Controller(ledger, distiller, envs, hands, config, screen)
            try:
                await _until(stop, controller.run(), _figures(ledger, data, screen))
            finally:
                await hands.close()
                await asyncio.to_thread(people.end)  # clients go before the servers that they talk to
                await _let_forks_end(envs)
    finally:
        await asyncio.to_thread(services.end)
        if controller_done(ledger):
            await asyncio.to_thread(_settle_rest, distiller)


async def _let_forks_end(envs: EnvClient) -> None:
    """A sandbox that has begun to start gets its line in the ledger before the servers go."""
    for _ in range(20):
        if (await envs.stats()).starting == 0:
            return
        await asyncio.sleep(0.05)


def _people(services: Services, ledger: Ledger, demo: DemoConfig) -> Process:
    """The simulated persons, going on after the sessions that the ledger knows."""
    where = services.addresses
    arguments = ["tinyworld", "persons", "--gateway", where.gateway, "--envs", where.envs]
    arguments += ["--persons", str(demo.persons), "--concurrency", str(demo.concurrency), "--seed", str(demo.seed)]
    arguments += ["--start", str(len(ledger.sessions("live")))]
    return services.start("persons", arguments, niceness=BEHIND_TRAINING)


async def _until(stop: asyncio.Event, work: Coroutine[Any, Any, None], side: Coroutine[Any, Any, None]) -> None:
    """Run `work` to its end with `side` beside it; raise `StoppedError` if `stop` is set first."""
    running, beside, stopped = (asyncio.ensure_future(part) for part in (work, side, _wait(stop)))
    tasks = (running, beside, stopped)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in (running, beside):
            if task.done():
                task.result()
        if stopped.done():
            raise StoppedError
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _wait(stop: asyncio.Event) -> None:
    await stop.wait()


async def _figures(ledger: Ledger, data: Path, screen: Screen) -> None:
    """Keep the table on the screen and the report on disk true, for ever."""
    experiments = -1
    while True:
        rows = await asyncio.to_thread(version_rows, ledger)
        screen.rows(rows)
        ended = sum(experiment.ended_at is not None for experiment in ledger.experiments())
        if ended != experiments and rows:
            experiments = ended
            await asyncio.to_thread(write_report, ledger, data, title="Ostinato demo", note=NOTE)
        await asyncio.sleep(FIGURES_EVERY_S)


def controller_done(ledger: Ledger) -> bool:
    """Whether the loop has turned all its cycles."""
    held = ledger.progress().get("cycle")
    return held is not None and held.value["stage"] == "done"


def _settle_rest(distiller: Distiller) -> None:
    distiller.distil(time.time())


def _last_words(console: Console, data: Path, demo: DemoConfig, sentence: str) -> None:
    flags = " --quick" if demo.quick else ""
    console.print(f"\n{sentence}\nContinue with: ostinato {demo.command} --data {data}{flags}", highlight=False)


def _show_end(console: Console, ledger: Ledger, data: Path) -> None:
    page = write_report(ledger, data, title="Ostinato demo", note=NOTE)
    console.print()
    console.print(version_table(version_rows(ledger)))
    for experiment in ledger.experiments():
        console.print(
            f"cycle {experiment.cycle}: {experiment.candidate} {experiment.verdict}: {experiment.reason}",
            highlight=False,
        )
    console.print(f"\naccounts: {accounts_line(ledger)}", highlight=False)
    console.print(f"curves:   {data / 'curves.png'}\nreport:   {page}", highlight=False)
    console.print(go_on(), highlight=False)


def go_on() -> str:
    """The three commands with which to go on with one's own repository and model."""
    return """
Go on with your own model and repository:
  ostinato serve --model DIR --port 8080
  curl -s http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{"model": "ostinato", "user": "me", "messages": [{"role": "user", "content": "fix add in calc.py"}]}'
  curl -s http://127.0.0.1:8080/v1/feedback -H 'Content-Type: application/json' \\
    -d '{"event_id": "1", "response_id": "ID", "at": 0, "payload": {"kind": "rating", "value": 1}}'
(ID is the "id" of the chat answer.)"""
