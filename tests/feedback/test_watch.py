"""Following edits over days: horizons, restarts, commits, what is missed."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.feedback.test_persistence import AFTER, BEFORE, Repo

from ostinato.feedback import Checkout, ProposedEdit, Watcher, edit_since, leave_edit, watch_folder
from ostinato.records import BadInputError, EditProposed, EditSurvival, FeedbackEvent

DAY = 86_400.0


class Kept:
    """A queue that keeps events, by id."""

    def __init__(self) -> None:
        self.events: dict[str, FeedbackEvent] = {}

    def send(self, *events: FeedbackEvent) -> None:
        self.events.update({event.event_id: event for event in events})

    def survival(self, edit: ProposedEdit, label: str) -> EditSurvival:
        payload = self.events[f"{edit.edit_id}:{label}"].payload
        assert isinstance(payload, EditSurvival)
        return payload


class World:
    """A repository with an edit that was just left, a queue and a clock."""

    def __init__(self, folder: Path) -> None:
        self.repo, self.queue, self.now = Repo(folder), Kept(), 1_000_000.0
        self.edit = self.leave()

    def leave(self, response: str = "resp-1") -> ProposedEdit:
        with Checkout(self.repo.root) as checkout:
            edit = edit_since(checkout, response, "HEAD", self.now)
            leave_edit(checkout, edit)
        return edit

    def watcher(self) -> Watcher:
        return Watcher(self.repo.root, self.queue, lambda: self.now)

    def labels(self) -> list[str]:
        return [name.removeprefix(f"{self.edit.edit_id}:") for name in self.queue.events]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "repo")


def test_each_horizon_is_reported_once(world: World) -> None:
    """Taken in with its hunks, then a report when each horizon comes, with what survives then; forgotten after the
    last."""
    watcher = world.watcher()
    watcher.look()
    proposed = world.queue.events[f"{world.edit.edit_id}:proposed"]
    assert proposed.response_id == "resp-1"
    assert isinstance(proposed.payload, EditProposed)
    assert [(hunk.path, hunk.line) for hunk in proposed.payload.hunks] == [("shapes.py", 5), ("shapes.py", 12)]
    for delay in (31.0, 121.0, 301.0, 601.0):
        world.now = world.edit.at + delay
        watcher.look()
        watcher.look()
    world.repo.write("shapes.py", BEFORE)
    for delay in (901.0, DAY + 1, 7 * DAY + 1):
        world.now = world.edit.at + delay
        watcher.look()
    assert world.labels() == ["proposed", "30 s", "2 min", "5 min", "10 min", "15 min", "1 day", "7 days"]
    before, after = world.queue.survival(world.edit, "10 min"), world.queue.survival(world.edit, "15 min")
    assert (before.rate, before.survival_rate_four_gram, before.delay_s) == (1.0, 1.0, 601.0)
    assert (after.rate, after.survival_rate_no_revert) == (0.0, 0.0)
    assert [hunk.survival for hunk in after.hunks] == [0.0, 0.0]
    assert (watcher.open, watcher.counts.reports, watcher.counts.missed) == (0, 8, 0)
    assert list((watch_folder_of(world) / "watched").iterdir()) == []


def watch_folder_of(world: World) -> Path:
    with Checkout(world.repo.root) as checkout:
        return watch_folder(checkout)


def test_the_first_commit_is_a_horizon(world: World) -> None:
    """Reported when it is seen, and not for later commits."""
    watcher = world.watcher()
    watcher.look()
    world.now += 5
    world.repo.commit()
    watcher.look()
    world.repo.write("other.py", "x = 1\n")
    world.repo.commit()
    watcher.look()
    assert world.labels() == ["proposed", "commit"]
    assert world.queue.survival(world.edit, "commit").rate == 1.0


def test_a_restart_loses_nothing_and_says_what_it_missed(world: World) -> None:
    """Three horizons come while no watcher runs: the last is reported with its true delay, two are missed."""
    world.watcher().look()
    world.now += 450.0
    again = world.watcher()
    assert again.open == 1
    again.look()
    assert world.labels() == ["proposed", "5 min"]
    assert world.queue.survival(world.edit, "5 min").delay_s == 450.0
    assert again.counts.missed == 2
    world.now = world.edit.at + 601.0
    again.look()
    assert world.labels()[-1] == "10 min"


def test_an_edit_left_before_the_watcher_ran_is_followed(world: World) -> None:
    """And so are several, each under its own id."""
    second = world.leave("resp-2")
    watcher = world.watcher()
    watcher.look()
    assert watcher.counts.taken == 2
    assert {event.response_id for event in world.queue.events.values()} == {"resp-1", "resp-2"}
    assert second.edit_id != world.edit.edit_id


def test_a_stash_is_missing_and_not_lost(world: World) -> None:
    """No report says 0 for an edit that lies in a stash."""
    watcher = world.watcher()
    watcher.look()
    world.repo.git("stash")
    world.now += 31.0
    watcher.look()
    world.repo.git("stash", "pop")
    world.now += 100.0
    watcher.look()
    assert world.labels() == ["proposed", "2 min"]
    assert watcher.counts.missed == 1


def test_what_is_no_edit_is_put_aside(world: World) -> None:
    """Broken JSON, unknown fields, and a file that is not named after its edit."""
    place = watch_folder_of(world) / "proposed"
    (place / "broken.json").write_text("{")
    (place / "wrong.json").write_text('{"edit_id": "../up", "response_id": "r", "at": 1, "files": {}}')
    watcher = world.watcher()
    watcher.look()
    assert (watcher.counts.taken, watcher.counts.refused) == (1, 2)
    assert sorted(path.name for path in (place.parent / "refused").iterdir()) == ["broken.json", "wrong.json"]


def test_an_edit_is_what_changed_since_a_commit(world: World) -> None:
    """New, changed and deleted files; nothing at all is an error, and so is an unknown commit."""
    world.repo.write("new.py", "y = 2\n")
    with Checkout(world.repo.root) as checkout:
        assert edit_since(checkout, "r", "HEAD", 0.0).files == {
            "new.py": (None, "y = 2\n"), "shapes.py": (BEFORE, AFTER),
        }  # fmt: skip
    (world.repo.root / "shapes.py").unlink()
    with Checkout(world.repo.root) as checkout:
        assert edit_since(checkout, "r", "HEAD", 0.0).files["shapes.py"] == (BEFORE, None)
        with pytest.raises(BadInputError, match="no commit 'nowhere'"):
            edit_since(checkout, "r", "nowhere", 0.0)
    world.repo.commit()
    with Checkout(world.repo.root) as checkout, pytest.raises(BadInputError, match="there is no edit"):
        edit_since(checkout, "r", "HEAD", 0.0)


def test_a_repository_that_opts_out_is_left_alone(world: World) -> None:
    """Neither is an edit of it handed over, nor is it watched."""
    world.repo.write(".noagenttrain", "")
    with pytest.raises(BadInputError, match="opts out of training"):
        world.leave()
    with pytest.raises(BadInputError, match="opts out of training"):
        world.watcher()


async def test_it_stops_when_asked(world: World) -> None:
    """The loop looks at once, and ends at once."""
    watcher, stop = world.watcher(), asyncio.Event()
    task = asyncio.create_task(watcher.run(stop))
    await asyncio.sleep(0.05)
    stop.set()
    await asyncio.wait_for(task, 1.0)
    assert watcher.counts.taken == 1


def test_the_commands(world: World) -> None:
    """`ostinato proposed` leaves an edit; `ostinato watch` takes it in, keeps the reports while no gateway is there,
    and says so when it ends. The older edit is a week old: one horizon is reported, six are missed."""
    root = world.repo.root
    left = ostinato("proposed", "resp-9", str(root))
    assert left.returncode == 0, left.stderr
    assert "shapes.py. It is followed while this runs: ostinato watch" in left.stdout
    command = [sys.executable, "-m", "ostinato", "watch", str(root), "--gateway", "http://127.0.0.1:9"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert f"Watching {root}" in process.stdout.readline()
    queue = watch_folder_of(world) / "queue" / "queue.jsonl"
    deadline = time.monotonic() + 30
    while queue.read_text().count("\n") < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGTERM)
    said, _ = process.communicate(timeout=30)
    assert "Edits taken in: 2, refused: 0; reports: 3, horizons missed: 6" in said
    assert "waiting: 3" in said
    elsewhere = ostinato("proposed", "resp-9", str(root.parent))
    assert elsewhere.returncode == 1
    assert "not in a git repository" in elsewhere.stderr


def ostinato(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ostinato", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
