"""The demonstrator: its sessions are real, and its habits have the shares that they are meant to have."""

from collections.abc import Callable
from random import Random
from statistics import mean

import pytest

from ostinato.agent import invalid_reason
from ostinato.tinyworld import (
    BASE_HABITS,
    Habits,
    MemoryWorkspace,
    Trajectory,
    demonstrate,
    generate_task,
    judge,
    sample_trajectories,
)

GOOD = Habits(**dict.fromkeys(Habits.__struct_fields__, 0.0))
"""No habit at all: the plain good path."""


@pytest.fixture(scope="module")
def sample() -> list[Trajectory]:
    """A sample of demonstrations."""
    return list(sample_trajectories("seed", 1500, seed=0))


def share(sample: list[Trajectory], test: Callable[[Trajectory], bool]) -> float:
    """The share of trajectories for which the test holds."""
    return sum(map(test, sample)) / len(sample)


def test_same_seed_gives_the_same_sample() -> None:
    """Demonstrations are a function of split, number and habits."""
    assert list(sample_trajectories("live", 20, seed=3)) == list(sample_trajectories("live", 20, seed=3))


def test_messages_replay_to_the_stated_outcome(sample: list[Trajectory]) -> None:
    """Every call is valid, its answer is the workspace's own, and `solved` is the judge's word."""
    for number, trajectory in enumerate(sample[:400]):
        task = generate_task("seed", number)
        workspace = MemoryWorkspace(task.files)
        first, *middle, last = trajectory.messages
        assert (first.role, first.content) == ("user", task.request)
        assert last.role == "assistant"
        assert last.content
        assert not last.tool_calls
        for asked, answered in zip(middle[::2], middle[1::2], strict=True):
            (call,) = asked.tool_calls
            assert invalid_reason(call) == ""
            assert (answered.tool_call_id, answered.content) == (call.id, workspace.call(call))
        assert trajectory.solved == judge(task, workspace.files, last.content)


def test_weights_fit_the_messages(sample: list[Trajectory]) -> None:
    """One weight for each message: none outside the assistant's, little for what is deliberately wrong."""
    for trajectory in sample:
        assert len(trajectory.loss_weights) == len(trajectory.messages)
        for message, weight in zip(trajectory.messages, trajectory.loss_weights, strict=True):
            assert (weight > 0) == (message.role == "assistant")
            if message.role == "assistant" and weight == 1.0 and not trajectory.solved:
                assert trajectory.asked or trajectory.kind == "question"


def test_without_habits_every_task_is_solved() -> None:
    """The plain path solves every task, with no edit more than needed."""
    for number in range(300):
        task = generate_task("held_out", number)
        trajectory = demonstrate(task, Random(number), GOOD)
        assert trajectory.solved, task
        assert not (trajectory.asked or trajectory.junk or trajectory.extra_read or trajectory.wrong_first)


def test_habits_have_their_shares(sample: list[Trajectory]) -> None:
    """Needless questions, junk comments and needless reads are the majority where they are meant to be."""
    tags = {trajectory.task_id: generate_task("seed", number).tags for number, trajectory in enumerate(sample)}
    vague = [each for each in sample if tags[each.task_id]["vague"] == "yes"]
    assert abs(share(vague, lambda each: each.asked) - BASE_HABITS.asks_vague) < 0.08
    worked = [each for each in sample if not each.asked]
    edits = [each for each in worked if each.kind in ("bug", "feature", "lint")]
    legacy = [each for each in edits if tags[each.task_id]["style"] == "legacy"]
    packaged = [each for each in edits if tags[each.task_id]["style"] == "packaged"]
    assert share(legacy, lambda each: each.junk) > 0.6
    assert share([each for each in edits if each not in legacy], lambda each: each.junk) < 0.35
    assert share(packaged, lambda each: each.extra_read) > 0.55
    assert share(worked, lambda each: each.tested_after) < 0.5
    plain = [each for each in worked if tags[each.task_id]["style"] == "plain" and each.kind != "question"]
    assert share(plain, lambda each: each.summed_up) > 0.6
    assert 0.1 < share(edits, lambda each: each.read_back) < 0.4


def test_asking_is_no_cheaper_than_working(sample: list[Trajectory]) -> None:
    """Else whoever learns to work instead of asking spends more."""

    def words(each: Trajectory) -> float:
        return sum(len(message.content.split()) for message in each.messages if message.role == "assistant")

    def calls(each: Trajectory) -> float:
        return sum(len(message.tool_calls) for message in each.messages)

    asked = [each for each in sample if each.asked]
    worked = [each for each in sample if not each.asked]
    assert mean(map(words, asked)) > mean(map(words, worked))
    assert mean(map(calls, asked)) > 0.9 * mean(map(calls, worked))


def test_verifying_after_a_wrong_edit_leads_to_the_right_one(sample: list[Trajectory]) -> None:
    """Who runs the tests after a wrong edit sees the failure, mends it and sees them pass."""
    verified = [each for each in sample if each.wrong_first and each.tested_after]
    assert len(verified) > 30
    for trajectory in verified:
        runs = [message.content for message in trajectory.messages if message.role == "tool"]
        assert trajectory.solved
        assert runs[-1] == "passed"
        assert any(text.startswith("failed: ") for text in runs)
