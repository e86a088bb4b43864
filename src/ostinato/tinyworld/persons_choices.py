"""What a person makes of a session: what they see comes in, what they do goes out. Pure, with chances of their own.

A person sees the reply, the real diff and their own run of tests. They err now and then: some do not run their tests
and keep an edit that fails, a few take back one that is good.
"""

from collections.abc import Mapping
from difflib import SequenceMatcher
from random import Random
from typing import Literal

from msgspec import Struct

from ostinato.records import EndReason, Task
from ostinato.tinyworld import persons_words as words
from ostinato.tinyworld.population import Person

Action = Literal["none", "keep", "revert", "mend", "abandon"]


class View(Struct, frozen=True):
    """What a person can see. `passed`: of their own tests, on the agent's edit. `comment`: it holds a needless one.
    `answered`: the reply has what a question asked for."""

    end: EndReason
    wants_edit: bool
    edited: bool
    passed: bool
    comment: bool
    answered: bool
    asked: bool
    tokens: int
    tool_calls: int


class Choice(Struct, frozen=True):
    """What a person does. `mended`: "comment" takes needless comments away, "rewrite" puts their own solution.
    `act_s` and `say_s`: when they act on the edit and write, in seconds of their clock after the agent ended.
    `commits`: they commit something in the end."""

    action: Action
    mended: Literal["", "comment", "rewrite"] = ""
    says: str = ""
    complains: bool = False
    act_s: float = 0.0
    say_s: float = 0.0
    commits: bool = False

    @property
    def dissatisfied(self) -> bool:
        """The truth about a session: the person complained or left."""
        return self.complains or self.action == "abandon"


def choose(person: Person, view: View, rng: Random) -> Choice:
    """What `person` does about what they see."""
    if view.end in ("sandbox_died", "model_error"):
        return Choice("none")
    act_s, say_s = rng.uniform(8, 240), rng.uniform(15, 420)
    choice = _judge(person, view, rng)
    impatient = view.tokens > person.token_limit or view.tool_calls > person.call_limit
    if impatient and choice.action != "abandon" and not choice.complains:
        good = view.passed or view.answered
        if not good and rng.random() < 0.35:
            choice = Choice("abandon")
        elif rng.random() < 0.5:
            choice = _says(choice, words.SLOW, rng)
    commits = view.wants_edit and choice.action != "abandon"
    return Choice(choice.action, choice.mended, choice.says, choice.complains, act_s, say_s, commits)


def _judge(person: Person, view: View, rng: Random) -> Choice:
    if not view.wants_edit:
        return _about_question(person, view, rng)
    if not view.edited:
        if rng.random() < 0.4:
            return Choice("abandon")
        return _says(Choice("none"), words.ASKED if view.asked else words.NOTHING, rng)
    tested = rng.random() < person.diligence
    if tested and not view.passed:
        return _about_failure(rng)
    if view.comment and rng.random() < person.notice:
        return _about_comment(rng)
    return _about_good_work(person, rng)


def _about_question(person: Person, view: View, rng: Random) -> Choice:
    if view.edited:
        return _maybe_says(Choice("revert"), words.UNWANTED, 0.8, rng)
    if view.answered:
        return _thanks(Choice("none"), person, rng)
    if rng.random() < 0.3:
        return Choice("abandon")
    return _says(Choice("none"), words.ASKED if view.asked else words.UNANSWERED, rng)


def _about_failure(rng: Random) -> Choice:
    if rng.random() < 0.05:
        return _maybe_says(Choice("mend", "rewrite"), words.FAILING, 0.5, rng)
    return _maybe_says(Choice("revert"), words.FAILING, 0.85, rng)


def _about_comment(rng: Random) -> Choice:
    chance = rng.random()
    if chance < 0.55:
        return _maybe_says(Choice("revert"), words.COMMENT, 0.6, rng)
    if chance < 0.85:
        return _maybe_says(Choice("mend", "comment"), words.COMMENT, 0.35, rng)
    return Choice("keep")


def _about_good_work(person: Person, rng: Random) -> Choice:
    chance = rng.random()
    if chance < 0.02:
        return Choice("revert")
    if chance < 0.05:
        return _thanks(Choice("mend", "rewrite"), person, rng)
    return _thanks(Choice("keep"), person, rng)


def _says(choice: Choice, pool: tuple[str, ...], rng: Random) -> Choice:
    return Choice(choice.action, choice.mended, rng.choice(pool), complains=pool is not words.CONTENT)


def _maybe_says(choice: Choice, pool: tuple[str, ...], probability: float, rng: Random) -> Choice:
    return _says(choice, pool, rng) if rng.random() < probability else choice


def _thanks(choice: Choice, person: Person, rng: Random) -> Choice:
    return _maybe_says(choice, words.CONTENT, person.talk, rng)


def needless_comments(task: Task, files: Mapping[str, str | None]) -> dict[str, str]:
    """Path -> text without the comments that the edit added and that neither the start nor the solution has. Only
    files that have some."""
    cleaned: dict[str, str] = {}
    for path, text in files.items():
        before = task.files.get(path, "")
        known = before + task.reference.get(path, "")
        if text is None or "#" not in text:
            continue
        lines, found = text.splitlines(), False
        matcher = SequenceMatcher(None, before.splitlines(), lines, autojunk=False)
        for tag, _, _, start, end in matcher.get_opcodes():
            for number in range(start, end) if tag != "equal" else ():
                code, mark, comment = lines[number].partition("#")
                if mark and comment.strip() and mark + comment.rstrip() not in known:
                    lines[number], found = code.rstrip(), True
        if found:
            cleaned[path] = "\n".join(lines) + "\n" * text.endswith("\n")
    return cleaned


def files_after(task: Task, changed: Mapping[str, str | None], choice: Choice) -> dict[str, str]:
    """The person's whole repository after they acted on the agent's `changed` files (None: deleted)."""
    files = dict(task.files)
    if choice.action not in ("keep", "mend"):
        return files
    if choice.mended == "rewrite":
        return files | task.reference
    for path, text in changed.items():
        if text is None:
            files.pop(path, None)
        else:
            files[path] = text
    return files | (needless_comments(task, changed) if choice.mended == "comment" else {})
