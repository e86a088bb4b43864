"""Generated git histories with known truth: an agent's edit, and what becomes of each of its lines.

Each history is a real repository, made by the `git` command, whose files are pieces of Python's standard library. An
agent proposes an edit; then a person works on: changes lines around it, mends or takes back parts of it, renames
files, moves blocks, formats anew, commits, amends, squashes, rebases, merges, stashes, switches branches. Every line
carries an identity through all of it, so that the share of each hunk that survives is known and not measured.
"""

import itertools
import os
import random
import re
import shutil
import subprocess
import sysconfig
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

TOKEN = re.compile(r"\w+|[^\w\s]")
Files = dict[str, list["Line"]]
MAIN = "main"


@dataclass
class Line:
    """A line, or several that one was wrapped into. hunk: of the agent's edit that put it there, -1 for none; left: how
    many of that hunk's tokens it still has. above: hunks that deleted lines right above this one. name: its identity,
    which a line that is put back has again."""

    text: str
    hunk: int = -1
    left: int = 0
    above: tuple[int, ...] = ()
    name: int = field(default_factory=itertools.count().__next__)


@dataclass
class TrueHunk:
    """What the agent did at one place: how many tokens it added, the lines it took away, and where its lines stood
    right after the edit (from 1, as many as it put there)."""

    path: str
    added: int
    removed: list[Line]
    line: int = 0
    lines: int = 0

    @property
    def took(self) -> int:
        """Tokens of the lines that were taken away."""
        return sum(size(line.text) for line in self.removed)


