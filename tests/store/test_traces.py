"""Sealing traces, following them, and noticing every damaged byte."""

import random
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from ostinato.records import Fate, Outcome, RewardRecord, SessionRow, Turn, TurnTrace
from ostinato.store import CorruptTraceError, Ledger
from ostinato.store.traces import Packed, TraceStore, pack

Make = Callable[..., Turn]


def record(ledger: Ledger, make_turn: Make, session_id: str, *, closed: bool = True) -> list[Turn]:
    """A rewarded session of two turns."""
    ledger.open_session(SessionRow(session_id, "ada", "live", 1.0, 1.0))
    second = TurnTrace(context_len=5, prompt_ids=[9], ids=[10, 11], logprobs=[-1.0, -2.0], experts=b"\x01\x02")
    turns = [
        make_turn(f"{session_id}-0", session_id),
        make_turn(f"{session_id}-1", session_id, 1, trace=second),
    ]
    for turn in turns:
        ledger.begin_turn(turn, b'[{"role": "user", "content": "go"}]')
        ledger.finish_turn(turn)
    ledger.put_reward(RewardRecord(session_id, Outcome.KEPT, 1.0, {"kept": 1.0}, {}, "r1", 2.0))
    if closed:
        ledger.close_session(session_id, 3.0)
    return turns


def sealed_file(ledger: Ledger, key: str | None) -> Path:
    """The file behind a key."""
    assert key is not None
    return ledger.folder / "traces" / key


def test_sealed_traces_read_the_same(ledger: Ledger, make_turn: Make) -> None:
    """Closed sessions move into one object, and reads follow; open sessions stay in the ledger."""
    turns = {name: record(ledger, make_turn, name) for name in ("a", "b")}
    turns["c"] = record(ledger, make_turn, "c", closed=False)
    assert sorted(ledger.unsealed_sessions(10)) == ["a", "b"]
    key = ledger.seal_traces(["a", "b", "c"])
    assert sealed_file(ledger, key).is_file()
    assert ledger.unsealed_sessions(10) == []
    for name, expected in turns.items():
        assert ledger.turns(name) == expected
    assert ledger.seal_traces(["a", "b", "c"]) is None
    assert ledger.verify_traces() == {}
    with Ledger.open(ledger.folder) as other:
        assert other.turns("a") == turns["a"]


def test_a_crash_between_object_and_pointer_keeps_the_traces(ledger: Ledger, make_turn: Make) -> None:
    """The object is written first: without the pointers the ledger still holds everything."""
    turns = record(ledger, make_turn, "a")
    ledger._traces.seal("segments/lost.seg", ledger._sealable(["a"]))
    assert ledger.turns("a") == turns
    assert ledger.seal_traces(["a"]) is not None
    assert ledger.turns("a") == turns


def test_every_damaged_byte_is_noticed(ledger: Ledger, make_turn: Make) -> None:
    """Flipping any one byte of a sealed object is found by verification, and named."""
    record(ledger, make_turn, "a")
    path = sealed_file(ledger, ledger.seal_traces(["a"]))
    good = path.read_bytes()
    for place in range(len(good)):
        bad = bytearray(good)
        bad[place] ^= 1 << (place % 8)
        path.write_bytes(bad)
        assert list(ledger.verify_traces().values()) != [], place
    for cut in (0, 7, 20, len(good) - 1):
        path.write_bytes(good[:cut])
        assert ledger.verify_traces() != {}
    path.write_bytes(good + b"x")
    assert ledger.verify_traces() != {}
    path.write_bytes(good)
    assert ledger.verify_traces() == {}


def test_reading_a_damaged_trace_names_the_file(ledger: Ledger, make_turn: Make) -> None:
    """A damaged, short or missing object is an error that names it; never wrong tokens."""
    turns = record(ledger, make_turn, "a")
    path = sealed_file(ledger, ledger.seal_traces(["a"]))
    good = path.read_bytes()
    path.write_bytes(good[:-3] + b"\x00\x01\x02")
    with pytest.raises(CorruptTraceError, match=path.name):
        ledger.turns("a")
    path.write_bytes(good[:-3])
    with pytest.raises(CorruptTraceError, match=path.name):
        ledger.turns("a")
    path.unlink()
    with pytest.raises(CorruptTraceError, match=f"{path.name} is damaged: the file is gone"):
        ledger.turns("a")
    path.write_bytes(good)
    assert ledger.turns("a") == turns


