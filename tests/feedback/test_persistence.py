"""Where an edit goes in a real git repository, and how much of it is still there."""

import subprocess
from pathlib import Path

import pytest
from benchmarks.persistence import follow, right

from ostinato.feedback import Checkout, EditFollower, Persistence, propose_edit
from ostinato.records import BadInputError

BEFORE = """import os


def area(width, height):
    return width + height


def names(folder):
    found = []
    for name in os.listdir(folder):
        found.append(name)
    return found


def last(items):
    return items[-1]
"""
AFTER = BEFORE.replace("width + height", "width * height").replace(
    "    return found\n",
    '    if not found:\n        raise ValueError("the folder is empty")\n    return sorted(found)\n',
)


class Repo:
    """A repository with one file, and an edit of it that is not committed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        self.git("init", "-q", "-b", "main")
        self.write("shapes.py", BEFORE)
        self.commit()
        self.write("shapes.py", AFTER)
        with Checkout(root) as checkout:
            self.follower = EditFollower(propose_edit(checkout, "e1", "r1", 0.0, {"shapes.py": (BEFORE, AFTER)}))

    def git(self, *arguments: str) -> None:
        who = ("-c", "user.name=ann", "-c", "user.email=ann@example.org")
        subprocess.run(["git", "-C", str(self.root), *who, *arguments], check=True, capture_output=True)

    def write(self, name: str, text: str) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)

    def commit(self) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "Step")

    def measure(self) -> Persistence:
        with Checkout(self.root) as checkout:
            return self.follower.measure(checkout)

    @property
    def share(self) -> float | None:
        return self.measure().share


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path / "repo")


def test_an_edit_that_nobody_touches_is_whole(repo: Repo) -> None:
    """One state for each hunk, all there, before and after the commit."""
    found = repo.measure()
    assert [(hunk.line, hunk.share) for hunk in found.hunks] == [(5, 1.0), (12, 1.0)]
    assert (found.share, found.place, found.branch_changed) == (1.0, "working tree", False)
    repo.commit()
    assert repo.share == 1.0


def test_layout_says_nothing(repo: Repo) -> None:
    """Other indentation, quotes and line breaks keep an edit whole."""
    text = AFTER.replace("    ", "  ").replace('"', "'").replace("ValueError(", "ValueError(\n    ")
    repo.write("shapes.py", text)
    assert repo.share == 1.0


def test_hunks_are_judged_one_by_one(repo: Repo) -> None:
    """One taken back, one kept; then one line of it rewritten."""
    repo.write("shapes.py", AFTER.replace("width * height", "width + height"))
    assert [hunk.share for hunk in repo.measure().hunks] == [0.0, 1.0]
    rewritten = AFTER.replace('raise ValueError("the folder is empty")', "return None")
    repo.write("shapes.py", rewritten)
    first, second = repo.measure().hunks
    assert first.share == 1.0
    assert 0.2 < second.share < 0.8


def test_what_was_moved_or_renamed_is_still_there(repo: Repo) -> None:
    """The file gets another name; then its function goes to a file of its own."""
    repo.git("mv", "shapes.py", "geometry.py")
    assert repo.share == 1.0
    repo.commit()
    start, end = AFTER.index("def names"), AFTER.index("def last")
    repo.write("geometry.py", AFTER[:start] + AFTER[end:])
    repo.write("folders/listing.py", "import os\n\n\n" + AFTER[start:end])
    assert repo.share == 1.0


def test_a_commit_stays_on_its_branch(repo: Repo) -> None:
    """Another branch without the edit says nothing of it; taking it back on its own branch does."""
    repo.git("checkout", "-q", "-b", "topic")
    assert repo.measure().branch_changed is False, "what is not committed went along"
    repo.commit()
    assert repo.share == 1.0
    repo.git("checkout", "-q", "main")
    found = repo.measure()
    assert (found.share, found.place, found.branch_changed) == (1.0, "branch topic", True)
    repo.git("checkout", "-q", "topic")
    repo.git("revert", "--no-edit", "HEAD")
    assert repo.share == 0.0


def test_a_stash_sets_it_aside(repo: Repo) -> None:
    """Neither kept nor lost while it lies there; dropped with it."""
    repo.git("stash")
    assert (repo.share, repo.measure().place) == (None, "stash")
    repo.git("stash", "pop")
    assert repo.share == 1.0
    repo.git("stash")
    repo.git("stash", "drop")
    assert repo.share == 0.0


def test_rebase_squash_and_merge_keep_it(repo: Repo) -> None:
    """Commits get other ids and the branch goes; the lines are what counts."""
    repo.git("checkout", "-q", "-b", "topic")
    repo.commit()
    assert repo.share == 1.0
    repo.git("checkout", "-q", "main")
    repo.write("other.py", "x = 1\n")
    repo.commit()
    repo.git("checkout", "-q", "topic")
    repo.git("rebase", "-q", "main")
    assert repo.share == 1.0
    repo.git("checkout", "-q", "main")
    repo.git("merge", "-q", "--squash", "topic")
    repo.commit()
    repo.git("branch", "-D", "topic")
    found = repo.measure()
    assert (found.share, found.branch_changed) == (1.0, False)


def test_generated_histories(tmp_path: Path) -> None:
    """Nineteen hunks of twenty are right over generated histories; the benchmark measures a thousand."""
    judged = []
    for seed in range(25):
        _, rows = follow(tmp_path / "repo", seed)
        judged += [right(true, said) for truth, saying, _ in rows for true, said in zip(truth, saying, strict=True)]
    assert sum(judged) >= 0.95 * len(judged)


def test_a_folder_without_a_repository_is_named(tmp_path: Path) -> None:
    """And a bare repository is refused."""
    with pytest.raises(BadInputError, match="not in a git repository"):
        Checkout(tmp_path)
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "bare")], check=True)
    with pytest.raises(BadInputError, match="bare"):
        Checkout(tmp_path / "bare")
