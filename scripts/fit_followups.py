"""Fit the classifier of follow-ups afresh.

Reads labelled messages (one JSON object a line: text, label 1 for dissatisfied or 0, style), one file for each writer,
prints how the classifier does on each writer when it learned from the others only, calibrates it on held-out tenths of
all messages, then fits on all of them and writes the weights that ship. Run from the repository's root:

    python scripts/fit_followups.py
    python scripts/fit_followups.py --messages DIR --out FILE     # from messages of your own
"""

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.optimize import minimize
from scipy.sparse import csr_matrix

from ostinato.rewards.followups import WEIGHTS, Classifier, inputs_of

MESSAGES = Path(__file__).parent / "followups"
LEAST = 3
"""Messages that an input must occur in to get a weight."""
PENALTY = 0.3
"""Times half the sum of squared weights: the strength of the prior, chosen on held-out writers."""
FOLDS, SEED = 10, 0
DIGITS = 3

Message = tuple[str, bool]


def read(path: Path) -> list[Message]:
    """The messages of one writer with their labels."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [(row["text"], row["label"] == 1) for row in rows]


def fit(messages: Sequence[Message], slope: float = 1.0) -> Classifier:
    """Logistic regression with an L2 penalty. The log odds are then multiplied by `slope` (Platt's scaling)."""
    found = [inputs_of(text) for text, _ in messages]
    counts = Counter(name for inputs in found for name in inputs)
    names = sorted(name for name, count in counts.items() if count >= LEAST)
    design, true = _design(found, names), np.array([label for _, label in messages], dtype=np.float64)

    def loss(point: np.ndarray) -> tuple[float, np.ndarray]:
        odds = design @ point[1:] + point[0]
        wrong = 1 / (1 + np.exp(-odds)) - true
        value = np.logaddexp(0, odds).sum() - odds @ true + PENALTY / 2 * (point[1:] @ point[1:])
        return float(value), np.concatenate([[wrong.sum()], design.T @ wrong + PENALTY * point[1:]])

    best = slope * minimize(loss, np.zeros(len(names) + 1), jac=True, method="L-BFGS-B").x
    weights = {name: round(float(value), DIGITS) for name, value in zip(names, best[1:], strict=True)}
    kept = {name: value for name, value in weights.items() if value}
    return Classifier(round(float(best[0]), DIGITS), kept, f"{len(messages)} messages")


def _design(found: Sequence[dict[str, float]], names: Sequence[str]) -> csr_matrix:
    column = {name: index for index, name in enumerate(names)}
    cells = [
        (row, column[name], value)
        for row, inputs in enumerate(found)
        for name, value in inputs.items()
        if name in column
    ]
    rows, columns, values = zip(*cells, strict=True)
    return csr_matrix((values, (rows, columns)), shape=(len(found), len(names)))


def slope_of(odds: Sequence[float], true: Sequence[bool]) -> float:
    """What held-out log odds must be multiplied by to be calibrated, by maximum likelihood."""
    x, y = np.array(odds), np.array(true, dtype=np.float64)
    return float(minimize(lambda s: float((np.logaddexp(0, s * x) - s * x * y).sum()), 1.0, method="Nelder-Mead").x[0])


def by_writer(writers: dict[str, list[Message]]) -> None:
    """Print how each writer's messages are told apart by what the others taught. With few writers this is a hard test:
    each one that is left out takes a good part of what there is to learn from."""
    for name, own in writers.items():
        others = [message for other, messages in writers.items() if other != name for message in messages]
        classifier = fit(others)
        _print(name, [classifier.log_odds(text) for text, _ in own], [label for _, label in own])


def calibration(messages: Sequence[Message]) -> float:
    """The slope of calibration, from the log odds of each tenth of the messages by what the others taught."""
    order = np.random.default_rng(SEED).permutation(len(messages))
    odds: list[float] = []
    true: list[bool] = []
    for fold in range(FOLDS):
        left_out = set(order[fold::FOLDS].tolist())
        classifier = fit([message for n, message in enumerate(messages) if n not in left_out])
        odds += [classifier.log_odds(messages[n][0]) for n in sorted(left_out)]
        true += [messages[n][1] for n in sorted(left_out)]
    _print(f"all, held out in {FOLDS} parts", odds, true)
    return slope_of(odds, true)


def _print(name: str, odds: Sequence[float], true: Sequence[bool]) -> None:
    found = [label for value, label in zip(odds, true, strict=True) if value > 0]
    precision, recall = sum(found) / max(len(found), 1), sum(found) / sum(true)
    print(f"{name}: {len(true)} messages, precision {precision:.3f}, recall {recall:.3f}")


def main() -> None:
    """Judge, fit and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=Path, default=MESSAGES, help="a folder of .jsonl files, one for each writer")
    parser.add_argument("--out", type=Path, default=WEIGHTS, help="where the weights go")
    options = parser.parse_args()
    writers = {path.stem: read(path) for path in sorted(options.messages.glob("*.jsonl"))}
    by_writer(writers)
    messages = [message for own in writers.values() for message in own]
    slope = calibration(messages)
    print(f"slope of calibration {slope:.2f}")
    classifier = fit(messages, slope)
    rows = ",\n".join(f"{json.dumps(name)}: {value}" for name, value in classifier.weights.items())
    head = f'{{"bias": {classifier.bias}, "fitted_on": {json.dumps(classifier.fitted_on)}, "weights": {{'
    options.out.write_text(f"{head}\n{rows}\n}}}}\n")
    print(f"{len(classifier.weights)} weights in {options.out}")


if __name__ == "__main__":
    main()