def test_training_quarantines_damage_and_filters_misfits(ledger: Ledger, make_turn: Make) -> None:
    """Good sessions are handed out; a damaged one is quarantined, one that does not join is filtered; both counted."""
    for name in ("good", "damaged"):
        record(ledger, make_turn, name)
    path = sealed_file(ledger, ledger.seal_traces(["damaged"]))
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    ledger.open_session(SessionRow("misfit", "eve", "live", 1.0, 1.0))
    turn = make_turn("m0", "misfit", trace=TurnTrace(context_len=2, prompt_ids=[1], ids=[2], logprobs=[-1.0]))
    ledger.begin_turn(turn, b"[]")
    ledger.finish_turn(turn)
    ledger.put_reward(RewardRecord("misfit", Outcome.KEPT, 1.0, {}, {}, "r1", 2.0))

    (session,) = ledger.training_sessions(10)
    assert (session.session_id, session.person, session.request, session.reward) == ("good", "ada", "go", 1.0)
    assert session.segments[0].ids.tolist() == [1, 5, 6, 7, 8, 9, 10, 11]
    fates = {row.session_id: row for row in ledger.fates()}
    assert fates["damaged"].fate == "quarantined" and path.name in fates["damaged"].reason
    assert fates["misfit"].fate == "filtered" and "its context has 2 ids" in fates["misfit"].reason
    assert ledger.counters() == {"training.damaged_trace": 1, "training.misfit": 1}
    assert [(row.kind, row.session_id) for row in ledger.incidents()] == [("damaged_trace", "damaged")]
    assert ledger.accounts().balanced


def test_training_takes_only_exact_rewarded_undecided_sessions(ledger: Ledger, make_turn: Make) -> None:
    """No reward, an excluded one, a fate, an inexact or unfinished turn, or an episode: not handed out, not judged."""
    names = [f"n{number}" for number in range(5)]
    for name in names:
        record(ledger, make_turn, name)
    ledger.put_reward(RewardRecord("n0", Outcome.SANDBOX_DIED, None, {}, {}, "r2", 3.0, "sandbox died"))
    ledger.put_fate("n1", Fate.HELD_OUT, "bench")
    cut = make_turn("n2-2", "n2", 2, trainable=False, untrainable_reason="cut", trace=None)
    ledger.begin_turn(cut, b"[]")
    ledger.finish_turn(cut)
    ledger.begin_turn(make_turn("n3-2", "n3", 2, ended_at=None, trace=None), b"[]")
    ledger.open_session(SessionRow("ep", "bench", "episode", 1.0, 1.0))
    ledger.put_reward(RewardRecord("ep", Outcome.KEPT, 1.0, {}, {}, "r1", 2.0))
    assert [session.session_id for session in ledger.training_sessions(10)] == ["n4"]
    assert ledger.trainable_count() == 1
    ledger.put_reward(RewardRecord("n0", Outcome.KEPT, 0.5, {}, {}, "r3", 4.0))
    assert [session.session_id for session in ledger.training_sessions(10)] == ["n0", "n4"]
    assert [session.session_id for session in ledger.training_sessions(1)] == ["n0"]
    assert [row.session_id for row in ledger.fates()] == ["n1"]


def test_results_carry_the_serving_version(ledger: Ledger, make_turn: Make) -> None:
    """Every rewarded live session comes with the version that drew its first token and its latest reward."""
    record(ledger, make_turn, "a")
    ledger.put_reward(RewardRecord("a", Outcome.MENDED, 0.25, {}, {"survival": 0.5}, "r2", 4.0))
    (result,) = ledger.results()
    assert (result.session_id, result.person, result.version) == ("a", "ada", "v-a")
    assert (result.outcome, result.reward, result.signals) == (Outcome.MENDED, 0.25, {"survival": 0.5})


def test_an_object_store_url_is_followed(tmp_path: Path, make_turn: Make) -> None:
    """Sealed traces may lie in any object store that has a URL; here a folder by URL."""
    (tmp_path / "elsewhere").mkdir()
    with Ledger.open(tmp_path / "data", traces_url=(tmp_path / "elsewhere").as_uri()) as ledger:
        turns = record(ledger, make_turn, "a")
        key = ledger.seal_traces(["a"])
        assert key is not None and (tmp_path / "elsewhere" / key).is_file()
        assert ledger.turns("a") == turns


def test_a_key_is_never_written_twice(tmp_path: Path) -> None:
    """An object that exists is not replaced."""
    store = TraceStore(tmp_path)
    trace = TurnTrace(0, [1], [2], [-0.5])
    store.seal("segments/x.seg", [pack("t", trace)])
    with pytest.raises(Exception, match="already exists"):
        store.seal("segments/x.seg", [pack("t", trace)])


def test_random_traces_survive_sealing(tmp_path: Path) -> None:
    """Whatever is in them, traces come back bit for bit, also log-probabilities."""
    rng = random.Random(7)
    traces = [
        TurnTrace(
            context_len=rng.randrange(1000),
            prompt_ids=[rng.randrange(2**17) for _ in range(rng.randrange(60))],
            ids=[rng.randrange(2**17) for _ in range(20)],
            logprobs=[-rng.expovariate(1.0) for _ in range(20)],
            experts=rng.randbytes(rng.randrange(500)),
            experts_start=rng.randrange(9),
        )
        for _ in range(50)
    ]
    packed: list[Packed] = [pack(f"t{number}", trace) for number, trace in enumerate(traces)]
    store = TraceStore(tmp_path)
    places = store.seal("segments/x.seg", packed)
    assert store.read("segments/x.seg", places) == traces
    assert store.verify("segments/x.seg") == [f"t{number}" for number in range(50)]
    assert msgspec.structs.replace(places[0], start=places[0].start + 1) != places[0]
