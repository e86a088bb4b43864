"""The task generator: determinism, solvability, and splits that share nothing that they must not share."""

import pytest

from ostinato.records import BadInputError, Task
from ostinato.tinyworld import SPLITS, Split, generate_task, solved
from ostinato.tinyworld.names import class_of, name_class, withheld
from ostinato.tinyworld.templates import TEMPLATES


def tasks(split: Split, count: int = 60) -> list[Task]:
    """The first tasks of a split."""
    return [generate_task(split, number) for number in range(count)]


@pytest.mark.parametrize("split", SPLITS)
def test_same_number_gives_the_same_task(split: Split) -> None:
    """A task is a function of split and number alone, and its id is its own."""
    assert tasks(split, 20) == tasks(split, 20)
    assert len({task.task_id for task in tasks(split, 20)}) == 20


@pytest.mark.parametrize("split", SPLITS)
def test_reference_solves_and_start_does_not(split: Split) -> None:
    """The hidden tests pass over the reference and fail over the start state."""
    for task in tasks(split):
        assert solved(task, {**task.files, **task.reference}), task
        assert solved(task, task.files) != task.wants_edit, task


@pytest.mark.parametrize("split", SPLITS)
def test_names_belong_to_the_class_of_the_split(split: Split) -> None:
    """Function names pair verb and noun as only this split's class does."""
    for task in tasks(split):
        names = [task.tags["function"], *([task.tags["new"]] if "new" in task.tags else [])]
        assert {class_of(name) for name in names} == {name_class(split)}, task.tags


def test_withheld_combinations_appear_in_their_split_alone() -> None:
    """Template, line and mutation of a bug are withheld in `unseen_combinations`, and only there."""
    for split in ("seed", "live", "held_out", "unseen_combinations"):
        for task in tasks(split, 80):
            if task.kind == "bug":
                is_withheld = withheld(task.tags["template"], int(task.tags["line"]), task.tags["mutation"])
                assert is_withheld == (split == "unseen_combinations"), task.tags


def test_withheld_templates_appear_in_their_split_alone() -> None:
    """The target's template is a withheld one in `unseen_templates`, and only there."""
    for split in SPLITS:
        for task in tasks(split):
            assert TEMPLATES[task.tags["template"]].is_withheld == (split == "unseen_templates")


def test_kinds_styles_and_vagueness_have_their_shares() -> None:
    """The mix is what the world's design says, within sampling error."""
    sample = tasks("seed", 1500)
    shares = {kind: sum(task.kind == kind for task in sample) / 1500 for kind in ("bug", "feature", "question")}
    assert abs(shares["bug"] - 0.50) < 0.06
    assert abs(shares["feature"] - 0.15) < 0.04
    assert abs(shares["question"] - 0.12) < 0.04
    assert abs(sum(task.tags["vague"] == "yes" for task in sample) / 1500 - 2 / 7) < 0.05
    assert abs(sum(task.tags["style"] == "legacy" for task in sample) / 1500 - 0.35) < 0.05
    bugs = [task for task in sample if task.kind == "bug"]
    assert abs(sum(task.tags["caught"] == "yes" for task in bugs) / len(bugs) - 0.75) < 0.08


def test_every_template_is_used() -> None:
    """No template is dead: each becomes the target of some task."""
    found = {task.tags["template"] for task in tasks("seed", 2500)}
    found |= {task.tags["template"] for task in tasks("unseen_templates", 400)}
    assert found == set(TEMPLATES)


def test_a_question_is_answered_by_the_repository() -> None:
    """The answer of a question lies in the repository's texts or paths."""
    for task in tasks("held_out", 200):
        if task.kind == "question":
            assert any(task.answer in path or task.answer in text for path, text in task.files.items())


def test_unknown_split_is_refused() -> None:
    """A split that does not exist is named in the error."""
    with pytest.raises(BadInputError, match="'nowhere'"):
        generate_task("nowhere", 1)  # type: ignore[arg-type]
