"""The scripted engine keeps to the protocol."""

import numpy as np
import pytest

from ostinato.engine import ScriptedEngine, join_chunks
from ostinato.records import Engine, GenerateRequest, MissingError, Sampling, SlotStatus, UnavailableError


async def test_it_says_its_script() -> None:
    """Ids up to the stop id, log-probabilities, versions, and experts of the asked-for positions."""
    scripted = ScriptedEngine(lambda ids: [ids[-1] + 1, 7, 8, 9], chunk_size=2, experts_shape=(3, 2))
    engine: Engine = scripted
    request = GenerateRequest(ids=[1, 2, 3], slot="release", stop_ids=[8], experts_from=1)
    got = join_chunks([chunk async for chunk in engine.generate(request)])
    assert got.ids == [4, 7, 8] and got.logprobs == [-0.5] * 3 and got.finish_reason == "stop"
    experts = np.frombuffer(got.experts, np.uint16).reshape(-1, 3, 2)
    assert experts[:, 0, 0].tolist() == [1, 2, 3, 0]
    assert scripted.requests == [request] and scripted.cancelled == 0
    assert await engine.slots() == [SlotStatus("release", "v-scripted")]


async def test_it_is_cut_at_max_tokens_and_may_change_version() -> None:
    """`length` when the script is too long; a version set between chunks shows in the spans."""
    engine = ScriptedEngine(lambda _: [1, 2, 3, 4])
    request = GenerateRequest(ids=[9], slot="release", sampling=Sampling(max_tokens=3))
    chunks = []
    async for chunk in engine.generate(request):
        chunks.append(chunk)
        engine.versions["release"] = "v-2"
    got = join_chunks(chunks)
    assert got.ids == [1, 2, 3] and got.finish_reason == "length"
    assert [(span.start, span.version) for span in got.versions] == [(0, "v-scripted"), (1, "v-2")]


async def test_it_breaks_off_when_told() -> None:
    """`fail_after` chunks it raises, an unknown slot is missing, and leaving early is counted."""
    engine = ScriptedEngine(lambda _: [1, 2, 3], fail_after=1)
    stream = engine.generate(GenerateRequest(ids=[9], slot="release"))
    assert (await anext(stream)).ids == [1]
    with pytest.raises(UnavailableError):
        await anext(stream)
    with pytest.raises(MissingError):
        await anext(engine.generate(GenerateRequest(ids=[9], slot="other")))
    engine.fail_after = None
    stream = engine.generate(GenerateRequest(ids=[9], slot="release"))
    await anext(stream)
    await stream.aclose()  # type: ignore[attr-defined]
    assert engine.cancelled == 1
