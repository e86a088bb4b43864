"""Does the product tell a dissatisfied follow-up from one that moves on?

480 messages, written for this and by nobody who saw the rules, in many styles and some in other languages than English
(`data/followups.jsonl`); half are dissatisfied. They are for measuring only: nothing is written or trained with them.

    python -m benchmarks.followups --json
"""

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.reporting import Figure, finish
from ostinato.rewards import dissatisfaction

DATA = Path(__file__).parent / "data" / "followups.jsonl"
BINS = 10


def calibration_error(said: Sequence[float], true: Sequence[bool]) -> float:
    """Expected calibration error over ten equal bins: mean |share that is dissatisfied - mean probability|, weighted
    by messages (arXiv:1706.04599, eq. 3)."""
    bins: dict[int, list[tuple[float, bool]]] = {}
    for probability, label in zip(said, true, strict=True):
        bins.setdefault(min(int(probability * BINS), BINS - 1), []).append((probability, label))
    return sum(abs(sum(p for p, _ in rows) - sum(label for _, label in rows)) for rows in bins.values()) / len(said)


def figures_of(texts: Sequence[str], true: Sequence[bool]) -> list[Figure]:
    """Precision and recall at one half, and calibration."""
    said = [dissatisfaction(text) for text in texts]
    found = [label for probability, label in zip(said, true, strict=True) if probability >= 0.5]
    precision, recall = sum(found) / max(len(found), 1), sum(found) / sum(true)
    error = calibration_error(said, true)
    return [
        Figure("precision", precision, "at least 0.85", precision >= 0.85, len(found)),
        Figure("recall", recall, "at least 0.85", recall >= 0.85, sum(true)),
        Figure("calibration error", error, "at most 0.05", error <= 0.05, len(texts)),
    ]


def main() -> None:
    """Run, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    options = parser.parse_args()
    rows = [json.loads(line) for line in DATA.read_text().splitlines()]
    true = [row["label"] == 1 for row in rows]
    styles = Counter(row["style"] for row in rows)
    notes = f"{sum(true)} of {len(rows)} are dissatisfied. Styles: {', '.join(sorted(styles))}."
    finish("followups", figures_of([row["text"] for row in rows], true), notes, as_json=options.json)


if __name__ == "__main__":
    main()
