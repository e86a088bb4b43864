"""The population: who comes, in which order, with which tasks."""

from collections import Counter

import pytest

from ostinato.records import BadInputError
from ostinato.tinyworld.population import Population


def test_the_same_population_everywhere() -> None:
    """Everything follows from split and seed."""
    assert Population("live", 3).slice(0, 50) == Population("live", 3).slice(0, 50)
    assert Population("live", 3).slice(0, 50) != Population("live", 4).slice(0, 50)


def test_persons_bring_a_few_sessions_each() -> None:
    """In a generation of 200 persons each has 3 to 6 sessions, in order, and their places are mixed."""
    population = Population("live", 0)
    total = sum(population.person(index).sessions for index in range(200))
    visits = population.slice(0, total)
    had = Counter(visit.person.person_id for visit in visits)
    assert len(had) == 200
    assert set(had.values()) == {3, 4, 5, 6}
    seen: Counter[str] = Counter()
    for visit in visits:
        assert visit.session == seen[visit.person.person_id]
        seen[visit.person.person_id] += 1
    assert len({visit.person.person_id for visit in visits[:200]}) > 100
    later = {visit.person.person_id for visit in population.slice(total, 100)}
    assert not later & set(had)


def test_splits_share_no_person_and_no_task_number() -> None:
    """Persons of the held-out split never came to the live one."""
    live, held = Population("live", 0).slice(0, 800), Population("held_out", 0).slice(0, 800)
    assert not {v.person.person_id for v in live} & {v.person.person_id for v in held}
    assert not {v.task_seed for v in live} & {v.task_seed for v in held}
    assert len({v.task_seed for v in live}) == 800


def test_slices_continue() -> None:
    """A later run goes on where an earlier one stopped."""
    population = Population("live", 1)
    assert population.slice(0, 30)[10:] == population.slice(10, 20)


def test_bad_populations_are_refused() -> None:
    """By name."""
    with pytest.raises(BadInputError, match="population of 3"):
        Population("live", 0, 3)
    with pytest.raises(BadInputError, match="no split named 'x'"):
        Population("x", 0)  # type: ignore[arg-type]
