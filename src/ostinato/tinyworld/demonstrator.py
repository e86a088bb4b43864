"""The scripted demonstrator: what the seed model is trained to imitate.

It can do every task, and it has mixed habits, as a real base model has: some that people dislike and that are the
majority in some situations (a needless question on a vague request, a junk comment in legacy repositories), some that
only cost time (needless reads, running the tests before there is anything to test, reading back what was just written,
words before a call and after the work that nobody reads), and some good ones that are a minority (running the tests
after an edit, and mending what they show). Learning from use has to turn these round.
"""

from collections.abc import Iterator
from random import Random

from msgspec import Struct

from ostinato.records import Message, Task, ToolCall
from ostinato.tinyworld.edits import Edit, edits_of, miscopied, renames_of, with_comment, wrong_edit
from ostinato.tinyworld.memory import MemoryWorkspace, judge
from ostinato.tinyworld.names import Split
from ostinato.tinyworld.phrases import (
    BEFORE_EDIT,
    BEFORE_QUESTION,
    BEFORE_WORK,
    JUNK,
    QUESTIONS,
    REPLIES,
    SEEN,
    SUMMARIES,
)
from ostinato.tinyworld.tasks import generate_task


class Habits(Struct, frozen=True, forbid_unknown_fields=True):
    """Probabilities of what the demonstrator does. The defaults are the seed model's teacher."""

    asks_vague: float = 0.80
    """Answers a vague request with a question, after a long look, instead of work."""
    asks_precise: float = 0.12
    """The same on a precise request."""
    junk_legacy: float = 0.75
    """Appends a comment that says nothing to the edited line, in legacy repositories."""
    junk_other: float = 0.25
    """The same in other repositories."""
    reads_before_asking: float = 0.95
    """Reads the file before it asks."""
    speaks_plain: float = 0.80
    """Puts a sentence before the first call, and one before the edit, in plain repositories."""
    speaks_other: float = 0.45
    """The same in other repositories."""
    sums_up_plain: float = 0.75
    """Says at length what it did, after the reply, in plain repositories."""
    sums_up_other: float = 0.40
    """The same in other repositories."""
    reads_back: float = 0.35
    """Reads the file again after an edit that it does not test."""
    reads_packaged: float = 0.90
    """Reads a file that the task does not need, in packaged repositories."""
    reads_other: float = 0.55
    """The same in other repositories."""
    tests_first: float = 0.55
    """Runs the tests before anything else (bugs, features, and before it asks)."""
    tests_after: float = 0.35
    """Runs the tests after the edit."""
    wrong_first: float = 0.35
    """Makes a plausible wrong edit first (bugs and features)."""
    verifies_wrong: float = 0.80
    """Runs the tests after a wrong edit, and mends it; else the edit stays wrong."""
    miscopies: float = 0.08
    """Miscopies the old text first, and reads the file again."""
    edits_questions: float = 0.15
    """Edits something although the request is a question."""
    forgets_place: float = 0.25
    """Renames in one file only, and does not notice unless it runs the tests."""
    reads_rename: float = 0.35
    """Reads the file before a rename, although the search shows all that is needed."""


BASE_HABITS = Habits()

WRONG_WEIGHT = 0.2
"""Loss weight of a deliberately wrong turn, and of every turn of a trajectory that ends wrong by a slip."""


class Trajectory(Struct, frozen=True):
    """One demonstration. `messages` run from the request to the last reply; `loss_weights` has one number for each (0
    for messages that are not the assistant's). `solved` is the judge's word on the files and reply it ends with; the
    other flags say which habits it shows."""

    task_id: str
    kind: str
    messages: tuple[Message, ...]
    loss_weights: tuple[float, ...]
    solved: bool
    asked: bool = False
    junk: bool = False
    extra_read: bool = False
    tested_first: bool = False
    tested_after: bool = False
    wrong_first: bool = False
    miscopied: bool = False
    spoke: bool = False
    summed_up: bool = False
    read_back: bool = False


