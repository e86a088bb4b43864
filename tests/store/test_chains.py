"""Assembling segments: exact, or refused with the turn and the reason."""

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from ostinato.records import BadInputError, Turn, TurnTrace, VersionSpan
from ostinato.store.chains import UNKNOWN_EXPERT, assemble, request_text

Make = Callable[..., Turn]


def with_trace(turn: Turn, **fields: Any) -> Turn:
    """The turn with some fields of its trace changed."""
    assert turn.trace is not None
    return msgspec.structs.replace(turn, trace=msgspec.structs.replace(turn.trace, **fields))


def two_turns(make_turn: Make) -> list[Turn]:
    """Two turns of one segment: 3 + 2 tokens, then 1 + 2, the weights changing within the second."""
    second = make_turn(
        "t1",
        index=1,
        versions=(VersionSpan(0, "v-a"), VersionSpan(1, "v-b")),
        trace=TurnTrace(context_len=5, prompt_ids=[9], ids=[10, 11], logprobs=[-1.0, -2.0]),
    )
    return [make_turn(), second]


def test_turns_join_into_one_segment(make_turn: Make) -> None:
    """Ids, mask, log-probabilities and versions of two turns lie one after the other."""
    chain = assemble(two_turns(make_turn), (0, 0))
    (segment,) = chain.segments
    assert segment.ids.tolist() == [1, 5, 6, 7, 8, 9, 10, 11]
    assert segment.sampled.tolist() == [False, False, False, True, True, False, True, True]
    assert segment.logprobs.tolist() == [0, 0, 0, -0.5, -0.25, 0, -1, -2]
    assert segment.version_index.tolist() == [-1, -1, -1, 0, 0, -1, 0, 1]
    assert chain.versions == ("v-a", "v-b")
    assert segment.experts.shape == (8, 0, 0)
    arrays = (segment.ids, segment.sampled, segment.logprobs, segment.experts, segment.version_index)
    assert [str(array.dtype) for array in arrays] == ["int32", "bool", "float32", "uint16", "int32"]


def test_a_new_segment_starts_again(make_turn: Make) -> None:
    """A rewritten history gives a second segment of the same chain."""
    turns = [*two_turns(make_turn), make_turn("t2", index=2, segment=1, segment_reason="history was rewritten")]
    chain = assemble(turns, (0, 0))
    assert [segment.ids.tolist() for segment in chain.segments] == [[1, 5, 6, 7, 8, 9, 10, 11], [1, 5, 6, 7, 8]]


def test_experts_lie_at_their_positions(make_turn: Make) -> None:
    """Each turn brings rows up to the token before its last; unseen positions stay unknown."""
    layers, k = 2, 3
    rows = np.arange(7 * layers * k, dtype=np.uint16).reshape(7, layers, k)
    one, two = two_turns(make_turn)
    one = with_trace(one, experts=rows[:4].tobytes())
    two = with_trace(two, experts=rows[4:].tobytes(), experts_start=4)
    (segment,) = assemble([one, two], (layers, k)).segments
    assert np.array_equal(segment.experts[:7], rows)
    assert (segment.experts[7] == UNKNOWN_EXPERT).all()
    (without,) = assemble(two_turns(make_turn), (layers, k)).segments
    assert without.experts.shape == (8, layers, k) and (without.experts == UNKNOWN_EXPERT).all()


BROKEN: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"index": 2}, {}, "index 2 where 1 should follow"),
    ({"segment": -1}, {}, "goes back to segment -1"),
    ({"trainable": False, "untrainable_reason": "the stream was cut"}, {}, "the stream was cut"),
    ({"trace": None}, {}, "no exact trace"),
    ({"ended_at": None}, {}, "no exact trace"),
    ({}, {"context_len": 4}, "its context has 4 ids, the segment has 5"),
    ({}, {"ids": [], "logprobs": []}, "no token was sampled"),
    ({}, {"logprobs": [-1.0]}, "2 sampled ids and 1 log-probabilities"),
    ({}, {"logprobs": [-1.0, float("nan")]}, "not a finite number"),
    ({}, {"logprobs": [-1.0, 0.5]}, "not a finite number of at most 0"),
    ({"versions": ()}, {}, "version spans start at"),
    ({"versions": (VersionSpan(1, "v-a"),)}, {}, "version spans start at"),
    ({"versions": (VersionSpan(0, "v-a"), VersionSpan(2, "v-b"))}, {}, "version spans start at"),
    ({"versions": (VersionSpan(0, "v-a"), VersionSpan(0, "v-b"))}, {}, "version spans start at"),
    ({}, {"experts": b"\x00" * 10, "experts_start": 0}, "its experts take 10 bytes, 7 positions"),
    ({}, {"experts": b"\x00" * 10, "experts_start": 9}, "its experts take 10 bytes"),
]


@pytest.mark.parametrize(("fields", "trace_fields", "why"), BROKEN)
def test_what_does_not_fit_is_refused(
    make_turn: Make, fields: dict[str, Any], trace_fields: dict[str, Any], why: str
) -> None:
    """Nothing is filled in or cut to fit: the error names the turn and the reason."""
    one, two = two_turns(make_turn)
    two = with_trace(two, **trace_fields)
    with pytest.raises(BadInputError, match="t1") as caught:
        assemble([one, msgspec.structs.replace(two, **fields)], (2, 3))
    assert why in caught.value.message


def test_no_turns_is_refused() -> None:
    """A session without turns has no chain."""
    with pytest.raises(BadInputError, match="no turns"):
        assemble([], (0, 0))


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        (b'[{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]', "u"),
        (b'[{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]', "ab"),
        (b'[{"role": "user", "content": null}]', ""),
        (b"[]", ""),
    ],
)
def test_the_request_is_the_first_user_text(messages: bytes, text: str) -> None:
    """Both forms of content are read."""
    assert request_text(messages) == text
