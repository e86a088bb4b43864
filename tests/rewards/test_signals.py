"""Signals from events and turns, and the outcome of every combination of them."""

import itertools

import pytest

from ostinato.records import (
    Abandoned,
    AgentEnded,
    Cancelled,
    Comment,
    Commit,
    EditDecision,
    EditProposed,
    EditReverted,
    EditSurvival,
    FeedbackEvent,
    FollowUp,
    HunkDecision,
    Latency,
    LaterFix,
    Outcome,
    Rating,
    SessionClosed,
    TaskOutcome,
    Turn,
    TurnTrace,
)
from ostinato.records.feedback import Payload
from ostinato.rewards import EXCLUDED, RewardConfig, Signals, outcome_of, reward_of, signals_of

PROPOSED = EditProposed(["a.py"], 1, 1)
DONE = AgentEnded("done", 2, 3, 0, "sb1")


def events(*payloads: Payload) -> list[FeedbackEvent]:
    return [FeedbackEvent(f"e{n}", "r1", float(n), item) for n, item in enumerate(payloads)]


def turn(index: int, count: int) -> Turn:
    trace = TurnTrace(0, [1, 2], [5] * count, [-0.1] * count)
    return Turn(f"t{index}", "s1", index, 0, "", "release", (), "stop", 1.0, 0.0, 0.1, 0.2, True, "", trace)


def test_signals_are_read_from_events_and_turns() -> None:
    """The latest survival by its delay, the smaller of its two scores, counts of the run, generated tokens."""
    found = signals_of(
        events(
            PROPOSED, EditSurvival(900, 0.5, 0.4), EditSurvival(30, 1.0, 1.0), DONE, Latency(1.0, 0.5), SessionClosed()
        ),
        [turn(0, 10), turn(1, 7)],
        "Fixed it.",
    )
    assert (found.edited, found.survival, found.tokens, found.tool_calls) == (True, 0.4, 17, 3)
    assert (found.seconds, found.closed, found.asked, found.end) == (1.5, True, False, "done")


@pytest.mark.parametrize(
    ("payloads", "reply", "outcome"),
    [
        ((PROPOSED, EditSurvival(900, 1.0, 1.0), DONE), "Fixed.", Outcome.KEPT),
        ((PROPOSED, EditSurvival(900, 0.6, 0.9), DONE), "Fixed.", Outcome.MENDED),
        ((PROPOSED, EditSurvival(900, 0.3, 0.0), DONE), "Fixed.", Outcome.REVERTED),
        ((PROPOSED, EditReverted(5.0), DONE), "Fixed.", Outcome.REVERTED),
        ((PROPOSED, DONE, SessionClosed()), "Fixed.", Outcome.NO_FEEDBACK),
        ((PROPOSED, DONE, FollowUp("thanks, works")), "Fixed.", Outcome.KEPT),
        ((PROPOSED, Abandoned(), DONE), "Fixed.", Outcome.ABANDONED),
        ((PROPOSED, EditSurvival(900, 1.0, 1.0), AgentEnded("turn_limit", 12, 12, 0)), "", Outcome.KEPT),
        ((PROPOSED, EditDecision("accepted"), DONE), "Fixed.", Outcome.KEPT),
        ((PROPOSED, EditDecision("accepted"), EditDecision("rejected"), DONE), "Fixed.", Outcome.REVERTED),
        ((PROPOSED, HunkDecision("accepted", 3, 1), HunkDecision("rejected", 4, 0), DONE), "Fixed.", Outcome.MENDED),
        ((PROPOSED, EditSurvival(900, 1.0, 1.0), LaterFix(90_000, 0.4), DONE), "Fixed.", Outcome.MENDED),
        ((PROPOSED, EditSurvival(900, 0.0, 0.0, did_branch_change=True), DONE), "Fixed.", Outcome.NO_FEEDBACK),
        ((PROPOSED, EditSurvival(900, 0.0, 0.3, survival_rate=1.0), DONE), "Fixed.", Outcome.KEPT),
        ((PROPOSED, TaskOutcome(True), DONE), "Fixed.", Outcome.KEPT),
        ((PROPOSED, TaskOutcome(False, "tests fail"), DONE), "Fixed.", Outcome.REVERTED),
        ((DONE, Comment("thanks, works")), "In a.py.", Outcome.ANSWERED),
        ((DONE, FollowUp("thanks!")), "In a.py.", Outcome.ANSWERED),
        ((DONE, SessionClosed()), "In a.py.", Outcome.ANSWERED),
        ((DONE, FollowUp("that is wrong")), "In a.py.", Outcome.NOTHING_DONE),
        ((DONE, Rating(-1)), "In a.py.", Outcome.NOTHING_DONE),
        ((DONE, Commit("b", "fix", {}, {}, ("x",)), SessionClosed()), "Fixed.", Outcome.NOTHING_DONE),
        ((DONE, FollowUp("just fix it")), "Which one?", Outcome.ASKED),
        ((DONE, Abandoned()), "Which one?", Outcome.ABANDONED),
        ((Cancelled(),), "", Outcome.CANCELLED),
        ((AgentEnded("turn_limit", 12, 12, 0), Abandoned()), "", Outcome.TURN_LIMIT),
        ((AgentEnded("time_limit", 3, 2, 0), Abandoned()), "", Outcome.TIME_LIMIT),
        ((AgentEnded("invalid_calls", 3, 4, 4), Abandoned()), "", Outcome.INVALID_CALLS),
        ((AgentEnded("empty_answer", 1, 0, 0), Abandoned()), "", Outcome.EMPTY_ANSWER),
        ((AgentEnded("sandbox_died", 1, 0, 0), SessionClosed()), "", Outcome.SANDBOX_DIED),
        ((AgentEnded("model_error", 1, 0, 0), SessionClosed()), "", Outcome.MODEL_ERROR),
        ((), "Fixed.", Outcome.NO_FEEDBACK),
    ],
)
def test_outcomes(payloads: tuple[Payload, ...], reply: str, outcome: Outcome) -> None:
    """Each way in which a session ends, as its client reports it."""
    assert outcome_of(signals_of(events(*payloads), [turn(0, 10)], reply)) == outcome


def every_combination() -> list[Signals]:
    flags = (False, True)
    ends = (
        None,
        "done",
        "turn_limit",
        "time_limit",
        "context_full",
        "sandbox_died",
        "invalid_calls",
        "empty_answer",
        "model_error",
    )
    choices = itertools.product(
        flags, (None, 0.0, 0.5, 1.0), flags, (None, 0.1, 0.9), flags, flags, flags, flags, flags, flags, ends, (0, 2)
    )
    names: tuple[str, ...] = (
        "edited",
        "survival",
        "reverted",
        "dissatisfied",
        "abandoned",
        "cancelled",
        "committed",
        "closed",
        "asked",
    )
    names += ("replied", "end", "turns")
    return [Signals(**dict(zip(names, values, strict=True))) for values in choices]  # type: ignore[arg-type]


def test_every_combination_has_a_reward_or_a_named_exclusion() -> None:
    """No combination of signals is silently free of reward, and every outcome is reached."""
    config, seen = RewardConfig(), set()
    for signals in every_combination():
        record = reward_of("s", signals, config, 0.0)
        seen.add(record.outcome)
        if record.outcome in EXCLUDED:
            assert record.reward is None
            assert record.exclusion == record.outcome.value
        else:
            assert record.reward is not None
            assert record.reward != 0.0
            assert record.exclusion == ""
            assert record.parts[record.outcome.value] != 0.0
    assert seen == set(Outcome)
