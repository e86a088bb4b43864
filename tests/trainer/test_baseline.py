"""Baselines: never a session's own reward, less variance where there is something to know."""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from ostinato.records import BadInputError, Outcome, RewardRecord, SessionRow, Turn, VersionSpan
from ostinato.store import Ledger
from ostinato.trainer.baseline import main
from ostinato.trainer.baseline_fit import Floats, Past, advantages, batch_mean, compare, person_mean, ridge


class Row(NamedTuple):
    """What a baseline may know of a session."""

    session_id: str
    person: str
    opened_at: float
    request: str


def world(count: int, persons: int, seed: int = 0, informative: bool = True) -> tuple[list[Row], Floats]:
    """Requests of two kinds, persons of two tempers; rewards that depend on both or on neither."""
    rng = np.random.default_rng(seed)
    hard, grim = rng.random(count) < 0.5, rng.random(persons) < 0.5
    rows = [
        Row(f"s{i}", f"p{i % persons}", float(i), f"{'rename' if hard[i] else 'fix'} thing number {rng.integers(30)}")
        for i in range(count)
    ]
    known = np.where(hard, -0.8, 0.8) + np.where(grim[np.arange(count) % persons], -0.5, 0.5)
    return rows, known * informative + rng.normal(0, 0.7, count)


@pytest.mark.parametrize("persons", [60, 2])
def test_own_reward_never_enters(persons: int) -> None:
    """Changing one reward leaves the baseline of that very session as it was."""
    rows, rewards = world(80, persons)
    for baseline in (lambda r: ridge(rows, r), batch_mean, lambda r: person_mean(rows, r)):
        before = baseline(rewards)
        for number in (0, 41):
            changed = rewards.copy()
            changed[number] += 5.0
            after = baseline(changed)
            assert after[number] == pytest.approx(before[number], abs=1e-9)
            assert not np.allclose(after, before)


def test_a_telling_request_lowers_the_variance() -> None:
    """Where request and person tell, ridge leaves much less than the mean; where nothing does, hardly more."""
    assert compare(*world(600, 80))["ridge"] < 0.6
    assert compare(*world(600, 2))["ridge"] < 0.75
    blind = compare(*world(600, 80, informative=False))
    assert blind["ridge"] < 1.03 and blind["batch_mean"] == 1.0


def test_advantages_have_one_scale() -> None:
    """Their root mean square is 1, whatever the unit of the rewards."""
    rows, rewards = world(200, 50)
    plain = advantages(rows, rewards)
    tenfold = advantages(rows, 10 * rewards)
    assert np.sqrt(np.mean(plain.values**2)) == pytest.approx(1.0)
    np.testing.assert_allclose(plain.values, tenfold.values, atol=1e-6)
    assert tenfold.scale == pytest.approx(10 * plain.scale)
    mean = advantages(rows, rewards, "batch_mean")
    assert mean.variance_left == pytest.approx(1.0) and plain.variance_left < 0.7


def test_earlier_rewards_of_a_person_count() -> None:
    """A person's history moves the guess for the first session in a batch."""
    rows, rewards = world(200, 50)
    grim = {row.person: Past(20, -40.0 if int(row.person[1:]) % 2 else 40.0) for row in rows}
    assert not np.allclose(ridge(rows, rewards, grim)[:50], ridge(rows, rewards)[:50])
    assert person_mean(rows, rewards, grim)[1] < -1 < 1 < person_mean(rows, rewards, grim)[0]


def test_too_little_is_refused() -> None:
    """Too few sessions, or no difference between rewards, is an error in words."""
    rows, rewards = world(7, 7)
    with pytest.raises(BadInputError, match="7 sessions are too few"):
        advantages(rows, rewards)
    rows, _ = world(20, 20)
    with pytest.raises(BadInputError, match="All rewards are the same"):
        advantages(rows, np.ones(20), "batch_mean")


def test_the_command_compares_what_is_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command reads rewards and requests from the ledger."""
    rows, rewards = world(40, 20)
    with Ledger.open(tmp_path) as ledger:
        for row, reward in zip(rows, rewards.tolist(), strict=True):
            ledger.open_session(SessionRow(row.session_id, row.person, "live", row.opened_at, row.opened_at))
            turn = Turn(
                turn_id=f"t{row.session_id}",
                session_id=row.session_id,
                index=0,
                segment=0,
                segment_reason="",
                slot="release",
                versions=(VersionSpan(0, "v"),),
                finish_reason=None,
                temperature=1.0,
                started_at=0.0,
                first_token_at=None,
                ended_at=None,
                trainable=True,
            )
            ledger.begin_turn(turn, json.dumps([{"role": "user", "content": row.request}]).encode())
            ledger.put_reward(RewardRecord(row.session_id, Outcome.KEPT, reward, {}, {}, "rule", 0.0))
    main(["--data", str(tmp_path)])
    printed = json.loads(capsys.readouterr().out)
    assert printed["sessions"] == 40
    assert printed["left"] == pytest.approx(compare(rows, rewards))
