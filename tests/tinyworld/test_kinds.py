"""What each kind of task promises."""

from ostinato.records import Task
from ostinato.tinyworld import generate_task, solved
from ostinato.tinyworld.kinds import RULES
from ostinato.tinyworld.runner import run_tests


def of_kind(kind: str, count: int = 400) -> list[Task]:
    """The tasks of one kind among the first of the split `live`."""
    return [task for number in range(count) if (task := generate_task("live", number)).kind == kind]


def test_a_bug_is_one_line() -> None:
    """Start state and reference differ in one line of one file."""
    for task in of_kind("bug"):
        ((path, right),) = task.reference.items()
        pairs = zip(task.files[path].split("\n"), right.split("\n"), strict=True)
        assert sum(old != new for old, new in pairs) == 1


def test_a_caught_bug_fails_a_visible_test() -> None:
    """The tag `caught` says whether the visible tests show it."""
    for task in of_kind("bug") + of_kind("feature"):
        assert (run_tests(task.files) != "passed\n") == (task.tags["caught"] == "yes"), task


def test_a_feature_is_a_stub() -> None:
    """The function is there, its body is not."""
    for task in of_kind("feature"):
        assert "    pass  # todo\n" in task.files[task.tags["module"]]


def test_a_rename_needs_both_files() -> None:
    """Renaming in one file alone does not solve it; the visible tests pass before."""
    for task in of_kind("rename"):
        assert len(task.reference) == 2
        assert run_tests(task.files) == "passed\n"
        for path, text in task.reference.items():
            assert not solved(task, {**task.files, path: text})


def test_every_lint_rule_is_met() -> None:
    """Each rule breaks some task, and the visible tests pass all the same."""
    tasks = of_kind("lint", 1200)
    assert {task.tags["rule"] for task in tasks} == set(RULES)
    assert all(run_tests(task.files) == "passed\n" for task in tasks[:40])


def test_a_question_wants_no_edit() -> None:
    """Any edit is a fault."""
    for task in of_kind("question"):
        assert not task.wants_edit
        assert not task.reference
        assert solved(task, task.files)