@dataclass
class History:
    """One repository with its truth. `log` says in words what was done."""

    folder: Path
    rng: random.Random
    files: Files = field(default_factory=dict)
    branches: dict[str, Files] = field(default_factory=dict)
    head: str = MAIN
    home: str = MAIN
    stash: Files | None = None
    stash_of: str = ""
    stash_base: dict[str, list[str]] = field(default_factory=dict)
    stash_holds_edit: bool = False
    hunks: list[TrueHunk] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    count: int = 0

    def git(self, *arguments: str) -> str:
        """Run git in the repository; its output."""
        environment = os.environ | {
            "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "GIT_EDITOR": "true",
            "GIT_AUTHOR_NAME": "ann", "GIT_AUTHOR_EMAIL": "ann@example.org",
            "GIT_COMMITTER_NAME": "ann", "GIT_COMMITTER_EMAIL": "ann@example.org",
        }  # fmt: skip
        command = ["git", "-C", str(self.folder), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, (arguments, done.stderr, self.log)
        return done.stdout

    def write(self) -> None:
        """Bring the files on disk to what `files` says."""
        for path in self.folder.rglob("*.py"):
            if str(path.relative_to(self.folder)) not in self.files:
                path.unlink()
        for name, lines in self.files.items():
            place = self.folder / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text("".join(f"{line.text}\n" for line in lines))

    def text(self, path: str) -> str:
        """A file as it is now."""
        return "".join(f"{line.text}\n" for line in self.files[path])

    def dirty(self) -> bool:
        """Whether the working tree differs from what was committed."""
        return texts(self.files) != texts(self.branches[self.head])

    def truth(self) -> list[float] | None:
        """The share of each hunk that survives where the edit lives, None while it lies in a stash."""
        if self.stash is not None and self.stash_holds_edit:
            return None
        return self.shares(self.files if self.head == self.home else self.branches[self.home])

    def shares(self, files: Files) -> list[float]:
        """The share of each hunk in some state of the files."""
        left = [0] * len(self.hunks)
        there = set()
        for line in (line for lines in files.values() for line in lines):
            there.add(line.name)
            if line.hunk >= 0:
                left[line.hunk] += line.left
        return [
            left[n] / hunk.added
            if hunk.added
            else sum(size(line.text) for line in hunk.removed if line.name not in there) / hunk.took
            for n, hunk in enumerate(self.hunks)
        ]

    def holds_edit(self, files: Files) -> bool:
        """Whether more than a tenth of the edit is in some state of the files."""
        weights = [hunk.added or hunk.took for hunk in self.hunks]
        shares = self.shares(files)
        return sum(w * share for w, share in zip(weights, shares, strict=True)) > 0.1 * sum(weights)


def size(text: str) -> int:
    """Tokens of a text."""
    return len(TOKEN.findall(text))


def texts(files: Files) -> dict[str, list[str]]:
    """The files without what is known of their lines."""
    return {path: [line.text for line in lines] for path, lines in files.items()}


@cache
def library() -> list[list[str]]:
    """The lines of modules of Python's standard library."""
    folder = Path(sysconfig.get_path("stdlib"))
    names = sorted(path for path in folder.glob("*.py") if 4_000 < path.stat().st_size < 60_000)
    return [path.read_text(encoding="utf-8").splitlines() for path in names]


def piece(rng: random.Random, length: int) -> list[str]:
    """Neighbouring lines of some module, without tabs; neither the first nor the last one is blank."""
    while True:
        lines = rng.choice([module for module in library() if len(module) > length])
        start = rng.randrange(len(lines) - length)
        found = lines[start : start + length]
        if found[0].strip() and found[-1].strip() and not any("\t" in line for line in found):
            return found


def begin(folder: Path, seed: int) -> History:
    """A new repository with two to five files in one commit."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    history = History(folder, random.Random(seed))
    rng = history.rng
    for number in range(rng.randint(2, 5)):
        size = rng.randint(25, 140)
        history.files[f"{rng.choice(('app', 'lib'))}/part{number}.py"] = [Line(text) for text in piece(rng, size)]
    history.git("init", "-q", "-b", MAIN)
    history.write()
    commit(history)
    return history


def propose(history: History) -> dict[str, tuple[str, str]]:
    """The agent's edit: one to four hunks in one or two files. Path -> its text before and after."""
    rng = history.rng
    paths = rng.sample(sorted(history.files), min(len(history.files), rng.randint(1, 2)))
    before = {path: history.text(path) for path in paths}
    for path in paths:
        spots = range(2, len(history.files[path]) - 8, 9)
        for spot in sorted(rng.sample(spots, min(rng.randint(1, 2), len(spots))), reverse=True):
            _change(history, path, spot)
    if not history.hunks:
        return propose(history)
    for number, hunk in enumerate(history.hunks):
        lines = history.files[hunk.path]
        own = [n for n, line in enumerate(lines) if line.hunk == number or number in line.above]
        hunk.line, hunk.lines = own[0] + 1, len(own) if hunk.added else 0
    history.write()
    return {path: (text, history.text(path)) for path, text in before.items()}


def _change(history: History, path: str, spot: int) -> None:
    """One hunk: insert, replace, delete, or alter one word."""
    rng, lines, number = history.rng, history.files[path], len(history.hunks)
    kind = rng.choice(("insert", "insert", "replace", "replace", "delete", "alter"))
    length = {"insert": 0, "alter": 1}.get(kind, rng.randint(1, 4))
    old = lines[spot : spot + length]
    if old and not all(line.text.strip() for line in old):
        return
    if kind == "alter":
        if not WORD.search(old[0].text):
            return
        fresh = [Line(altered(history, old[0].text), number, 1, old[0].above)]
    elif kind == "delete":
        fresh = []
        lines[spot + length].above += (number,)
    else:
        fresh = [Line(text, number, size(text)) for text in piece(rng, rng.randint(1, 6))]
    lines[spot : spot + length] = fresh
    history.hunks.append(TrueHunk(path, sum(line.left for line in fresh), deepcopy(old)))


WORD = re.compile(r"\b[a-z]\w{2,}\b")


def altered(history: History, text: str) -> str:
    """The text with one word changed to one that was never used."""
    word = history.rng.choice(list(WORD.finditer(text)))
    history.count += 1
    return f"{text[: word.start()]}fresh_{history.count}{text[word.end() :]}"


def commit(history: History) -> bool:
    """Commit everything; False where there is nothing to commit."""
    if history.branches and not history.dirty():
        return False
    history.git("add", "-A")
    history.count += 1
    history.git("commit", "-q", "-m", f"Step {history.count}")
    history.branches[history.head] = deepcopy(history.files)
    return True
