"""The edits of the demonstrator: the right ones, read off the task's reference, and plausible wrong ones."""

import ast
import re
from random import Random

from msgspec import Struct

from ostinato.records import Task
from ostinato.tinyworld.mutations import MUTATIONS, mutate
from ostinato.tinyworld.names import withheld
from ostinato.tinyworld.runner import run_tests


class Edit(Struct, frozen=True):
    """The arguments of one `edit_file` call."""

    path: str
    old: str
    new: str


def _block(path: str, before: str, after: str) -> Edit:
    """The least run of whole lines that differs, widened until it occurs once in `before`."""
    old, new = before.split("\n"), after.split("\n")
    start = 0
    while old[start] == new[start]:
        start += 1
    end = 1
    while end <= min(len(old), len(new)) - start and old[-end] == new[-end]:
        end += 1
    first, last = start, len(old) - end + 1
    if len(new) - end + 1 <= start:
        last += 1  # lines go away: take the next line with them, so that the new text is not empty
        end -= 1
    while before.count("\n".join(old[first:last])) > 1:
        first -= 1
    return Edit(path=path, old="\n".join(old[first:last]), new="\n".join(new[first : len(new) - end + 1]))


def edits_of(task: Task) -> list[Edit]:
    """One edit for each file of the reference, in order of path."""
    return [_block(path, task.files[path], text) for path, text in sorted(task.reference.items())]


def renames_of(task: Task) -> list[Edit]:
    """The two edits of a rename, the definition first: the bare name, which occurs once in each file."""
    name, new = task.tags["function"], task.tags["new"]
    paths = sorted(task.reference, key=lambda path: (path != task.tags["module"], path))
    return [Edit(path=path, old=name, new=new) for path in paths]


def with_comment(edit: Edit, comment: str) -> Edit:
    """The edit with `comment` after its last new line; unchanged for an edit of less than a line."""
    if not re.search(r"^(\s|def |import )", edit.new):
        return edit
    return Edit(path=edit.path, old=edit.old, new=edit.new + comment)


def miscopied(edit: Edit, text: str, rng: Random) -> Edit | None:
    """The edit with an old text that is a near miss: a character lost or doubled, or the indent gone wrong."""
    old = edit.old
    places = [at for at in range(len(old)) if not old[at].isspace()]
    at = rng.choice(places)
    wrong = rng.choice((old[:at] + old[at + 1 :], old[:at] + old[at] + old[at:], "  " + old))
    return None if wrong in text else Edit(path=edit.path, old=wrong, new=edit.new)


def _names(text: str) -> tuple[str, ...]:
    """The parameters and local names in a module, sorted."""
    nodes = list(ast.walk(ast.parse(text)))
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return tuple(sorted(stored | {node.arg for node in nodes if isinstance(node, ast.arg)}))


def wrong_edit(task: Task, edit: Edit, rng: Random, *, shows: bool) -> Edit | None:
    """A plausible edit at the right place that leaves the task unsolved; with `shows`, a visible test fails after it.

    It uses no withheld combination, so that no demonstration mends one. None where a few tries find none."""
    template, names = task.tags["template"], _names(task.reference[edit.path])
    lines = edit.new.split("\n")
    base = int(task.tags["line"])
    options = [(at, name) for at in range(len(lines)) for name in MUTATIONS]
    rng.shuffle(options)
    tries = 0
    for at, name in options:
        if tries == 4:
            break
        if withheld(template, base + at, name):
            continue
        broken = mutate(lines[at], name, names)
        if not broken:
            continue
        tries += 1
        found = Edit(path=edit.path, old=edit.old, new="\n".join([*lines[:at], rng.choice(broken), *lines[at + 1 :]]))
        if found.new in (edit.old, edit.new):
            continue
        files = {**task.files, edit.path: task.files[edit.path].replace(edit.old, found.new)}
        if shows and files[edit.path].count(found.new) > 1:
            continue  # the right edit could not name it
        checks = files if shows else {**files, **task.tests}
        if run_tests(checks) != "passed\n":
            return found
    return None
