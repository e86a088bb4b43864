"""From stored turns to the exact token sequences that were served: lengths are checked, nothing is filled in."""

import math
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from ostinato.records import BadInputError, Turn, TurnTrace
from ostinato.store.rows import Segment

UNKNOWN_EXPERT = 65535


class Chain(msgspec.Struct, frozen=True, eq=False):
    """The segments of a session and the versions that drew its tokens."""

    segments: tuple[Segment, ...]
    versions: tuple[str, ...]


def assemble(turns: Sequence[Turn], experts_shape: tuple[int, int]) -> Chain:
    """Join the turns of one session, in order of index, into segments. `experts_shape` is (layers, k).

    Raises `BadInputError` saying which turn does not fit, and how."""
    versions: dict[str, int] = {}
    by_segment: dict[int, list[Turn]] = {}
    for expected, turn in enumerate(turns):
        if turn.index != expected:
            raise _misfit(turn, f"it has index {turn.index} where {expected} should follow")
        if by_segment and turn.segment < max(by_segment):
            raise _misfit(turn, f"it goes back to segment {turn.segment}")
        if not turn.trainable or turn.trace is None or turn.ended_at is None:
            raise _misfit(turn, turn.untrainable_reason or "it has no exact trace")
        by_segment.setdefault(turn.segment, []).append(turn)
    if not by_segment:
        raise BadInputError("The session has no turns.")
    segments = tuple(_segment(part, versions, experts_shape) for part in by_segment.values())
    return Chain(segments=segments, versions=tuple(versions))


def _segment(turns: list[Turn], versions: dict[str, int], experts_shape: tuple[int, int]) -> Segment:
    ids: list[int] = []
    sampled: list[bool] = []
    logprobs: list[float] = []
    drawn_by: list[int] = []
    for turn in turns:
        trace = turn.trace
        assert trace is not None, "checked by assemble"
        _check_lengths(turn, trace, len(ids))
        fresh = len(trace.prompt_ids)
        ids += [*trace.prompt_ids, *trace.ids]
        sampled += [False] * fresh + [True] * len(trace.ids)
        logprobs += [0.0] * fresh + trace.logprobs
        drawn_by += [-1] * fresh + _drawn_by(turn, len(trace.ids), versions)
    return Segment(
        ids=np.array(ids, dtype=np.int32),
        sampled=np.array(sampled, dtype=np.bool_),
        logprobs=np.array(logprobs, dtype=np.float32),
        experts=_experts(turns, len(ids), experts_shape),
        version_index=np.array(drawn_by, dtype=np.int32),
    )


def _check_lengths(turn: Turn, trace: TurnTrace, before: int) -> None:
    if trace.context_len != before:
        raise _misfit(turn, f"its context has {trace.context_len} ids, the segment has {before}")
    if not trace.ids:
        raise _misfit(turn, "no token was sampled")
    if len(trace.logprobs) != len(trace.ids):
        raise _misfit(turn, f"it has {len(trace.ids)} sampled ids and {len(trace.logprobs)} log-probabilities")
    # A rounded 0 may come out as a tiny positive number; a real positive one is a wrong log-probability.
    if not all(math.isfinite(value) and value < 1e-3 for value in trace.logprobs):
        raise _misfit(turn, "a log-probability is not a finite number of at most 0")


def _drawn_by(turn: Turn, sampled: int, versions: dict[str, int]) -> list[int]:
    spans = turn.versions
    starts = [span.start for span in spans]
    if not spans or starts[0] != 0 or starts != sorted(set(starts)) or starts[-1] >= sampled:
        raise _misfit(turn, f"its version spans start at {starts} in {sampled} sampled tokens")
    result: list[int] = []
    for span, end in zip(spans, [*starts[1:], sampled], strict=True):
        result += [versions.setdefault(span.version, len(versions))] * (end - span.start)
    return result


def _experts(turns: list[Turn], length: int, shape: tuple[int, int]) -> npt.NDArray[np.uint16]:
    """Expert choices by segment position, uint16 [length, layers, k]. A turn's rows end one before its last sampled
    token, which did not go through the model; the next turn's rows begin there."""
    layers, k = shape
    result = np.full((length, layers, k), UNKNOWN_EXPERT, dtype=np.uint16)
    for turn in turns:
        trace = turn.trace
        assert trace is not None, "checked by assemble"
        if not trace.experts or layers * k == 0:
            continue
        end = trace.context_len + len(trace.prompt_ids) + len(trace.ids) - 1
        rows = end - trace.experts_start
        if rows < 0 or len(trace.experts) != rows * layers * k * 2:
            raise _misfit(
                turn,
                f"its experts take {len(trace.experts)} bytes, {rows} positions of {layers} layers and {k} choices"
                f" take {max(rows, 0) * layers * k * 2}",
            )
        choices = np.frombuffer(trace.experts, dtype="<u2").reshape(rows, layers, k)
        result[trace.experts_start : end] = choices
    return result


def _misfit(turn: Turn, why: str) -> BadInputError:
    return BadInputError(f"Turn {turn.index} ({turn.turn_id}) is not exact: {why}.")


def request_text(messages_json: bytes) -> str:
    """What the person asked for first: the text of the first user message in an OpenAI message array ("" if none)."""
    messages = msgspec.json.decode(messages_json)
    for message in messages:
        if message.get("role") == "user":
            content = message.get("content") or ""
            if isinstance(content, str):
                return content
            return "".join(part.get("text", "") for part in content)
    return ""
