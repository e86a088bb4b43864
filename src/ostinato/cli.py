"""The commands. A door, not a room: it parses, then imports what the command needs, so that help is quick and light."""

import asyncio
import os
import sys
from pathlib import Path
from typing import NoReturn

from cyclopts import App

import ostinato
from ostinato.cli_parts import Data, say
from ostinato.cli_tinyworld import tinyworld
from ostinato.cli_watch import proposed, watch
from ostinato.processes import ERROR, follow_parent
from ostinato.records import BadInputError, OstinatoError

app = App(
    name="ostinato",
    help="Keeps improving a coding agent's model from the way people really use it.",
    version=ostinato.__version__,
    version_flags=["--version"],
)
train = App(name="train", help="Train a version from the ledger.")
rewards = App(name="rewards", help="What sessions were worth, and why.")
app.command(train)
app.command(tinyworld)
app.command(rewards)
app.command(watch)
app.command(proposed)


def main() -> None:
    """Run a command; errors of ours are one or two lines and exit status 1."""
    follow_parent()
    try:
        app()
    except OstinatoError as error:
        fail(error)
    except BrokenPipeError:
        # Whoever read our output has gone; nothing is left to say, not even by the flush at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def fail(error: OstinatoError) -> NoReturn:
    """Print the error with its hint and leave."""
    sys.stderr.write(f"{ERROR}{error.message}\n")
    if error.hint:
        sys.stderr.write(f"  {error.hint}\n")
    sys.exit(1)


@app.command
def demo(
    *,
    data: Data = None,
    quick: bool = False,
    fresh: bool = False,
    cycles: int | None = None,
    persons: int = 400,
    concurrency: int = 16,
    seed: int = 1,
    model: Path | None = None,
    settings: Path | None = None,
) -> None:
    """Turn the whole loop on this machine with simulated persons.

    Args:
        quick: one small cycle in about three minutes; too small to prove anything.
        fresh: move an old data folder aside and begin anew.
        cycles: how many candidates are offered.
        persons: size of the population at a time.
        concurrency: sessions at a time.
        seed: of the population.
        model: the first release, a Hugging Face folder; the shipped seed model by default.
        settings: a TOML file with the cycle's dials.
    """
    import msgspec

    from ostinato.demo import DemoConfig, run_demo
    from ostinato.services import SEED_MODEL, Claim
    from ostinato.settings import data_folder, load_config, move_aside, quick_config
    from ostinato.view import console

    folder = data or data_folder(None) / ("quick" if quick else "demo")
    config = load_config(settings)
    config = quick_config(config) if quick else config
    if cycles is not None:
        config = msgspec.structs.replace(config, cycles=cycles)
    if fresh and folder.exists():
        Claim(folder).release()  # a folder in use stays where it is
        move_aside(folder)
    who = DemoConfig(persons=persons, concurrency=concurrency, seed=seed, model=model or SEED_MODEL, quick=quick)
    sys.exit(run_demo(folder.absolute(), config, who, console()))


@app.command
def serve(*, data: Data = None, model: Path | None = None, port: int = 8080, context: int = 4096) -> None:
    """Serve a model behind the gateway and record every turn.

    Args:
        model: a Hugging Face folder that becomes the first release; later the release of the data folder is served.
        port: of the gateway, on 127.0.0.1; 0 takes a free one.
        context: tokens that a conversation may have, at most what the model was made for.
    """
    from ostinato.serving import run_serve
    from ostinato.settings import data_folder

    run_serve(data_folder(data), model, port, context)


@app.command
def status(*, data: Data = None) -> None:
    """Show every version, the verdicts and the accounts, from the ledger."""
    from ostinato.serving import show_status
    from ostinato.settings import data_folder
    from ostinato.view import console

    show_status(data_folder(data), console())


@app.command
def incidents(*, data: Data = None, close: int | None = None, why: str = "", everything: bool = False) -> None:
    """Show what somebody should look at; a candidate with an open incident is not promoted.

    Args:
        close: the number of an incident that was looked at and may be closed.
        why: the reason, kept with it.
        everything: show closed ones too.
    """
    from ostinato.serving import close_incident, show_incidents
    from ostinato.settings import data_folder
    from ostinato.view import console

    if close is not None:
        if not why.strip():
            raise BadInputError("--close needs a reason.", hint=f'Next: ostinato incidents --close {close} --why "..."')
        close_incident(data_folder(data), close, why)
    show_incidents(data_folder(data), console(), everything=everything)


@app.command
def report(*, data: Data = None) -> None:
    """Write the report and the curves into the data folder."""
    from ostinato.dashboard import write_report
    from ostinato.settings import data_folder, existing_ledger

    folder = data_folder(data)
    with existing_ledger(folder) as ledger:
        sys.stdout.write(f"{write_report(ledger, folder, title='Ostinato')}\n")


@app.command
def doctor() -> None:
    """Say whether this machine has what Ostinato needs, and what to do where it has not."""
    from ostinato.serving import examine

    lines, well = examine()
    sys.stdout.write("\n".join(lines) + "\n")
    sys.exit(0 if well else 1)