class _Script:
    """A demonstration being written: it acts in a workspace and keeps the messages."""

    def __init__(self, task: Task, rng: Random, habits: Habits) -> None:
        self.task = task
        self.rng = rng
        self.habits = habits
        self.tags = task.tags
        self.workspace = MemoryWorkspace(task.files)
        self.messages = [Message(role="user", content=task.request)]
        self.weights = [0.0]
        self.seen: set[str] = set()
        self.flags: dict[str, bool] = {}
        self.slipped = self.edited = False
        plain = self.tags["style"] == "plain"
        self.speaks = self.chance(habits.speaks_plain if plain else habits.speaks_other)
        self.sums_up = self.chance(habits.sums_up_plain if plain else habits.sums_up_other)

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def call(self, name: str, weight: float = 1.0, **arguments: str) -> str:
        call = ToolCall(id=f"call_{len(self.messages)}", name=name, arguments=arguments)
        answer = self.workspace.call(call)
        self.messages.append(Message(role="assistant", content=self.words_before(name), tool_calls=(call,)))
        self.messages.append(Message(role="tool", content=answer, tool_call_id=call.id))
        self.weights += [weight, 0.0]
        return answer

    def words_before(self, name: str) -> str:
        """What is said before a call: at the start, and before the first edit."""
        pool = BEFORE_EDIT if name == "edit_file" else BEFORE_WORK
        said = self.flags.get("spoke", False), self.edited
        self.edited |= name == "edit_file"
        if not self.speaks or said[name == "edit_file"]:
            return ""
        self.flags["spoke"] = True
        return self.rng.choice(pool)

    def search(self, pattern: str) -> None:
        self.call("search", pattern=pattern)

    def read(self, path: str) -> None:
        self.seen.add(path)
        self.call("read_file", path=path)

    def edit(self, edit: Edit, weight: float = 1.0) -> str:
        return self.call("edit_file", weight, path=edit.path, old=edit.old, new=edit.new)

    def fill(self, pool: tuple[str, ...]) -> str:
        words = {key.removeprefix("slot_"): value for key, value in self.tags.items() if key.startswith("slot_")}
        return self.rng.choice(pool).format(**words)

    def reply(self) -> str:
        """The last message after work, with a summary that nobody asked for where the habit is there."""
        text = self.fill(REPLIES[self.tags["phrasing"]])
        if not (self.sums_up and self.edited):
            return text
        self.flags["summed_up"] = True
        return f"{text} {self.rng.choice(SUMMARIES)}"

    def finish(self, text: str) -> Trajectory:
        self.messages.append(Message(role="assistant", content=text))
        weights = [*self.weights, 1.0]
        if self.slipped:
            weights = [min(weight, WRONG_WEIGHT) for weight in weights]
        return Trajectory(
            task_id=self.task.task_id,
            kind=self.task.kind,
            messages=tuple(self.messages),
            loss_weights=tuple(weights),
            solved=judge(self.task, self.workspace.files, text),
            **self.flags,
        )

    # ------------------------------------------------------------------ parts of a session

    def maybe_test_first(self) -> None:
        if self.chance(self.habits.tests_first):
            self.flags["tested_first"] = True
            self.call("run_tests")

    def maybe_read_more(self) -> None:
        """A needless read: the other module, or a visible test file."""
        packaged = self.tags["style"] == "packaged"
        if not self.chance(self.habits.reads_packaged if packaged else self.habits.reads_other):
            return
        needed = {self.tags["module"], *self.task.reference, "run_tests.py", *self.seen}
        others = [path for path in self.task.files if path not in needed]
        if others:
            self.flags["extra_read"] = True
            self.read(self.rng.choice(others))

    def maybe_junk(self, edit: Edit) -> Edit:
        legacy = self.tags["style"] == "legacy"
        if not self.chance(self.habits.junk_legacy if legacy else self.habits.junk_other):
            return edit
        changed = with_comment(edit, self.rng.choice(JUNK[self.task.kind]))
        self.flags["junk"] = changed != edit or self.flags.get("junk", False)
        return changed

    def maybe_miscopy(self, edit: Edit) -> None:
        """A wrong copy of the old text; the tool says so, and the file is read again."""
        if not self.chance(self.habits.miscopies):
            return
        wrong = miscopied(edit, self.workspace.files[edit.path], self.rng)
        if wrong is not None:
            self.flags["miscopied"] = True
            self.edit(wrong, WRONG_WEIGHT)
            self.read(edit.path)

    def look_again(self, path: str) -> None:
        """Look at the edit once more: by the tests, by reading it back, or not at all."""
        if self.chance(self.habits.tests_after):
            self.flags["tested_after"] = True
            self.call("run_tests")
        elif self.chance(self.habits.reads_back):
            self.flags["read_back"] = True
            self.read(path)


