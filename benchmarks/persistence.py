"""Does the product know what became of an edit?

1,000 generated histories of real git repositories (`benchmarks.histories`), in which the fate of each line is known.
The edit is followed as `ostinato watch` follows it: it is told the texts before and after, and then sees nothing but
the repository, at each horizon and at most of the moments when the checked-out commit changes. A hunk is right where
the measured share of it that survives is within a tenth of the truth, or where both say that it is set aside in a
stash. The peer is the measure that VS Code sends, four-gram survival at the edit's place in the working tree.

Meanwhile `ostinato watch` runs for ten minutes on a repository of 4,000 files in which it follows one edit and nothing
happens; its processor time is read from the kernel, from the line that says it is ready on.

    python -m benchmarks.persistence --json
    python -m benchmarks.persistence --histories 50 --idle 30 --misses     # a shorter look, with what came out wrong
"""

import argparse
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.histories import History, TrueHunk, begin, propose
from benchmarks.history_steps import go_on
from benchmarks.reporting import Figure, finish
from ostinato.feedback import Checkout, EditFollower, HunkState, edit_since, edit_survival, leave_edit, propose_edit

HISTORIES = 1000
HORIZONS = ("30 s", "2 min", "5 min", "10 min", "15 min", "1 day", "7 days")
STEPS_BETWEEN = (0, 0, 1, 1, 2, 3)
"""Steps of the person between two horizons, one of them drawn."""
SEEN = 0.75
"""Of the moments between horizons at which the follower looks, as a watcher that polls does."""
NEAR = 0.1
FILES = 4000
IDLE_S = 600.0
AUTHOR = ("-c", "user.name=ann", "-c", "user.email=ann@example.org")
SEED = 40_000

Shares = Sequence[float | None]


def follow(folder: Path, seed: int) -> tuple[History, list[tuple[Shares, Shares, Shares]]]:
    """One history: at each horizon the truth, what we say and what the peer says, by hunk."""
    history = begin(folder, seed)
    texts = propose(history)
    with Checkout(folder) as checkout:
        follower = EditFollower(propose_edit(checkout, f"edit-{seed}", "", 0.0, texts))
    rows = []
    for _ in HORIZONS:
        for _ in range(history.rng.choice(STEPS_BETWEEN)):
            go_on(history)
            if history.rng.random() < SEEN:
                _measure(follower, folder)
        rows.append((_truth(history), _said(history, follower, folder), _peer(history, folder, texts)))
    return history, rows


def _measure(follower: EditFollower, folder: Path) -> tuple[float | None, list[HunkState]]:
    with Checkout(folder) as checkout:
        found = follower.measure(checkout)
    return found.share, found.hunks


def _truth(history: History) -> Shares:
    truth = history.truth()
    return [None] * len(history.hunks) if truth is None else truth


def _said(history: History, follower: EditFollower, folder: Path) -> Shares:
    share, hunks = _measure(follower, folder)
    return [None if share is None else _of_hunk(true, hunks) for true in history.hunks]


def _of_hunk(true: TrueHunk, hunks: Sequence[HunkState]) -> float:
    """What was measured of one true hunk: a mean, where the product saw several in its place."""
    own = [hunk for hunk in hunks if hunk.path == true.path and true.line <= hunk.line <= true.line + true.lines]
    assert own, (true, hunks)
    return sum(hunk.share * hunk.weight for hunk in own) / sum(hunk.weight for hunk in own)


def _peer(history: History, folder: Path, texts: Mapping[str, tuple[str, str]]) -> Shares:
    found = []
    for hunk in history.hunks:
        before, after = texts[hunk.path]
        place = folder / hunk.path
        now = {hunk.path: place.read_text()} if place.exists() else {}
        scores = edit_survival({hunk.path: before}, {hunk.path: after}, now)
        found.append(min(scores.four_gram, scores.no_revert))
    return found


def right(truth: float | None, said: float | None) -> bool:
    """Whether a hunk was judged as it is."""
    return truth is said if truth is None or said is None else abs(truth - said) <= NEAR


class IdleWatch:
    """`ostinato watch` on a repository of 4,000 files with one edit in it."""

    def __init__(self, root: Path) -> None:
        root.mkdir()
        for number in range(FILES):
            place = root / f"package{number % 80}" / f"module{number}.py"
            place.parent.mkdir(exist_ok=True)
            place.write_text(f"def function{number}(x):\n    return x + {number}\n")
        for command in (["init", "-q"], ["add", "-A"], [*AUTHOR, "commit", "-q", "-m", "Start"]):
            subprocess.run(["git", "-C", str(root), *command], check=True)
        (root / "package0" / "module0.py").write_text("def function0(x):\n    return x - 1\n")
        with Checkout(root) as checkout:
            leave_edit(checkout, edit_since(checkout, "response", "HEAD", time.time()))
        command = [sys.executable, "-m", "ostinato", "watch", str(root), "--gateway", "http://127.0.0.1:9"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._process.stdout.readline()
        self._begin, self._used = time.monotonic(), self._processor_s()

    def end(self, seconds: float) -> float:
        """Let it run until `seconds` after its start; the share of one processor that it took since."""
        time.sleep(max(self._begin + seconds - time.monotonic(), 0))
        share = (self._processor_s() - self._used) / (time.monotonic() - self._begin)
        self._process.terminate()
        said, _ = self._process.communicate(timeout=30)
        assert "Edits taken in: 1" in said, said
        return share

    def _processor_s(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Run, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    parser.add_argument("--histories", type=int, default=HISTORIES)
    parser.add_argument("--misses", action="store_true", help="print each hunk that was judged wrongly")
    parser.add_argument("--idle", type=float, default=IDLE_S, help="seconds that the idle watcher runs")
    options = parser.parse_args()
    good: Counter[str] = Counter()
    peer_good = hunks = 0
    with TemporaryDirectory() as scratch:
        idle = IdleWatch(Path(scratch) / "idle")
        for number in range(options.histories):
            history, rows = follow(Path(scratch) / "repo", SEED + number)
            hunks += len(history.hunks)
            for horizon, (truth, said, peer) in zip(HORIZONS, rows, strict=True):
                good[horizon] += sum(map(right, truth, said))
                peer_good += sum(map(right, truth, peer))
                if options.misses and not all(map(right, truth, said)):
                    sys.stderr.write(f"{SEED + number} {horizon}: {truth} {said} {history.log}\n")
        share = idle.end(options.idle)
    figures = [
        Figure(
            f"hunks right after {horizon}", good[horizon] / hunks, "at least 0.98", good[horizon] >= 0.98 * hunks, hunks
        )
        for horizon in HORIZONS
    ]
    lead = good.total() / peer_good
    figures.append(Figure("hunks right, against the peer", lead, "above 1", lead > 1, hunks))
    words = f"processor share of an idle watcher over {options.idle:.0f} s"
    figures.append(Figure(words, share, "below 0.001", share < 0.001, FILES))
    peer_share = peer_good / hunks / len(HORIZONS)
    notes = f"{options.histories} histories, {hunks} hunks; the peer is right about {peer_share:.3f}."
    finish("persistence", figures, notes, as_json=options.json)


if __name__ == "__main__":
    main()