@app.command
def engine(
    *,
    data: Data = None,
    slot: list[str],
    port: int = 0,
    threads: int = 1,
    device: str = "cpu",
    context: int = 768,
) -> None:
    """Serve versions of the weights folder: ids in; ids, log-probabilities, experts and versions out.

    Args:
        slot: SLOT=VERSION, as often as wanted.
        context: tokens of context.
    """
    from ostinato.engine import SLOTS, run_engine
    from ostinato.settings import data_folder

    held = dict(text.partition("=")[::2] for text in slot)
    wrong = next((name for name, version in held.items() if name not in SLOTS or not version), None)
    if wrong is not None:
        raise BadInputError(
            f"--slot {wrong}={held[wrong]} is not SLOT=VERSION; the slots are {', '.join(SLOTS)}.",
            hint="Example: --slot release=v-0123456789abcdef",
        )
    run_engine(data_folder(data) / "weights", port, held, threads, device, context)


@app.command
def gateway(*, data: Data = None, engine: str, port: int = 0, context: int = 0) -> None:
    """Serve the OpenAI-compatible door before an engine.

    Args:
        engine: the engine's URL.
        context: tokens of the engine's context; longer conversations are refused at once. 0 leaves it to the engine.
    """
    from ostinato.engine import EngineClient
    from ostinato.gateway import GatewayConfig, run_gateway
    from ostinato.settings import data_folder, existing_ledger
    from ostinato.weights import WeightStore

    folder = data_folder(data)
    with existing_ledger(folder) as ledger:
        held = ledger.current_release()
    if held is None:
        raise BadInputError(f"{folder} has no release yet.", hint="Next: ostinato serve --model DIR")
    frame = WeightStore(folder / "weights").frame(held.version)
    run_gateway(GatewayConfig(port=port, max_context=context), folder, EngineClient(engine), frame)


@app.command
def envs(*, data: Data = None, port: int = 0) -> None:
    """Serve sandboxes; each one is recorded in the ledger."""
    from ostinato.envs import run_envs
    from ostinato.serving import LedgerJournal
    from ostinato.settings import data_folder, open_ledger

    folder = data_folder(data)
    with open_ledger(folder) as ledger:
        run_envs(folder, port, LedgerJournal(ledger))


@app.command
def evaluate(
    *,
    data: Data = None,
    candidate: str,
    release: str,
    gateway: str,
    envs: str,
    tasks: int = 150,
    concurrency: int = 16,
    gate: str = "{}",
) -> None:
    """Run candidate and release on the bench; the last line of output is the gate's answer as JSON.

    Args:
        gate: the gate's settings as JSON.
    """
    import msgspec

    from ostinato.evals import EvaluationConfig, GateConfig
    from ostinato.evals import evaluate as compare
    from ostinato.settings import data_folder, existing_ledger

    try:
        dials = msgspec.json.decode(gate, type=GateConfig)
    except msgspec.DecodeError as error:
        raise BadInputError(f"--gate {gate!r}: {error}.", hint="Example: --gate '{\"margin\": 0.08}'") from None
    config = EvaluationConfig(
        gateway_url=gateway,
        envs_url=envs,
        candidate=candidate,
        release=release,
        tasks=tasks,
        concurrency=concurrency,
        gate=dials,
    )
    with existing_ledger(data_folder(data)) as ledger:
        say(asyncio.run(compare(ledger, config, lambda done, total: say({"done": done, "total": total}))))


@train.command
def rl(
    *,
    data: Data = None,
    parent: str,
    run: str = "",
    limit: int = 100_000,
    learning_rate: float = 4e-4,
    epochs: int = 3,
    replay_plausibility: float = 0.0,
    threads: int = 2,
    flip_rewards: bool = False,
) -> None:
    """Train a child of PARENT on rewarded sessions and publish it; the last line of output is the result as JSON.

    Args:
        run: a name; the same one again finds the finished run.
        limit: at most so many sessions.
        replay_plausibility: a recorded expert is replayed if its score reaches this part of the lowest among the
            router's own choices; 0 replays all.
        flip_rewards: train against the rewards, for a candidate that must be refused; sessions keep their state.
    """
    from ostinato.settings import data_folder
    from ostinato.trainer import RLConfig, train_from_ledger

    config = RLConfig(
        learning_rate=learning_rate,
        epochs=epochs,
        replay_plausibility=replay_plausibility,
        flip_rewards=flip_rewards,
    )
    say(train_from_ledger(data_folder(data), parent, config, limit=limit, run_id=run, threads=threads))


@rewards.command
def explain(session: str, *, data: Data = None) -> None:
    """Take the reward of SESSION apart: parts, signals, and what the person's words told."""
    from ostinato.rewarding import explain_reward
    from ostinato.settings import data_folder
    from ostinato.view import console

    explain_reward(data_folder(data), session, console())


@rewards.command(name="recompute")
def recompute_rewards(*, data: Data = None, settings: Path | None = None, apply: bool = False) -> None:
    """Show what today's rule would change in the rewards that were given.

    Args:
        settings: a TOML file with the cycle's dials; its [distil.rewards] is the rule. The defaults without one.
        apply: store the changed rewards too; the earlier ones stay as history.
    """
    from ostinato.rewarding import recompute_rewards as run
    from ostinato.settings import data_folder, load_config
    from ostinato.view import console

    run(data_folder(data), load_config(settings).distil.rewards, apply, console())
