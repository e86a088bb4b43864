"""The words of the world and who owns their pairings."""

import sys
from random import Random

from ostinato.tinyworld.names import MODULES, PARAM_WORDS, class_of, pick_name, withheld


def test_classes_have_their_shares() -> None:
    """The hash gives about 60, 20 and 20 percent to seed, live and held out."""
    classes = [class_of(f"verb_{number}") for number in range(2000)]
    assert abs(classes.count("seed") / 2000 - 0.6) < 0.05
    assert abs(classes.count("live") / 2000 - 0.2) < 0.05


def test_a_fifth_of_the_combinations_is_withheld() -> None:
    """About 20% of the combinations are kept back, and each of them always is."""
    kept = [withheld("clamp", line, f"m{number}") for line in range(4) for number in range(300)]
    assert abs(sum(kept) / len(kept) - 0.2) < 0.05
    assert kept == [withheld("clamp", line, f"m{number}") for line in range(4) for number in range(300)]


def test_picked_name_is_no_part_of_another() -> None:
    """A search for one function never finds the other."""
    for number in range(50):
        name = pick_name(Random(number), ("sum", "add"), "live", taken=("sum_row", "add_rows"))
        assert name not in "sum_row add_rows"
        assert class_of(name) == "live"


def test_modules_hide_nothing() -> None:
    """No module of the world has the name of a library module or of a parameter."""
    assert not set(MODULES) & sys.stdlib_module_names
    assert not set(MODULES) & {word for words in PARAM_WORDS.values() for word in words}
