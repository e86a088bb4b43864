"""The search tool's reply."""

from hypothesis import given
from hypothesis import strategies as st

from ostinato.search import LIMIT, NO_MATCH, match_lines, search_files


def test_lines_are_numbered_stripped_and_in_order_of_path() -> None:
    """One line for each match: path, number from 1, text without its indentation."""
    files = [("b.py", "x = 1\n    y = x\n"), ("a.py", "\nx\n")]
    assert search_files(files, "x") == "a.py:2: x\nb.py:1: x = 1\nb.py:2: y = x"


def test_no_match_and_case() -> None:
    """Search minds case, and says when it found nothing."""
    assert search_files([("a.py", "Total\n")], "total") == NO_MATCH


def test_the_limit_cuts() -> None:
    """No more than the limit, from the first path on."""
    found = search_files([("a.py", "x\n" * 5), ("b.py", "x\n" * 5)], "x").splitlines()
    assert len(found) == LIMIT
    assert found[-1] == "b.py:3: x"
    assert search_files([("a.py", "x\n" * 5)], "x", limit=2).count("\n") == 1


@given(st.text(st.sampled_from("ab \n"), max_size=30), st.text(st.sampled_from("ab"), min_size=1, max_size=2))
def test_matches_are_exactly_the_lines_that_contain(text: str, pattern: str) -> None:
    """Every line that holds the pattern, and none other."""
    numbers = [int(line.split(":")[1]) for line in match_lines("p", text, pattern)]
    assert numbers == [number for number, line in enumerate(text.splitlines(), 1) if pattern in line]
