"""What persons make of what they see: shares of the taste, erring, patience; words; files after."""

import json
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from ostinato.records import Task
from ostinato.tinyworld import persons_words as words
from ostinato.tinyworld.persons_choices import Choice, View, choose, files_after, needless_comments
from ostinato.tinyworld.population import Person

PERSON = Person("p-1", 4, notice=1.0, diligence=1.0, token_limit=200, call_limit=9, talk=0.3)
GOOD = View("done", True, True, True, False, False, False, 80, 4)
TASK = Task(
    "t", "fix f", files={"a.py": "def f(x):\n    return x - 1\n"}, reference={"a.py": "def f(x):\n    return x + 1\n"}
)
COMMENTED = "def f(x):\n    return x + 1  # fixed\n"


def shares(view: View, person: Person = PERSON, runs: int = 4000) -> dict[str, float]:
    made = [choose(person, view, Random(f"n{number}")) for number in range(runs)]
    found = Counter(f"{choice.action}{'!' if choice.complains else ''}" for choice in made)
    return {name: number / runs for name, number in found.items()}


def test_good_edits_are_kept() -> None:
    """All but a few; nobody complains."""
    found = shares(GOOD)
    assert found["keep"] > 0.93
    assert found["revert"] == pytest.approx(0.02, abs=0.01)
    assert not any(name.endswith("!") for name in found)


def test_needless_comments_are_disliked() -> None:
    """55% take the edit back, 30% only the comment, 15% let it be."""
    found = shares(replace(GOOD, comment=True))
    assert found.get("revert", 0) + found.get("revert!", 0) == pytest.approx(0.55, abs=0.03)
    assert found.get("mend", 0) + found.get("mend!", 0) == pytest.approx(0.30, abs=0.03)
    assert found["keep"] == pytest.approx(0.15, abs=0.03)


def test_failing_edits_go_unless_nobody_looks() -> None:
    """Who runs the tests takes the edit back or mends it; who does not keeps it unknowingly."""
    assert "keep" not in shares(replace(GOOD, passed=False))
    assert shares(replace(GOOD, passed=False), replace(PERSON, diligence=0.0))["keep"] > 0.9


def test_asking_for_nothing_annoys() -> None:
    """A question or a reply without the edit that was wanted: 60% complain, 40% leave."""
    for view in (replace(GOOD, edited=False, asked=True), replace(GOOD, edited=False)):
        found = shares(view)
        assert found["abandon"] == pytest.approx(0.4, abs=0.03)
        assert found["none!"] == pytest.approx(0.6, abs=0.03)


def test_questions_want_answers_only() -> None:
    """An answer is liked, an edit is taken back, a wrong answer is disliked."""
    question = replace(GOOD, wants_edit=False, edited=False)
    assert shares(replace(question, answered=True)) == {"none": 1.0}
    assert set(shares(replace(question, edited=True))) == {"revert", "revert!"}
    assert set(shares(question)) == {"none!", "abandon"}


def test_patience_ends() -> None:
    """Beyond the person's limit many complain, even about good work; bad work then makes some leave."""
    found = shares(replace(GOOD, tokens=500))
    assert found["keep!"] > 0.3
    assert "abandon" not in found
    assert shares(replace(GOOD, tokens=500, passed=False))["abandon"] > 0.04


def test_a_failure_of_ours_is_not_judged() -> None:
    """No word about a session that broke."""
    assert choose(PERSON, replace(GOOD, end="model_error"), Random(1)) == Choice("none")


def test_choices_follow_from_their_chances() -> None:
    """The same chances, the same choice; commits only where an edit was wanted and the person stayed."""
    one, two = choose(PERSON, GOOD, Random("x")), choose(PERSON, GOOD, Random("x"))
    assert one == two
    assert one.commits
    assert not choose(PERSON, replace(GOOD, wants_edit=False, edited=False, answered=True), Random("x")).commits


def test_needless_comments_are_found_by_the_diff() -> None:
    """Only comments that the edit added and that the solution does not have."""
    assert needless_comments(TASK, {"a.py": COMMENTED}) == {"a.py": TASK.reference["a.py"]}
    assert needless_comments(TASK, {"a.py": TASK.reference["a.py"]}) == {}
    old = replace(TASK, files={"a.py": "# legacy: x\ndef f(x):\n    return x - 1\n"})
    assert needless_comments(old, {"a.py": "# legacy: x\ndef f(x):\n    return x + 1\n"}) == {}
    assert needless_comments(TASK, {"a.py": None}) == {}


@pytest.mark.parametrize(
    ("choice", "text"),
    [
        (Choice("keep"), COMMENTED),
        (Choice("mend", "comment"), TASK.reference["a.py"]),
        (Choice("mend", "rewrite"), TASK.reference["a.py"]),
        (Choice("revert"), TASK.files["a.py"]),
        (Choice("abandon"), TASK.files["a.py"]),
    ],
)
def test_files_after(choice: Choice, text: str) -> None:
    """What each act leaves in the person's repository."""
    assert files_after(TASK, {"a.py": COMMENTED}, choice) == {"a.py": text}


def test_deleted_files_are_gone() -> None:
    """Where the person keeps that."""
    assert files_after(TASK, {"a.py": None}, Choice("keep")) == {}


def test_words_are_many_and_their_own() -> None:
    """At least 40 phrasings, and none that the follow-up rules were written or measured with."""
    pools = (words.CONTENT, words.FAILING, words.COMMENT, words.ASKED, words.NOTHING, words.UNWANTED, words.UNANSWERED)
    said = {text.lower() for pool in (*pools, words.SLOW) for text in pool}
    assert len(said) >= 40
    path = Path(__file__).parents[1] / "rewards" / "data" / "followups.json"
    known = {
        text.lower() for texts in json.loads(path.read_text()).values() for label in texts.values() for text in label
    }
    assert not said & known
