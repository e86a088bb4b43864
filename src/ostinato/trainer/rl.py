"""`python -m ostinato.trainer.rl`: `train_from_ledger` as a command."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ostinato.records import OstinatoError
from ostinato.trainer.rl_ledger import train_from_ledger
from ostinato.trainer.rl_train import RLConfig


def main(arguments: Sequence[str] | None = None) -> None:
    """Train on the rewarded sessions of a data folder and publish a child of PARENT. One JSON line for each
    step goes to standard output; the last line is the result."""
    defaults = RLConfig()
    parser = argparse.ArgumentParser(prog="python -m ostinato.trainer.rl", description=main.__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the data folder")
    parser.add_argument("--parent", required=True, help="the version to train from")
    parser.add_argument("--limit", type=int, default=100_000, help="at most so many sessions, the newest first")
    parser.add_argument("--run", default="", help="a name; the same one again finds the finished run")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--learning-rate", type=float, default=defaults.learning_rate)
    parser.add_argument("--batch-sessions", type=int, default=defaults.batch_sessions)
    parser.add_argument("--epochs", type=int, default=defaults.epochs)
    parser.add_argument("--max-age", type=int, default=defaults.max_age, help="in promotions")
    parser.add_argument("--baseline", choices=("ridge", "batch_mean"), default=defaults.baseline)
    parser.add_argument("--kl-weight", type=float, default=defaults.kl_weight)
    parser.add_argument("--kl-reference", default=defaults.kl_reference)
    parser.add_argument("--negative-weight", type=float, default=defaults.negative_weight)
    parser.add_argument("--sure-from", type=float, default=defaults.sure_from)
    parser.add_argument("--replay-plausibility", type=float, default=defaults.replay_plausibility)
    parser.add_argument("--seed", type=int, default=defaults.seed)
    parser.add_argument("--flip-rewards", action="store_true", help="train against the rewards: a candidate to block")
    options = vars(parser.parse_args(arguments))
    data, parent, limit, run_id = (options.pop(name) for name in ("data", "parent", "limit", "run"))
    threads = options.pop("threads")
    try:
        result = train_from_ledger(data, parent, RLConfig(**options), limit=limit, run_id=run_id, threads=threads)
    except OstinatoError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(1)
    sys.stdout.write(msgspec.json.encode(result).decode() + "\n")


if __name__ == "__main__":
    main()
