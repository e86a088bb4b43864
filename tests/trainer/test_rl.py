"""The whole run: learning, order of versions, refusals, and the command over a ledger."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from ostinato.records import (
    BadInputError,
    ConflictError,
    Fate,
    Outcome,
    RewardRecord,
    SessionRow,
    Turn,
    TurnTrace,
    VersionSpan,
)
from ostinato.store import Ledger, TrainSession
from ostinato.trainer.checkpoint import load_published
from ostinato.trainer.rl import main
from ostinato.trainer.rl_batches import micro_batches
from ostinato.trainer.rl_guards import StepStats, check_run, check_step
from ostinato.trainer.rl_ledger import train_from_ledger
from ostinato.trainer.rl_train import RLConfig, train_rl

FAST = RLConfig(learning_rate=5e-3, batch_sessions=32)


def low(ids: list[int]) -> float:
    """The two-armed bandit: tokens of the lower half of the vocabulary pay."""
    return float(np.mean([token < 6 for token in ids]))


def test_a_bandit_improves(published: Any, draw: Any, tmp_path: Path) -> None:
    """Two rounds of single episodes raise the mean reward; the second resumes, its mismatch is nil, and sessions of
    the first version are corrected for, not refused. Flipped rewards lower it."""
    weights, start = published
    first = draw(weights, start, 320, low)
    before = float(np.mean([session.reward for session in first]))
    one = train_rl(FAST, first, start, weights, tmp_path / "state")
    assert one.steps == 10 and one.stats["mismatch_mean_abs"] < 1e-6 and one.stats["mismatch_tokens"] == 128
    assert not one.stats["resumed"] and weights.get(one.version).parent == start
    second = draw(weights, one.version, 320, low, seed=1)
    two = train_rl(FAST, [*second, *first[:32]], one.version, weights, tmp_path / "state")
    assert two.stats["resumed"] and two.stats["mismatch_mean_abs"] < 1e-6 and len(two.trained) == 352
    after = float(np.mean([session.reward for session in draw(weights, two.version, 400, low, seed=2)]))
    assert before < 0.75 and after > before + 0.2
    flipped = train_rl(msgspec.structs.replace(FAST, flip_rewards=True), first, start, weights, tmp_path / "state")
    damaged = float(np.mean([session.reward for session in draw(weights, flipped.version, 400, low, seed=2)]))
    assert damaged < before - 0.1
    assert flipped.version != one.version


def test_a_turn_that_a_swap_cut_is_no_measure_of_the_engine(published: Any, draw: Any) -> None:
    """What the parent drew after another version in the same turn is trained on, but not held against the engine."""
    own, cut = draw(published.weights, published.version, 2, low)
    drawn_by = np.array([-1, -1, -1, 0, 1], np.int32)
    cut = msgspec.structs.replace(altered(cut, version_index=drawn_by), versions=("v-old", published.version))
    batch = micro_batches([own, cut], load_published(published.weights, published.version).config, published.version)[0]
    assert batch.session_N.tolist() == [0, 0, 1, 1] and batch.own_N.tolist() == [True, True, False, False]


def test_the_same_run_gives_the_same_version(
    published: Any, draw: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing in a run is left to chance, whatever the threads; another order of sessions is another run."""
    weights, version = published
    sessions = draw(weights, version, 64, low)
    monkeypatch.setattr("ostinato.trainer.rl_batches.MICRO_TOKENS", 64)
    results = [
        train_rl(msgspec.structs.replace(FAST, seed=seed), sessions, version, weights, tmp_path, threads=threads)
        for seed, threads in ((0, 1), (0, 3), (1, 1))
    ]
    assert results[0].version == results[1].version != results[2].version


def test_distance_from_a_reference_costs(published: Any, draw: Any, tmp_path: Path) -> None:
    """A KL weight needs its reference; with the parent as reference it changes nothing on-policy."""
    sessions = draw(published.weights, published.version, 64, low)
    with pytest.raises(BadInputError, match="KL weight without a reference"):
        train_rl(RLConfig(kl_weight=0.1), sessions, published.version, published.weights, tmp_path)
    config = msgspec.structs.replace(FAST, kl_weight=0.1, kl_reference=published.version)
    with_kl = train_rl(config, sessions, published.version, published.weights, tmp_path)
    without = train_rl(FAST, sessions, published.version, published.weights, tmp_path)
    assert with_kl.stats["reward_scale"] == pytest.approx(without.stats["reward_scale"], abs=1e-5)


def altered(session: TrainSession, **changes: Any) -> TrainSession:
    """The session with fields of its segment changed."""
    segment = msgspec.structs.replace(session.segments[0], **changes)
    return msgspec.structs.replace(session, segments=(segment,))


def test_what_does_not_fit_is_left_out_by_name(published: Any, draw: Any, tmp_path: Path) -> None:
    """Old versions expire; sessions that the model cannot have drawn are refused with the reason."""
    weights, version = published
    sessions = draw(weights, version, 48, low)
    segment = sessions[0].segments[0]
    sessions[0] = altered(sessions[0], ids=np.full_like(segment.ids, 12))
    sessions[1] = altered(sessions[1], experts=segment.experts[:, :1])
    sessions[2] = altered(sessions[2], logprobs=np.full_like(segment.logprobs, np.nan))
    sessions[3] = altered(sessions[3], sampled=np.zeros_like(segment.sampled))
    sessions[4] = altered(sessions[4], experts=np.full_like(segment.experts, 9))
    sessions[5] = msgspec.structs.replace(sessions[5], versions=("v-unknown",))
    result = train_rl(FAST, sessions, version, weights, tmp_path)
    reasons = [result.refused[sessions[number].session_id] for number in range(5)]
    for reason, word in zip(reasons, ("vocabulary", "shape", "log-prob", "no sampled", "expert 9"), strict=True):
        assert word in reason
    assert result.expired == [sessions[5].session_id] and len(result.trained) == 42
    line = [version]
    for _ in range(3):
        bits = {name: array ^ np.uint16(1) for name, array in weights.fetch(line[-1]).items()}
        bits["model.norm.weight"] = bits["model.norm.weight"] + np.uint16(len(line))
        line.append(weights.publish(bits, parent=line[-1]).version)
    with pytest.raises(BadInputError, match="0 sessions are too few"):
        train_rl(FAST, sessions[6:], line[-1], weights, tmp_path)


