"""What a person does in a generated history after the agent's edit. See `benchmarks.histories`."""

from collections.abc import Callable, Iterable
from copy import deepcopy

from benchmarks.histories import MAIN, WORD, History, Line, altered, commit, piece, size, texts

Step = Callable[[History], bool]
"""Something that a person does; False where it cannot be done now and nothing happened."""


def other_work(history: History) -> bool:
    """Lines of nobody's are put in, taken out or replaced, also right beside the agent's."""
    rng = history.rng
    lines = history.files[rng.choice(sorted(history.files))]
    taken = {line.name for hunk in history.hunks for line in hunk.removed}
    for _ in range(rng.randint(1, 4)):
        spot = rng.randrange(len(lines))
        held = lines[spot]
        theirs = held.hunk < 0 and not held.above and held.name not in taken
        fresh = [Line(text) for text in piece(rng, rng.randint(1, 3))]
        lines[spot : spot + (theirs and rng.random() < 0.6)] = fresh
    history.write()
    return True


def mend(history: History) -> bool:
    """The person rewrites one line of the agent's, or changes one word of it."""
    rng = history.rng
    spots = [
        (path, n)
        for path, lines in history.files.items()
        for n, line in enumerate(lines)
        if line.hunk >= 0 and line.left
    ]
    if not spots:
        return False
    path, n = rng.choice(spots)
    line = history.files[path][n]
    if rng.random() < 0.5 and line.left == size(line.text) > 3 and WORD.search(line.text):
        line.text, line.left = altered(history, line.text), line.left - 1
    else:
        history.files[path][n] = Line(piece(rng, 1)[0], above=line.above)
    history.write()
    return True


def take_back(history: History) -> bool:
    """The person restores what was there before one hunk."""
    return _restore(history, [history.rng.randrange(len(history.hunks))])


def take_back_all(history: History) -> bool:
    """The person restores what was there before the edit."""
    return _restore(history, range(len(history.hunks)))


def _restore(history: History, numbers: Iterable[int]) -> bool:
    done = [_restore_one(history, number) for number in numbers]
    history.write()
    return any(done)


def _restore_one(history: History, number: int) -> bool:
    hunk = history.hunks[number]
    for path, lines in history.files.items():
        for n, line in enumerate(lines):
            if line.hunk == number or number in line.above:
                old = deepcopy(hunk.removed)
                if number in line.above:
                    line.above = tuple(other for other in line.above if other != number)
                lines[n:n] = old
                history.files[path] = [other for other in lines if other.hunk != number]
                return True
    return False


def rename_file(history: History) -> bool:
    """A file gets another name, in a folder that may be new."""
    path = history.rng.choice(sorted(history.files))
    history.count += 1
    history.files = {
        (f"core/module{history.count}.py" if name == path else name): lines for name, lines in history.files.items()
    }
    history.write()
    return True


def move_block(history: History) -> bool:
    """A block of lines moves within its file, to another one or to a new one."""
    rng = history.rng
    path = rng.choice(sorted(history.files))
    lines = history.files[path]
    if len(lines) < 20:
        return False
    first = rng.randrange(len(lines) - 12)
    last = first + rng.randint(5, 12)
    while last < len(lines) and lines[last].hunk >= 0 and lines[last].hunk == lines[last - 1].hunk:
        last += 1  # a hunk goes as a whole
    while first > 0 and lines[first].hunk >= 0 and lines[first].hunk == lines[first - 1].hunk:
        first -= 1
    if any(line.above for line in lines[first : last + 1]):
        return False
    block = lines[first:last]
    del lines[first:last]
    history.count += 1
    target = rng.choice([*sorted(history.files), f"app/new{history.count}.py"])
    there = history.files.setdefault(target, [])
    spot = rng.randrange(len(there) + 1)
    there[spot:spot] = block
    history.write()
    return True


def format_anew(history: History) -> bool:
    """A file gets other indentation, other quotes, and long lines are wrapped after commas."""
    rng = history.rng
    for line in history.files[rng.choice(sorted(history.files))]:
        bare = line.text.lstrip(" ")
        indent = (len(line.text) - len(bare)) // 2
        text = " " * indent + bare.replace('"', "'")
        if len(text) > 60 and ", " in text and "\n" not in text and "#" not in text:
            text = text.replace(", ", f",\n{' ' * (indent + 2)}", 1)
        line.text = text
    history.write()
    return True


def amend(history: History) -> bool:
    """What is not committed goes into the last commit."""
    history.git("add", "-A")
    history.git("commit", "-q", "--amend", "--allow-empty", "-m", "Amended")
    history.branches[history.head] = deepcopy(history.files)
    return True


def squash(history: History) -> bool:
    """The last two commits become one."""
    if history.dirty() or int(history.git("rev-list", "--count", "HEAD")) < 3:
        return False
    history.git("reset", "-q", "--soft", "HEAD~2")
    history.git("commit", "-q", "--allow-empty", "-m", "Squashed")
    return True


