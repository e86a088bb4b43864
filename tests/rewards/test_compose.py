"""The composition of rewards: weights, order of outcomes, the effort curve, the rule's name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.records import Outcome
from ostinato.rewards import RewardConfig, Signals, effort_cost, live_metrics, reward_of, reward_parts, rule_name

CONFIG = RewardConfig()


def reward(**given_signals: object) -> float:
    value = reward_of("s", Signals(turns=2, tokens=80, closed=True, **given_signals), CONFIG, 0.0).reward  # type: ignore[arg-type]
    assert value is not None
    return value


def test_effort_is_the_published_curve() -> None:
    """C(0) = 0 with slope 1; q = 1 is the logarithm; q = 0 is linear; the default takes .011 for a token."""
    assert effort_cost(0.0, 1 / 40, 1.0) == 0.0
    assert effort_cost(1e-6, 1 / 40, 2.0) == pytest.approx(1e-6, rel=1e-3)
    assert effort_cost(100.0, 1 / 40, 0.0) == pytest.approx(100.0)
    assert effort_cost(100.0, 1 / 40, 1.0) == pytest.approx(effort_cost(100.0, 1 / 40, 1.0 + 1e-7), rel=1e-4)
    parts = reward_parts(Signals(edited=True, tokens=80), Outcome.KEPT, CONFIG)
    assert parts["effort"] == pytest.approx(-0.011 * 80)


@given(st.floats(0, 5000), st.floats(0, 5000), st.floats(0, 3))
def test_effort_grows_ever_more_slowly(one: float, two: float, q: float) -> None:
    """More tokens never cost less, and two sessions together cost at least what one of both lengths does."""
    k = 1 / 40
    assert effort_cost(one + two, k, q) >= effort_cost(one, k, q) - 1e-9
    assert effort_cost(one + two, k, q) <= effort_cost(one, k, q) + effort_cost(two, k, q) + 1e-6


def test_no_escape_beats_an_honest_try() -> None:
    """Asking, leaving, breaking off or doing nothing is worth less than an edit that is reverted with a complaint."""
    tried = reward(edited=True, reverted=True, dissatisfied=1.0)
    escapes = [
        reward(asked=True, replied=True, dissatisfied=0.0),
        reward(replied=True, dissatisfied=0.9),
        reward(replied=True, committed=True),
        reward(abandoned=True, replied=True),
        reward(edited=True, abandoned=True),
        *(reward(end=end) for end in ("turn_limit", "time_limit", "context_full", "invalid_calls", "empty_answer")),
    ]
    assert all(value < tried for value in escapes)


def test_mended_lies_between_reverted_and_kept() -> None:
    """The reward grows with the surviving share."""
    values = [reward(edited=True, survival=share) for share in (0.0, 0.2, 0.5, 0.8, 1.0)]
    assert values == sorted(values)
    assert values[2] - values[0] == pytest.approx(0.8)


def test_invalid_calls_cost_up_to_a_cap() -> None:
    """Each costs the same until the cap."""
    values = [reward(edited=True, survival=1.0, invalid_calls=n) for n in range(7)]
    assert values[0] - values[1] == pytest.approx(0.1)
    assert values[4] == values[6]


def test_the_sum_of_parts_is_the_reward() -> None:
    """Nothing is added outside the named parts."""
    record = reward_of(
        "s", Signals(edited=True, survival=0.7, dissatisfied=0.6, tokens=99, invalid_calls=1), CONFIG, 1.0
    )
    assert record.reward == pytest.approx(sum(record.parts.values()))
    assert set(record.parts) == {"mended", "dissatisfied", "invalid", "effort"}


def test_the_rule_names_code_and_settings() -> None:
    """Other settings, another name; the same, the same."""
    assert rule_name(CONFIG) == rule_name(RewardConfig())
    assert rule_name(CONFIG) != rule_name(RewardConfig(asked=-0.1))


def metrics(**given_signals: object) -> dict[str, float | None]:
    signals = Signals(turns=2, tokens=80, closed=True, **given_signals)  # type: ignore[arg-type]
    return live_metrics(reward_of("s", signals, CONFIG, 0.0))


def test_live_metrics() -> None:
    """Persistence counts missing edits as 0 and is absent where none was wanted; abandonment is dissatisfaction."""
    assert metrics(edited=True, survival=1.0)["persistence"] == 1.0
    assert metrics(edited=True, survival=0.6)["persistence"] == 0.6
    assert metrics(edited=True, reverted=True, survival=0.2)["persistence"] == 0.0
    assert metrics(replied=True, dissatisfied=0.1)["persistence"] is None
    assert metrics(replied=True, asked=True, dissatisfied=0.9)["persistence"] == 0.0
    assert metrics(abandoned=True)["persistence"] == 0.0
    assert metrics(abandoned=True)["dissatisfied"] == 1.0
    assert metrics(edited=True, survival=1.0, dissatisfied=0.2)["dissatisfied"] == 0.0
    assert metrics(end="sandbox_died") == dict.fromkeys(metrics())
    assert metrics(edited=True, survival=1.0)["tokens"] == 80


def test_broken_calls_can_be_discarded_to_show_what_comes_of_it() -> None:
    """Off by default; where it is on, the record names why there is no reward, and other sessions keep theirs."""
    broken, whole = Signals(edited=True, survival=1.0, invalid_calls=1), Signals(edited=True, survival=1.0)
    flawed = RewardConfig(discard_invalid=True)
    record = reward_of("s", broken, flawed, 0.0)
    assert (record.reward, record.parts, record.exclusion) == (None, {}, "invalid calls are discarded")
    assert reward_of("s", whole, flawed, 0.0).reward == reward_of("s", whole, CONFIG, 0.0).reward
    assert reward_of("s", broken, CONFIG, 0.0).reward is not None
