"""`ostinato serve`, `status` and `doctor`, and the journal that tells the ledger of every sandbox."""

import importlib.metadata
import platform
import shutil
import signal
import sqlite3
import sys
import time
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from ostinato.dashboard import accounts_line, version_rows
from ostinato.envs import explain
from ostinato.records import SandboxInfo
from ostinato.services import SEED_MODEL, Services, first_release
from ostinato.settings import existing_ledger, open_ledger
from ostinato.store import AsyncWriter, Ledger
from ostinato.view import plainly, version_table
from ostinato.weights import WeightStore

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that end `ostinato serve`."""


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


def run_serve(data: Path, model: Path | None, port: int, context: int) -> None:
    """Engine, gateway and environment server until Ctrl-C (or SIGTERM, or the terminal closes)."""
    for number in ENDING:
        signal.signal(number, _interrupt)
    services: Services | None = None
    try:
        with open_ledger(data) as ledger:
            fresh = ledger.current_release() is None
            release = first_release(ledger, WeightStore(data / "weights"), model or SEED_MODEL)
            running = ledger.running_experiment()
        candidate = running.candidate if running else ""
        services = Services(data, release, candidate=candidate, port=port, context=context)
        _announce(services, release, unused=None if fresh else model)
        while True:
            services.check()
            time.sleep(1.0)
    except KeyboardInterrupt:
        sys.stdout.write(f"Stopped; nothing that was acknowledged is lost.\nGo on with: ostinato serve --data {data}\n")
    finally:
        if services is not None:
            services.end()


def _announce(services: Services, release: str, unused: Path | None) -> None:
    where = services.addresses
    lines = [f"Serving {release} at {where.gateway}/v1 (model name: ostinato). Data stay in {services.data}."]
    if unused is not None:
        lines.append(f"That is the release of this data folder. To serve {unused} itself, give another --data.")
    lines.append(f"Sandboxes: {where.envs}. Stop with Ctrl-C.")
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def _interrupt(*_: object) -> NoReturn:
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)  # ending takes 3 s at most, and must not be left half done
    raise KeyboardInterrupt


def show_status(data: Path, console: Console) -> None:
    """The versions, the verdicts, the phase, the accounts and the counts."""
    with existing_ledger(data) as ledger:
        lines = [
            f"cycle {experiment.cycle}: {experiment.candidate} {experiment.verdict}: {experiment.reason}"
            for experiment in ledger.experiments()
        ]
        held = ledger.progress().get("cycle")
        if held is not None:
            lines += ["", f"cycle {held.value['number']}, {held.value['stage']}"]
        lines.append(f"accounts: {accounts_line(ledger)}")
        lines.append(f"bench episodes: {ledger.accounts('episode').sessions}, sandboxes: {ledger.sandbox_count()}")
        lines.append(f"open incidents: {len(ledger.incidents(only_open=True))} (ostinato incidents)")
        lines.append(f"feedback whose response is not stored yet: {ledger.parked_feedback()}")
        lines += [f"{name}: {value}" for name, value in ledger.counters().items()]
        console.print(version_table(version_rows(ledger)))
        for line in lines:
            console.print(plainly(line), markup=False, highlight=False, soft_wrap=True)


def show_incidents(data: Path, console: Console, *, everything: bool) -> None:
    """What people should know about: open incidents, or all."""
    with existing_ledger(data) as ledger:
        found = ledger.incidents(only_open=not everything)
    for one in found:
        state = "open" if one.closed_at is None else f"closed: {one.closed_because}"
        at = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.at))
        lines = [f"{one.incident_id} {one.kind} {one.version} {at} ({state})", f"  {one.message}"]
        lines += [f"  see: ostinato rewards explain {session}" for session in one.sessions]
        for line in lines:
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    if not found:
        console.print("No incident is open." if not everything else "There was no incident.")


def close_incident(data: Path, incident_id: int, because: str) -> None:
    """Close one; what it held may go on."""
    with existing_ledger(data) as ledger:
        ledger.close_incident(incident_id, because, time.time())


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
