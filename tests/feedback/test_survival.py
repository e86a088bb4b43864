"""Survival of edits: known cases and bounds."""

from hypothesis import given
from hypothesis import strategies as st

from ostinato.feedback import EditTracker, edit_survival, four_gram_similarity, line_counts

BEFORE = {"m.py": "import os\n\ndef take(a, b):\n    return a + b\n", "n.py": "X = 1\n"}
AFTER = BEFORE | {"m.py": "import os\n\ndef take(a, b):\n    return a - b  # fixed\n"}


def test_similarity_counts_shared_grams() -> None:
    """The value equals the definition worked out by hand."""
    assert four_gram_similarity("abcdef", "abcdxx") == 2 * 1 / 6
    assert four_gram_similarity("abc", "abd") == 0.0
    assert four_gram_similarity("abc", "abc") == 1.0


def test_untouched_edit_survives_whole() -> None:
    """Nothing done since the edit: both scores are 1."""
    score = edit_survival(BEFORE, AFTER, AFTER)
    assert (score.four_gram, score.no_revert) == (1.0, 1.0)


def test_reverted_edit_has_no_revert_zero() -> None:
    """The text before the edit is back: no_revert is 0, although most of the file is the same."""
    score = edit_survival(BEFORE, AFTER, BEFORE)
    assert score.no_revert == 0.0
    assert score.four_gram < 0.7


def test_mended_edit_lies_between() -> None:
    """The comment taken away, the change of code kept."""
    score = edit_survival(BEFORE, AFTER, AFTER | {"m.py": AFTER["m.py"].replace("  # fixed", "")})
    assert 0.3 < score.four_gram < 1.0
    assert 0.3 < score.no_revert < 1.0


def test_work_elsewhere_does_not_count() -> None:
    """Lines added around the edit, and other files, leave its scores alone."""
    now = {"m.py": "# head\n" + AFTER["m.py"] + "\n\ndef more():\n    return 3\n", "n.py": "X = 2\n"}
    score = edit_survival(BEFORE, AFTER, now)
    assert (score.four_gram, score.no_revert) == (1.0, 1.0)


def test_deletion_that_comes_back_is_a_revert() -> None:
    """An edit that only removes a line: kept while the line is away, reverted when it is back."""
    after = BEFORE | {"m.py": BEFORE["m.py"].replace("import os\n\n", "")}
    kept, back = edit_survival(BEFORE, after, after), edit_survival(BEFORE, after, BEFORE)
    assert (kept.four_gram, kept.no_revert) == (1.0, 1.0)
    assert (back.four_gram, back.no_revert) == (0.0, 0.0)


def test_new_file_removed_is_a_revert() -> None:
    """A file that the edit created and that is gone."""
    after = BEFORE | {"new.py": "Y = 2 + 3\n"}
    assert edit_survival(BEFORE, after, BEFORE).no_revert == 0.0
    assert edit_survival(BEFORE, after, after).four_gram == 1.0


def test_tracker_names_changed_files_and_lines() -> None:
    """Only changed files are followed."""
    tracker = EditTracker(BEFORE, AFTER)
    assert tracker.files == ("m.py",)
    assert (tracker.lines_added, tracker.lines_removed) == (1, 1)
    assert tracker.survival(AFTER).no_revert == 1.0


def test_line_counts_over_files() -> None:
    """Added and removed lines are summed over files."""
    assert line_counts({"a": "1\n2\n", "b": "x\n"}, {"a": "1\n2\n3\n"}) == (1, 1)


LINES = st.lists(st.sampled_from(["a = 1\n", "b = 22\n", "return a + b\n", "\n", "x\n"]), max_size=8).map("".join)


@given(LINES, LINES, LINES)
def test_scores_are_shares(before: str, after: str, now: str) -> None:
    """For any three texts both scores lie between 0 and 1, and an untouched edit has 1 in both."""
    score = edit_survival({"f": before}, {"f": after}, {"f": now})
    assert 0.0 <= score.four_gram <= 1.0
    assert 0.0 <= score.no_revert <= 1.0
    whole = edit_survival({"f": before}, {"f": after}, {"f": after})
    assert (whole.four_gram, whole.no_revert) == (1.0, 1.0)