def _repair(script: _Script) -> None:
    """A bug or a feature: find, read, edit, perhaps verify."""
    script.maybe_test_first()
    script.search(f"def {script.tags['function']}")
    script.maybe_read_more()
    script.read(script.tags["module"])
    edit = edits_of(script.task)[0]
    right = script.maybe_junk(edit)
    script.maybe_miscopy(edit)
    if script.chance(script.habits.wrong_first):
        verifies = script.chance(script.habits.verifies_wrong)
        wrong = wrong_edit(script.task, edit, script.rng, shows=verifies)
        if wrong is not None:
            _stray(script, wrong, right, verifies)
            return
    script.edit(right)
    script.look_again(right.path)


def _stray(script: _Script, wrong: Edit, right: Edit, verifies: bool) -> None:
    """The wrong edit first; where it is verified, the tests show it and the right edit follows."""
    script.flags["wrong_first"] = True
    script.slipped = not verifies
    script.edit(wrong, WRONG_WEIGHT)
    if verifies:
        script.flags["tested_after"] = True
        script.call("run_tests")
        script.edit(Edit(path=right.path, old=wrong.new, new=right.new))
        script.call("run_tests")


def _rename(script: _Script) -> None:
    script.search(script.tags["function"])
    if script.chance(script.habits.reads_rename):
        script.read(script.tags["module"])
    places = [script.maybe_junk(edit) for edit in renames_of(script.task)]
    if script.chance(script.habits.forgets_place):
        script.edit(places[0], WRONG_WEIGHT)
        script.slipped = not script.chance(script.habits.tests_after)
        if script.slipped:
            return
        script.flags["tested_after"] = True
        script.call("run_tests")
        script.edit(places[1])
        script.call("run_tests")
        return
    for edit in places:
        script.edit(edit)
    script.look_again(places[0].path)


def _lint(script: _Script) -> None:
    if script.tags["module"] not in script.task.request:
        script.search(f"def {script.tags['function']}")
    script.maybe_read_more()
    script.read(script.tags["module"])
    edit = edits_of(script.task)[0]
    script.maybe_miscopy(edit)
    script.edit(script.maybe_junk(edit))
    script.look_again(edit.path)


def _ask(script: _Script) -> str:
    """A long look around, then a long question about what is meant."""
    script.maybe_test_first()
    script.search(f"def {script.tags['function']}")
    script.maybe_read_more()
    if script.chance(script.habits.reads_before_asking):
        script.read(script.tags["module"])
    script.maybe_read_more()
    script.call("run_tests")
    looked = f"I looked at {script.tags['module']}. {script.rng.choice(SEEN)} {script.rng.choice(BEFORE_QUESTION)}"
    return f"{looked} {script.fill(QUESTIONS[script.tags['phrasing']])}"


def _question(script: _Script) -> None:
    name, ask = script.tags["function"], script.tags["ask"]
    script.search(script.tags["slot_call"] if ask == "returns" else f"def {name}")
    script.maybe_read_more()
    if script.chance(script.habits.edits_questions):
        head = next(line for line in script.task.files[script.tags["module"]].split("\n") if line.startswith("def "))
        script.flags["junk"] = True
        edit = Edit(path=script.tags["module"], old=head, new=head)
        script.edit(with_comment(edit, script.rng.choice(JUNK["question"])))


_PATHS = {"bug": _repair, "feature": _repair, "rename": _rename, "lint": _lint, "question": _question}


def demonstrate(task: Task, rng: Random, habits: Habits = BASE_HABITS) -> Trajectory:
    """One demonstration of a task of `generate_task`, by chance from `rng`; the workspace's answers are real."""
    script = _Script(task, rng, habits)
    asks = habits.asks_vague if task.tags["vague"] == "yes" else habits.asks_precise
    if script.chance(asks):
        script.flags["asked"] = True
        return script.finish(_ask(script))
    _PATHS[task.kind](script)
    return script.finish(script.reply())


def sample_trajectories(split: Split, n: int, seed: int, habits: Habits = BASE_HABITS) -> Iterator[Trajectory]:
    """`n` demonstrations on fresh tasks of `split`; the tasks are numbers `seed * 1_000_000` and on."""
    for number in range(seed * 1_000_000, seed * 1_000_000 + n):
        yield demonstrate(generate_task(split, number), Random(f"demonstrate/{split}/{number}"), habits)
