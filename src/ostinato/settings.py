"""Settings: where the data lie, and the dials of the cycle, which a TOML file may set."""

import os
import sqlite3
import tomllib
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from ostinato.deploy import ExperimentConfig, MonitorConfig
from ostinato.evals import GateConfig
from ostinato.records import BadInputError, MissingError
from ostinato.rewards import DistilConfig
from ostinato.store import Ledger


class TrainingDials(Struct, frozen=True, forbid_unknown_fields=True):
    """What the trainer is told: AdamW's learning rate, passes over the batch, threads, the most sessions, and from
    which part of the router's own lowest choice on a recorded expert is replayed (0: always)."""

    learning_rate: float = 4e-4
    epochs: int = 3
    threads: int = 2
    most_sessions: int = 1200
    replay_plausibility: float = 0.0


class CycleConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The dials of the loop.

    cycles: how many candidates are offered. first_sessions: trainable sessions to collect before the first candidate;
    sessions: before each later one (those of the experiment before count). bench_tasks: size of the bench.
    attribution_s: looks at an experiment leave out sessions that opened less than so many seconds ago.
    damaged_cycle: the candidate of this cycle is damaged, to show that the gate refuses it (0: none)."""

    cycles: int = 4
    first_sessions: int = 1200
    sessions: int = 900
    bench_tasks: int = 250
    bench_concurrency: int = 16
    attribution_s: float = 25.0
    damaged_cycle: int = 3
    training: TrainingDials = TrainingDials()
    gate: GateConfig = GateConfig()
    experiment: ExperimentConfig = ExperimentConfig()
    monitors: MonitorConfig = MonitorConfig()
    distil: DistilConfig = DistilConfig()


def quick_config(config: CycleConfig) -> CycleConfig:
    """One small cycle: too small to prove anything, large enough to walk through every room."""
    return msgspec.structs.replace(
        config,
        cycles=1,
        first_sessions=160,
        sessions=160,
        bench_tasks=25,
        damaged_cycle=0,
        gate=msgspec.structs.replace(config.gate, margin=0.5, looks=1),
        experiment=msgspec.structs.replace(config.experiment, burn_in=30, horizon=150),
    )


def data_folder(given: Path | None) -> Path:
    """The data folder: as given, else $OSTINATO_DATA, else ./.ostinato. Raises `BadInputError` for a file."""
    folder = (given or Path(os.environ.get("OSTINATO_DATA") or ".ostinato")).absolute()
    if folder.exists() and not folder.is_dir():
        raise BadInputError(f"{folder} is a file, not a data folder.", hint="Name a folder with --data.")
    return folder


def open_ledger(folder: Path) -> Ledger:
    """The ledger of a data folder, made where there is none. Raises `BadInputError` where it cannot be read or made."""
    try:
        return Ledger.open(folder)
    except OSError as error:
        raise BadInputError(
            f"The data folder {folder} cannot be used: {error.strerror}.", hint="Give another folder with --data."
        ) from error
    except sqlite3.DatabaseError as error:
        raise BadInputError(
            f"{folder / 'ledger.sqlite'} cannot be read: {error}.",
            hint="Restore it from a backup, or give another folder with --data.",
        ) from error


def existing_ledger(folder: Path) -> Ledger:
    """The ledger of a data folder that is there. Raises `MissingError` where there is none."""
    if not (folder / "ledger.sqlite").exists():
        raise MissingError(
            f"There is no ledger in {folder}.", hint="Next: ostinato demo, or ostinato serve --model DIR"
        )
    return open_ledger(folder)


def move_aside(folder: Path) -> Path | None:
    """Move an old data folder to the first free name beside it; nothing is deleted. None where there was none."""
    if not folder.exists():
        return None
    aside = next(name for n in count(1) if not (name := folder.with_name(f"{folder.name}.{n}")).exists())
    folder.rename(aside)
    return aside


def load_config(path: Path | None) -> CycleConfig:
    """Read the cycle's dials from a TOML file; the defaults without one. Unknown keys are refused by name."""
    if path is None:
        return CycleConfig()
    try:
        values: dict[str, Any] = tomllib.loads(path.read_text())
        return msgspec.convert(values, CycleConfig)
    except FileNotFoundError:
        raise BadInputError(
            f"There is no settings file {path}.", hint="Leave --settings out for the defaults."
        ) from None
    except OSError as error:
        raise BadInputError(f"The settings file {path} cannot be read: {error.strerror}.") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise BadInputError(f"Settings in {path}: {error}.", hint="See docs/settings.md for every key.") from None