def test_nothing_wrong_is_published(published: Any, draw: Any, tmp_path: Path) -> None:
    """A disagreement with the engine, numbers that are none, lost entropy and runaway ratios each stop the run."""
    weights, version = published
    sessions = [
        altered(session, logprobs=session.segments[0].logprobs - 0.1) for session in draw(weights, version, 48, low)
    ]
    with pytest.raises(ConflictError, match="the engine does not compute what the trainer does"):
        train_rl(FAST, sessions, version, weights, tmp_path)
    good = StepStats(loss=0.1, grad_norm=1.0, entropy=1.0, ratio=1.0, clipped=0.0, tokens=10)
    check_step(1, good)
    check_run([good] * 8)
    for bad in (good._replace(loss=float("nan")), good._replace(grad_norm=float("inf"))):
        with pytest.raises(ConflictError, match="nothing is published"):
            check_step(1, bad)
    with pytest.raises(ConflictError, match="entropy fell"):
        check_run([*[good] * 8, *[good._replace(entropy=0.01)] * 4])
    with pytest.raises(ConflictError, match="left the ratio bounds"):
        check_run([*[good] * 8, *[good._replace(clipped=0.9)] * 4])
    assert [stored.version for stored in weights.versions()] == [version]


def fill(data: Path, sessions: list[TrainSession], temperature: float = 1.0) -> None:
    """Write the sessions into the ledger of `data` as the gateway would, with their rewards."""
    with Ledger.open(data) as ledger:
        for session in sessions:
            segment, at = session.segments[0], session.opened_at
            ledger.open_session(SessionRow(session.session_id, session.person, "live", at, at))
            turn = Turn(
                turn_id=f"t-{session.session_id}",
                session_id=session.session_id,
                index=0,
                segment=0,
                segment_reason="",
                slot="release",
                versions=(VersionSpan(0, session.versions[0]),),
                finish_reason=None,
                temperature=temperature,
                started_at=at,
                first_token_at=None,
                ended_at=None,
                trainable=True,
            )
            ledger.begin_turn(turn, json.dumps([{"role": "user", "content": session.request}]).encode())
            trace = TurnTrace(
                context_len=0,
                prompt_ids=segment.ids[~segment.sampled].tolist(),
                ids=segment.ids[segment.sampled].tolist(),
                logprobs=segment.logprobs[segment.sampled].tolist(),
                experts=segment.experts[:-1].tobytes(),
            )
            ledger.finish_turn(msgspec.structs.replace(turn, ended_at=at, finish_reason="stop", trace=trace))
            ledger.put_reward(RewardRecord(session.session_id, Outcome.KEPT, session.reward, {}, {}, "rule", at))


def test_the_command_settles_every_session(
    published: Any, draw: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Sessions from the ledger are trained on and get their fates; the same run again changes nothing."""
    fill(tmp_path, draw(published.weights, published.version, 48, low))
    fill(tmp_path, draw(published.weights, published.version, 2, low, seed=1), temperature=0.7)
    arguments = ["--data", str(tmp_path), "--parent", published.version, "--run", "r1", "--threads", "1"]
    main([*arguments[:4], "--flip-rewards"])
    damaged = json.loads(capsys.readouterr().out.splitlines()[-1])
    with Ledger.open(tmp_path) as ledger:
        assert ledger.accounts().open == 50, "a run on flipped rewards leaves the sessions as they are"
    main(arguments)
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    with Ledger.open(tmp_path) as ledger:
        accounts = ledger.accounts()
        assert accounts.balanced and accounts.open == 0
        assert accounts.fates["trained"] == 48 and accounts.fates["filtered"] == 2
        assert {row.version for row in ledger.fates(Fate.TRAINED)} == {printed["version"]}
        assert "temperature 0.7" in ledger.fates(Fate.FILTERED)[0].reason
        assert {version.version for version in ledger.versions()} == {damaged["version"], printed["version"]}
    main(arguments)
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == printed
    with pytest.raises(SystemExit):
        main(arguments[:4])
    assert "0 sessions are too few" in capsys.readouterr().err


def test_a_killed_run_can_be_run_again(published: Any, draw: Any, tmp_path: Path) -> None:
    """After kill -9 in the middle nothing is settled and no state is torn; the next run does the whole work."""
    fill(tmp_path, draw(published.weights, published.version, 96, low))
    arguments = ["--data", str(tmp_path), "--parent", published.version, "--batch-sessions", "2", "--threads", "1"]
    with subprocess.Popen(
        [sys.executable, "-m", "ostinato.trainer.rl", *arguments], stdout=subprocess.PIPE, text=True, env=os.environ
    ) as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        process.kill()
    assert first["done"] == 1 and first["total"] == 48
    with Ledger.open(tmp_path) as ledger:
        assert ledger.accounts().open in (0, 96)
    done = train_from_ledger(tmp_path, published.version, FAST, limit=1000, run_id="again", quiet=True)
    with Ledger.open(tmp_path) as ledger:
        assert ledger.accounts().fates["trained"] == 96
    assert published.weights.get(done.version).parent == published.version
