"""How small is an update of the weights?

Persons use the seed model; then 20 real steps of reinforcement learning from their sessions, at each of three learning
rates, and after each step what would be sent: the whole file of the link from the version before (its table and
checksums included), against the full BF16 file, against zstd (level 9) over the XOR of all tensors, and against 32-bit
index and value of each changed element.

    python -m benchmarks.delta --json
    python -m benchmarks.delta --sessions 200      # a shorter look
"""

import argparse
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import torch
import zstandard
from msgspec.structs import replace

from benchmarks.recording import record
from benchmarks.reporting import Figure, finish
from ostinato.store import Ledger, TrainSession
from ostinato.trainer import RLConfig, train_rl
from ostinato.trainer.checkpoint import Learner
from ostinato.weights import Arrays, WeightStore
from ostinato.weights.content import bits

SESSIONS = 640
STEPS = 20
TARGETS = {1e-6: 100.0, 1e-5: 40.0, 1e-4: 8.0}
LEVEL = 9


class Sizes(NamedTuple):
    """Bytes of one update, by each way to send it, and the share of elements that changed."""

    ours: int
    full: int
    xor: int
    indexed: int
    changed: float


def sizes_of(old: Arrays, new: Arrays, scratch: Path) -> Sizes:
    """What it takes to turn `old` into `new`."""
    with TemporaryDirectory(dir=scratch) as folder:
        store = WeightStore(Path(folder))
        parent = store.publish(old, parent=None)
        child = store.publish(new, parent=parent.version)
        assert child.kind == "delta", child
        ours = (Path(folder) / "links" / f"{child.version}.weights").stat().st_size
    xor = np.concatenate([np.bitwise_xor(bits(old[name]), bits(new[name])) for name in sorted(new)])
    changed = int(np.count_nonzero(xor))
    return Sizes(
        ours=ours,
        full=child.full_bytes,
        xor=len(zstandard.ZstdCompressor(level=LEVEL).compress(xor.tobytes())),
        indexed=changed * (4 + xor.dtype.itemsize),
        changed=changed / xor.size,
    )


def updates(data: Path, parent: str, sessions: list[TrainSession], learning_rate: float) -> list[Sizes]:
    """The sizes of the updates of each step."""
    weights = WeightStore(data / "weights")
    states: list[Arrays] = [weights.fetch(parent)]

    class Kept(Learner):
        """A learner whose published bits are kept after each step."""

        def step(self) -> float:
            norm = super().step()
            states.append({name: array.copy() for name, array in self.bits().items()})
            return norm

    config = replace(RLConfig(), learning_rate=learning_rate, batch_sessions=max(len(sessions) // STEPS, 1))
    with patch("ostinato.trainer.rl_train.Learner", Kept):
        train_rl(config, sessions, parent, weights, data / f"trainer-{learning_rate}", threads=2)
    pairs = list(pairwise(states))[:STEPS]
    assert len(pairs) == STEPS, len(pairs)
    return [sizes_of(old, new, data) for old, new in pairs]


def main() -> None:
    """Run, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    parser.add_argument("--sessions", type=int, default=SESSIONS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    figures, told = [], []
    with TemporaryDirectory() as scratch:
        parent = record(Path(scratch), options.sessions)
        with Ledger.open(Path(scratch)) as ledger:
            sessions = list(ledger.training_sessions(options.sessions, experts_shape=(4, 2)))
        for rate, target in TARGETS.items():
            rows = updates(Path(scratch), parent, sessions, rate)
            ours, full, xor, indexed = (sum(row[n] for row in rows) for n in range(4))
            name = f"learning rate {rate:g}"
            figures += [
                Figure(
                    f"{name}: full file / update", full / ours, f"at least {target:g}", full >= target * ours, STEPS
                ),
                Figure(f"{name}: zstd of XOR / update", xor / ours, "above 1", xor > ours, STEPS),
                Figure(f"{name}: index and value / update", indexed / ours, "above 1", indexed > ours, STEPS),
            ]
            changed = sum(row.changed for row in rows) / len(rows)
            told.append(f"{rate:g}: {changed:.2%} of elements change in a step, {ours / STEPS:,.0f} bytes")
    notes = f"Seed model, {len(sessions)} sessions, {STEPS} steps. {'; '.join(told)}."
    finish("delta", figures, notes, as_json=options.json)


if __name__ == "__main__":
    main()