def new_branch(history: History) -> bool:
    """A new branch is checked out; what is not committed comes along."""
    history.count += 1
    name = f"topic-{history.count}"
    carried = _uncommitted_edit(history)
    history.git("checkout", "-q", "-b", name)
    history.branches[name] = deepcopy(history.branches[history.head])
    if carried:
        history.home = name
    history.head = name
    return True


def _uncommitted_edit(history: History) -> bool:
    """Whether the edit is in the working tree and no commit of the branch holds it."""
    here = history.head == history.home and history.holds_edit(history.files)
    return here and not history.holds_edit(history.branches[history.head])


def switch(history: History) -> bool:
    """Another branch is checked out, with nothing left uncommitted."""
    others = sorted(name for name in history.branches if name != history.head)
    if not others or history.dirty():
        return False
    history.head = history.rng.choice(others)
    history.git("checkout", "-q", history.head)
    history.files = deepcopy(history.branches[history.head])
    return True


def stash_and_switch(history: History) -> bool:
    """What is not committed is set aside, and another branch is looked at."""
    if history.stash is not None or not history.dirty():
        return False
    edit = _uncommitted_edit(history)
    history.git("stash", "-q", "-u")
    history.stash, history.stash_holds_edit = history.files, edit
    history.stash_of, history.stash_base = history.head, texts(history.branches[history.head])
    history.files = deepcopy(history.branches[history.head])
    switch(history)
    return True


def unstash(history: History) -> bool:
    """Back to the branch of the stash, and what was set aside returns."""
    if history.stash is None or history.dirty() or history.stash_of not in history.branches:
        return False
    if texts(history.branches[history.stash_of]) != history.stash_base:
        return False
    history.git("checkout", "-q", history.stash_of)
    history.git("stash", "pop", "-q")
    history.head, history.files, history.stash = history.stash_of, history.stash, None
    return True


def drop_work(history: History) -> bool:
    """`git reset --hard`: what is not committed is gone."""
    if not history.dirty():
        return False
    history.git("reset", "-q", "--hard")
    history.git("clean", "-qfd")
    history.files = deepcopy(history.branches[history.head])
    return True


def rebase(history: History) -> bool:
    """Somebody else adds a file on the main branch, and the branch that is checked out is rebased on it."""
    topic = history.head
    if topic == MAIN or history.dirty() or history.git("merge-base", MAIN, topic) != history.git("rev-parse", MAIN):
        return False
    history.git("checkout", "-q", MAIN)
    history.head, history.files = MAIN, deepcopy(history.branches[MAIN])
    path = _add_file(history)
    history.git("checkout", "-q", topic)
    history.git("rebase", "-q", MAIN)
    history.head, history.files = topic, deepcopy(history.branches[topic])
    history.files[path] = deepcopy(history.branches[MAIN][path])
    history.branches[topic] = deepcopy(history.files)
    return True


def _add_file(history: History) -> str:
    history.count += 1
    path = f"other/file{history.count}.py"
    history.files[path] = [Line(text) for text in piece(history.rng, 20)]
    history.write()
    commit(history)
    return path


def merge_and_delete(history: History) -> bool:
    """The branch that is checked out is merged into the main branch, by a merge or squashed, and deleted."""
    topic = history.head
    if topic == MAIN or history.dirty() or history.stash is not None:
        return False
    if history.git("merge-base", MAIN, topic) != history.git("rev-parse", MAIN):
        return False  # the main branch has gone on: that is for `rebase`
    history.git("checkout", "-q", MAIN)
    if history.rng.random() < 0.5:
        history.git("merge", "-q", "--squash", topic)
        history.git("commit", "-q", "--allow-empty", "-m", f"Merge {topic}")
    else:
        history.git("merge", "-q", "--no-ff", "-m", f"Merge {topic}", topic)
    history.git("branch", "-q", "-D", topic)
    history.branches[MAIN] = history.branches.pop(topic)
    history.head, history.files = MAIN, deepcopy(history.branches[MAIN])
    if history.home == topic:
        history.home = MAIN
    return True


def rename_branch(history: History) -> bool:
    """The branch that is checked out gets another name."""
    if history.head == MAIN or history.stash is not None:
        return False
    history.count += 1
    name = f"renamed-{history.count}"
    history.git("branch", "-m", name)
    history.branches[name] = history.branches.pop(history.head)
    history.home = name if history.home == history.head else history.home
    history.head = name
    return True


STEPS: tuple[tuple[Step, int], ...] = (
    (other_work, 6),
    (commit, 6),
    (mend, 4),
    (take_back, 3),
    (take_back_all, 1),
    (rename_file, 2),
    (move_block, 3),
    (format_anew, 2),
    (amend, 1),
    (squash, 1),
    (new_branch, 3),
    (switch, 3),
    (stash_and_switch, 2),
    (unstash, 4),
    (drop_work, 1),
    (rebase, 3),
    (merge_and_delete, 2),
    (rename_branch, 1),
)
"""Each step with how often it is drawn."""


def go_on(history: History) -> str:
    """Do one step that can be done now; its name."""
    steps, weights = zip(*STEPS, strict=True)
    while True:
        step: Step = history.rng.choices(steps, weights)[0]
        if step(history):
            history.log.append(step.__name__)
            return step.__name__
