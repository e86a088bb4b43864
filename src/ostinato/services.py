"""The processes of one installation: engine, gateway, environment server; and what the controller makes them do."""

import asyncio
import fcntl
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from msgspec import Struct

from ostinato.engine import EngineClient
from ostinato.envs import probe_isolation
from ostinato.evals import GateResult
from ostinato.loopback import listen
from ostinato.processes import Process, end_all
from ostinato.records import BadInputError, ConflictError, MissingError, OstinatoError, UnavailableError
from ostinato.render import format_for
from ostinato.settings import CycleConfig, open_ledger
from ostinato.store import Ledger
from ostinato.weights import WeightStore

SEED_MODEL = Path(__file__).parent / "tinyworld" / "seed_model"
SEED_CONTEXT = 768
"""Tokens of context in the tiny world, where sessions take at most 450 or so."""


class Addresses(Struct, frozen=True):
    """Where the services listen."""

    engine: str
    gateway: str
    envs: str


class Claim:
    """Keeps a second set of services off a data folder, and says who holds it. The kernel frees it with the process."""

    def __init__(self, data: Path) -> None:
        data.mkdir(parents=True, exist_ok=True)
        handle = os.open(data / "services.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            words = os.pread(handle, 200, 0).decode("utf-8", "replace").strip()
            os.close(handle)
            raise ConflictError(
                f"The data folder {data} is in use by {words or 'another process'}.",
                hint="Stop that process first, or give another folder with --data.",
            ) from None
        self._handle = handle
        self.say(f"process {os.getpid()}")

    def say(self, words: str) -> None:
        """What another process is told about the holder."""
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, words.encode(), 0)

    def release(self) -> None:
        """Let the next one in. A second call does nothing."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def first_release(ledger: Ledger, weights: WeightStore, model: Path) -> str:
    """The version to serve: the release or, where there is none yet, that of the model folder, which becomes the first
    release when the engine has taken it (see `Services`)."""
    held = ledger.current_release()
    if held is not None:
        return held.version
    if not (model / "config.json").exists():
        raise MissingError(
            f"There is no model in {model}: it has no config.json.",
            hint="Name a Hugging Face folder: ostinato serve --model DIR",
        )
    version = weights.import_folder(model).version
    try:
        format_for(weights.frame(version))
    except OstinatoError as error:
        raise BadInputError(f"{model}: {error.message}", hint=error.hint) from error
    return version


class Services:
    """Engine, gateway and environment server of one data folder, as child processes.

    `candidate` is the version that a running experiment's other arm meets; it is in its slot before anybody comes.
    `context` is the number of tokens that a conversation may have, at most what the model was made for.
    A `niceness` above 0 lets a trainer on the same cores go first."""

    def __init__(
        self,
        data: Path,
        release: str,
        *,
        candidate: str = "",
        port: int = 0,
        engine_threads: int = 1,
        context: int = SEED_CONTEXT,
        niceness: int = 0,
    ) -> None:
        self.data = data
        self.logs = data / "runs" / "logs"
        self.children: list[Process] = []
        self._claim = Claim(data)
        try:
            # What fails for a reason that people can mend fails at once, before a large model is loaded.
            listen(port).close()
            _check_isolation()
            slots = ["--slot", f"release={release}", *(["--slot", f"candidate={candidate}"] if candidate else [])]
            fits = ["--context", str(_context(WeightStore(data / "weights").frame(release), context))]
            engine = self.start("engine", ["engine", *slots, *fits], threads=engine_threads, niceness=niceness)
            envs = self.start("envs", ["envs"], niceness=niceness)
            engine_url = _url(self._taken(engine, release))
            self._put_first(release)
            door = ["gateway", "--engine", engine_url, "--port", str(port), *fits]
            gateway = self.start("gateway", door, niceness=niceness)
            self.addresses = Addresses(engine_url, _url(gateway.ready()), _url(envs.ready()))
            self._claim.say(f"process {os.getpid()}, which serves at {self.addresses.gateway}/v1")
        except BaseException:
            self.end()
            raise

    def _taken(self, engine: Process, release: str) -> dict[str, Any]:
        """The engine's first line. Where it refuses a version that came from a folder, the error names the folder."""
        try:
            return engine.ready()
        except UnavailableError as error:
            source = WeightStore(self.data / "weights").get(release).meta.get("source")
            where = f" Version {release} was read from {source}." if source else ""
            raise UnavailableError(error.message + where, hint=error.hint) from None

    def _put_first(self, version: str) -> None:
        """A version that the engine has taken becomes the release where there is none."""
        with open_ledger(self.data) as ledger:
            if ledger.current_release() is None:
                held = WeightStore(self.data / "weights").get(version)
                ledger.put_version(held)
                ledger.put_release(held.version, held.created_at)

    def start(self, name: str, arguments: list[str], *, threads: int = 1, niceness: int = 0) -> Process:
        """Start one of our commands on this data folder; it ends with the services."""
        process = Process(name, [*arguments, "--data", str(self.data)], self.logs, threads=threads, niceness=niceness)
        self.children.append(process)
        return process

    def check(self) -> None:
        """Raise `UnavailableError` if a child has died."""
        for child in self.children:
            child.check()

    def forget(self, process: Process) -> None:
        """A command that has ended is watched no longer."""
        self.children.remove(process)

    def end(self) -> None:
        """End every child. A second call does nothing."""
        end_all(self.children)
        self.children.clear()
        self._claim.release()


