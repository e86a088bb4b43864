"""Is a follow-up dissatisfied? A linear classifier over the words of a person's next message.

Each message becomes named inputs: its words, pairs of neighbours, the first and the last word, pieces of words (for
endings, typing errors and other languages), its shape, and the score of a small rule set (`followup_rules`). The log
odds are a weighted sum of them, so that every verdict can be taken apart. `scripts/fit_followups.py` fits the weights;
`benchmarks/followups.py` measures them on messages that had no part in it.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from msgspec import Struct

from ostinato.rewards.followup_rules import rule_score

WEIGHTS = Path(__file__).with_name("followups.json")
LONGEST = 2000
"""Characters that are read: half from the beginning and half from the end of a longer message."""

_WORD = re.compile(r"[\u4e00-\u9fff\u3040-\u30ff\uac00-\ud7af]|[^\W\d_]+(?:'[^\W\d_]+)?|[?!]+|\.{3}")
_PIECE = 4
_SHAPES = {
    "traceback": re.compile(
        r"traceback \(most recent|^\s+at \S+\(|^\s*file \".*\", line \d+|panicked at|stack trace", re.MULTILINE
    ),
    "error line": re.compile(
        r"^\s*(?:\w*\.)*\w*(?:error|exception)\b[^\n]{0,40}:|^e\s{2,}|error\[|: error:|fatal:", re.MULTILINE
    ),
    "failed count": re.compile(r"\b[1-9]\d* (?:tests? )?(?:failed|failing|errors?)\b"),
    "passed only": re.compile(r"\A(?!.*\b(?:failed|failing|error)).*\b\d+ (?:tests? )?pass", re.DOTALL),
    "several lines": re.compile(r"\n"),
    "code": re.compile(r"`|\w\(\)|\w_\w|\w\.\w{1,4}\b"),
    "number": re.compile(r"\d"),
    "asks": re.compile(r"\?\s*$"),
    "exclaims": re.compile(r"!"),
    "trails off": re.compile(r"\.\.\.|\u2026"),
    "glad sign": re.compile(
        r"[\U0001f44d\U0001f389\U0001f680\U0001f64f\U0001f4af\u2764\u2705\U0001f60a\U0001f600]|:-?\)"
    ),
    "sad sign": re.compile(r"[\U0001f44e\U0001f620\U0001f621\U0001f644\U0001f926\U0001f62d\U0001f622\u274c]|:-?[(/]"),
}


class Classifier(Struct, frozen=True, forbid_unknown_fields=True):
    """bias: log odds of a message without inputs. weights: by the name of an input. fitted_on: what it learned from."""

    bias: float
    weights: dict[str, float]
    fitted_on: str = ""

    def parts(self, text: str) -> dict[str, float]:
        """What each input adds to the log odds, bias included; inputs without a weight are left out."""
        found = {name: self.weights[name] * value for name, value in inputs_of(text).items() if name in self.weights}
        return {"bias": self.bias, **found}

    def log_odds(self, text: str) -> float:
        """Above 0 where dissatisfied is the likelier."""
        return math.fsum(self.parts(text).values()) if text.strip() else -math.inf

    def probability(self, text: str) -> float:
        """See `dissatisfaction`."""
        odds = self.log_odds(text)
        return 1 / (1 + math.exp(-odds)) if odds > 0 else math.exp(odds) / (1 + math.exp(odds))


def dissatisfaction(text: str) -> float:
    """The probability, 0 to 1, that `text` says that its writer did not get what was wanted. 0 for an empty text."""
    return shipped().probability(text)


@cache
def shipped() -> Classifier:
    """The classifier whose weights come with the package."""
    return Classifier(**json.loads(WEIGHTS.read_text()))


def inputs_of(text: str) -> dict[str, float]:
    """The named inputs of a message. Words, pairs and pieces are each scaled to length 1 (Euclidean), so that a long
    message says no more than a short one; shapes are 0 or 1, and the rules' score is squashed to (-1, 1)."""
    said = text.lower().replace("\u2019", "'")
    if len(said) > LONGEST:
        said = f"{said[: LONGEST // 2]}\n{said[-LONGEST // 2 :]}"
    words = _WORD.findall(said)
    inputs = {"rules": math.tanh(rule_score(said) / 4), f"length {_length(len(words))}": 1.0}
    inputs.update({name: 1.0 for name, shape in _SHAPES.items() if shape.search(said)})
    inputs.update(_scaled(_words(words)))
    inputs.update(_scaled(f"{first}+{second}" for first, second in zip(["^", *words], [*words, "$"], strict=True)))
    inputs.update(_scaled(_pieces(words)))
    return inputs


def _words(words: list[str]) -> Iterable[str]:
    return (f"w:{word}" for word in words)


def _pieces(words: list[str]) -> Iterable[str]:
    for word in words:
        framed = f"<{word}>"
        for start in range(len(framed) - _PIECE + 1):
            yield f"p:{framed[start : start + _PIECE]}"


def _scaled(names: Iterable[str]) -> Mapping[str, float]:
    distinct = dict.fromkeys(names)
    return dict.fromkeys(distinct, 1 / math.sqrt(max(len(distinct), 1)))


def _length(words: int) -> str:
    return next((str(limit) for limit in (1, 2, 3, 5, 8, 12, 20, 40) if words <= limit), "more")
