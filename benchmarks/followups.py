"""Does the product tell a dissatisfied follow-up from one that moves on?

479 messages, written for this and by nobody who saw the rules, in many styles and some in other languages than English
(`data/followups.jsonl`); half are dissatisfied. They are for measuring only: nothing is written or trained with them.
The classifier that ships, against the keyword rules that are one of its inputs.

    python -m benchmarks.followups --json
"""

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.reporting import Figure, finish
from ostinato.rewards import dissatisfaction, rule_score

DATA = Path(__file__).parent / "data" / "followups.jsonl"
BINS = 10


def calibration_error(said: Sequence[float], true: Sequence[bool]) -> float:
    """Expected calibration error over ten equal bins: mean |share that is dissatisfied - mean probability|, weighted
    by messages (arXiv:1706.04599, eq. 3)."""
    bins: dict[int, list[tuple[float, bool]]] = {}
    for probability, label in zip(said, true, strict=True):
        bins.setdefault(min(int(probability * BINS), BINS - 1), []).append((probability, label))
    return sum(abs(sum(p for p, _ in rows) - sum(label for _, label in rows)) for rows in bins.values()) / len(said)


def precision_recall(found: Sequence[bool], true: Sequence[bool]) -> tuple[float, float]:
    """Of the messages that were found: the share that is dissatisfied, and the share of those that were found."""
    both = sum(a and b for a, b in zip(found, true, strict=True))
    return both / max(sum(found), 1), both / sum(true)


def harmonic(one: float, other: float) -> float:
    """F1, of precision and recall."""
    return 2 * one * other / max(one + other, 1e-9)


def figures_of(texts: Sequence[str], true: Sequence[bool]) -> list[Figure]:
    """Precision and recall at one half, calibration, and F1 against the keyword rules."""
    said = [dissatisfaction(text) for text in texts]
    precision, recall = precision_recall([probability >= 0.5 for probability in said], true)
    ruled = precision_recall([rule_score(text) >= 0 for text in texts], true)
    error = calibration_error(said, true)
    lead = harmonic(precision, recall) / harmonic(*ruled)
    return [
        Figure("precision", precision, "at least 0.85", precision >= 0.85, len(texts)),
        Figure("recall", recall, "at least 0.85", recall >= 0.85, sum(true)),
        Figure("calibration error", error, "at most 0.05", error <= 0.05, len(texts)),
        Figure("F1, against keyword rules", lead, "above 1", lead > 1, len(texts)),
        Figure("precision of keyword rules", ruled[0], "", None, len(texts)),
        Figure("recall of keyword rules", ruled[1], "", None, sum(true)),
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