class ServiceHands:
    """`cycle.Hands` by processes and HTTP."""

    def __init__(self, services: Services, config: CycleConfig, http: aiohttp.ClientSession) -> None:
        self._services = services
        self._config = config
        self._http = http
        self._engine = EngineClient(services.addresses.engine)

    async def train(
        self, parent: str, run: str, progress: Callable[[int, int], None], *, damaged: bool
    ) -> dict[str, Any]:
        """See `cycle.Hands.train`."""
        dials = self._config.training
        arguments = ["train", "rl", "--parent", parent, "--run", run, "--limit", str(dials.most_sessions)]
        arguments += ["--learning-rate", str(dials.learning_rate), "--epochs", str(dials.epochs)]
        arguments += ["--threads", str(dials.threads), "--replay-plausibility", str(dials.replay_plausibility)]
        arguments += ["--flip-rewards"] if damaged else []
        return await self._command(
            "trainer", arguments, threads=dials.threads, on_line=lambda line: progress(line["done"], line["total"])
        )

    async def evaluate(self, candidate: str, release: str, progress: Callable[[int, int], None]) -> GateResult:
        """See `cycle.Hands.evaluate`."""
        where = self._services.addresses
        arguments = ["evaluate", "--candidate", candidate, "--release", release, "--gateway", where.gateway]
        arguments += ["--envs", where.envs, "--tasks", str(self._config.bench_tasks)]
        arguments += ["--concurrency", str(self._config.bench_concurrency)]
        arguments += ["--gate", msgspec.json.encode(self._config.gate).decode()]
        result = await self._command(
            "evaluation", arguments, on_line=lambda line: progress(line["done"], line["total"])
        )
        return msgspec.convert(result, GateResult)

    async def load(self, slot: str, version: str) -> None:
        """See `cycle.Hands.load`."""
        held = {status.slot: status.version for status in await self._engine.slots()}
        if held.get(slot) != version:
            await self._engine.load(slot, version)
        await self._refresh()

    async def drop(self, slot: str) -> None:
        """See `cycle.Hands.drop`."""
        await self._refresh()
        if slot in {status.slot for status in await self._engine.slots()}:
            await self._engine.drop(slot)

    def check(self) -> None:
        """See `cycle.Hands.check`."""
        self._services.check()

    async def close(self) -> None:
        """Let go of the connections."""
        await self._engine.close()

    async def _refresh(self) -> None:
        """The gateway reads the release and the experiment anew."""
        async with self._http.post(f"{self._services.addresses.gateway}/admin/refresh") as answer:
            if answer.status != 200:
                raise UnavailableError(f"The gateway refused to refresh: {await answer.text()}.")

    async def _command(
        self,
        name: str,
        arguments: list[str],
        *,
        threads: int = 1,
        on_line: Callable[[dict[str, Any]], None] = lambda _: None,
    ) -> dict[str, Any]:
        """Run one of our commands to its end: JSON lines of progress, the last one the result."""
        process = self._services.start(name, arguments, threads=threads)

        def read() -> dict[str, Any]:
            last: dict[str, Any] = {}
            for line in process.stdout:
                last = json.loads(line)
                if "done" in last:
                    on_line(last)
            process.finish()
            return last

        try:
            return await asyncio.to_thread(read)
        finally:
            self._services.forget(process)


def _url(ready: dict[str, Any]) -> str:
    return f"http://127.0.0.1:{ready['port']}"


def _context(frame: dict[str, bytes], wanted: int) -> int:
    """Tokens of context to serve: as wanted, but no more than the model was made for."""
    known = json.loads(frame["config.json"]).get("max_position_embeddings") if "config.json" in frame else None
    return min(wanted, known) if isinstance(known, int) else wanted


def _check_isolation() -> None:
    found = asyncio.run(probe_isolation())
    if not found.works:
        raise UnavailableError(found.problem, hint=found.hint)
