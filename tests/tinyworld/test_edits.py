"""The demonstrator's edits."""

from random import Random

from ostinato.tinyworld import generate_task, solved
from ostinato.tinyworld.edits import Edit, edits_of, miscopied, renames_of, with_comment, wrong_edit


def test_right_edits_make_the_reference() -> None:
    """The old text occurs once, and replacing it gives the reference's file."""
    for number in range(300):
        task = generate_task("live", number)
        for edit in edits_of(task):
            assert task.files[edit.path].count(edit.old) == 1
            assert task.files[edit.path].replace(edit.old, edit.new) == task.reference[edit.path]


def test_renames_name_the_definition_first() -> None:
    """A rename has two edits, of the bare name, and the module that defines it comes first."""
    renames = [task for number in range(200) if (task := generate_task("live", number)).kind == "rename"]
    for task in renames:
        edits = renames_of(task)
        assert [edit.path == task.tags["module"] for edit in edits] == [True, False]
        assert all(task.files[edit.path].count(edit.old) == 1 for edit in edits)


def test_wrong_edits_leave_the_task_unsolved() -> None:
    """A wrong edit applies, and neither leaves nor solves the bug; where it must show, a visible test fails."""
    made = 0
    for number in range(200):
        task = generate_task("live", number)
        if task.kind in ("bug", "feature"):
            right = edits_of(task)[0]
            wrong = wrong_edit(task, right, Random(number), shows=False)
            if wrong is not None:
                made += 1
                files = {**task.files, wrong.path: task.files[wrong.path].replace(wrong.old, wrong.new)}
                assert wrong.new not in (right.old, right.new)
                assert not solved(task, files)
    assert made > 80


def test_miscopied_text_is_not_found() -> None:
    """A miscopied old text is not in the file."""
    text = "def f(x):\n    return x\n"
    edit = Edit(path="a.py", old="    return x", new="    return 1")
    for number in range(30):
        wrong = miscopied(edit, text, Random(number))
        assert wrong is None or wrong.old not in text


def test_comment_goes_to_the_last_line() -> None:
    """A junk comment follows whole lines only."""
    whole = Edit(path="a.py", old="    return x", new="    return y")
    assert with_comment(whole, "  # fixed").new == "    return y  # fixed"
    name = Edit(path="a.py", old="f", new="g")
    assert with_comment(name, "  # fixed") == name
