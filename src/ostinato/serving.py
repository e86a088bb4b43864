"""`ostinato serve`, `status` and `doctor`, and the journal that tells the ledger of every sandbox."""

import asyncio
import importlib.metadata
import platform
import shutil
import signal
import sqlite3
import sys
import time
from pathlib import Path

from rich.console import Console

from ostinato.dashboard import accounts_line, version_rows
from ostinato.envs import explain
from ostinato.records import SandboxInfo
from ostinato.services import SEED_MODEL, Services, first_release
from ostinato.settings import existing_ledger
from ostinato.store import AsyncWriter, Ledger
from ostinato.view import version_table
from ostinato.weights import WeightStore


class LedgerJournal:
    """Sandboxes in the ledger: a created one is durable before the client hears of it."""

    def __init__(self, ledger: Ledger) -> None:
        self._writer = AsyncWriter(ledger)

    async def created(self, info: SandboxInfo, purpose: str) -> None:
        """See `envs.SandboxJournal`."""
        at = time.time()
        await self._writer.submit(lambda tx: tx.put_sandbox(info, purpose, at))

    async def destroyed(self, sandbox_id: str, reason: str) -> None:
        """See `envs.SandboxJournal`."""
        del reason  # the server's own statistics tell why; the ledger keeps when
        at = time.time()
        await self._writer.submit(lambda tx: tx.end_sandbox(sandbox_id, at))


def run_serve(data: Path, model: Path | None, port: int) -> None:
    """Engine, gateway and environment server until Ctrl-C."""
    with Ledger.open(data) as ledger:
        release = first_release(ledger, WeightStore(data / "weights"), model or SEED_MODEL)
        running = ledger.running_experiment()
    services = Services(data, release, candidate=running.candidate if running else "", port=port)
    try:
        where = services.addresses
        sys.stdout.write(
            f"Serving {release} at {where.gateway}/v1 (model name: ostinato). Data stay in {data}.\n"
            f"Sandboxes: {where.envs}. Stop with Ctrl-C.\n"
        )
        sys.stdout.flush()
        asyncio.run(_watch(services))
    finally:
        services.end()


async def _watch(services: Services) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    while not stop.is_set():
        services.check()
        try:
            await asyncio.wait_for(stop.wait(), 1.0)
        except TimeoutError:
            continue


def show_status(data: Path, console: Console) -> None:
    """The versions, the verdicts, the phase and the accounts."""
    with existing_ledger(data) as ledger:
        console.print(version_table(version_rows(ledger)))
        for experiment in ledger.experiments():
            console.print(
                f"cycle {experiment.cycle}: {experiment.candidate} {experiment.verdict}: {experiment.reason}",
                highlight=False,
            )
        held = ledger.progress().get("cycle")
        if held is not None:
            console.print(f"\ncycle {held.value['number']}, {held.value['stage']}", highlight=False)
        console.print(f"accounts: {accounts_line(ledger)}", highlight=False)
        console.print(f"bench episodes: {ledger.accounts('episode').sessions}, sandboxes: {ledger.sandbox_count()}")
        for name, value in ledger.counters().items():
            console.print(f"{name}: {value}", highlight=False)


def examine() -> tuple[list[str], bool]:
    """Lines for `ostinato doctor`, and whether all that is needed is there."""
    sandboxes = explain()
    seed = (SEED_MODEL / "config.json").exists()
    well = sandboxes.startswith("Sandboxes work") and seed
    lines = [
        f"ostinato {importlib.metadata.version('ostinato')}, Python {platform.python_version()}, {platform.platform()}",
        f"SQLite {sqlite3.sqlite_version}; the write-ahead log is checkpointed by one process only",
        f"bubblewrap: {shutil.which('bwrap') or 'missing. Next: apt-get install bubblewrap'}",
        f"sandboxes: {sandboxes}",
        f"seed model: {SEED_MODEL if seed else 'missing. Next: reinstall the package'}",
        f"torch: {_installed('torch')}; matplotlib: {_installed('matplotlib')}",
        "outbound connections: none; every server listens on 127.0.0.1",
    ]
    return lines, well


def _installed(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "missing. Next: pip install 'ostinato[local,report]'"
