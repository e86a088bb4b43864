"""The follow-up rules, measured on phrasings that neither the rules were written with nor the persons use."""

import json
from pathlib import Path

import pytest

from ostinato.rewards import dissatisfaction

PHRASINGS = json.loads((Path(__file__).parent / "data" / "followups.json").read_text())


def precision_recall(texts: dict[str, list[str]]) -> tuple[float, float]:
    found = [text for text in texts["dissatisfied"] if dissatisfaction(text) >= 0.5]
    false = [text for text in texts["satisfied"] if dissatisfaction(text) >= 0.5]
    return len(found) / (len(found) + len(false)), len(found) / len(texts["dissatisfied"])


def test_measured_on_unseen_phrasings() -> None:
    """Measured once, after the rules were written, on 44 + 44 phrasings: precision .91, recall .73. The bounds leave
    room for a change of rules, not for a bad one."""
    precision, recall = precision_recall(PHRASINGS["measured"])
    assert precision >= 0.85
    assert recall >= 0.65


def test_development_phrasings() -> None:
    """The phrasings that the rules were written with (44 + 44): all but a few are told apart."""
    precision, recall = precision_recall(PHRASINGS["development"])
    assert precision >= 0.95
    assert recall >= 0.95


def test_sets_are_balanced_and_apart() -> None:
    """No phrasing is in both sets, and each set has as many of either label."""
    development, measured = PHRASINGS["development"], PHRASINGS["measured"]
    for texts in (development, measured):
        assert len(texts["dissatisfied"]) == len(texts["satisfied"]) >= 40
    known = {text.lower() for texts in development.values() for text in texts}
    assert not known & {text.lower() for texts in measured.values() for text in texts}


@pytest.mark.parametrize(
    ("text", "expected"),
    [("It works, thanks", False), ("It does not work", True), ("no longer broken, thanks", False), ("", False)],
)
def test_negation(text: str, expected: bool) -> None:
    """A negation turns a cue round; an empty text says nothing."""
    assert (dissatisfaction(text) >= 0.5) is expected


def test_it_is_a_probability_for_any_text() -> None:
    """Odd texts give a number between 0 and 1."""
    for text in ("\u2019" * 50, "a" * 5000, "\n\t ", "?!?!" * 20, "не работает"):
        assert 0.0 <= dissatisfaction(text) <= 1.0
