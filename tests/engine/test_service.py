"""Generation through the scheduler: batching, prefix re-use, swaps in flight, cancelling, queueing, bad input."""

import asyncio
import threading
from pathlib import Path
from queue import Queue
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from tests.tiny_model import DEEPSEEK

from ostinato.engine.config import EngineConfig
from ostinato.engine.sequence import Sink
from ostinato.engine.service import Service
from ostinato.model import ModelConfig, Yarn, config_to_hf, state_to_bits
from ostinato.records import (
    BadInputError,
    ConflictError,
    GenerateChunk,
    GenerateRequest,
    Generation,
    MissingError,
    OstinatoError,
    Sampling,
    VersionSpan,
)
from ostinato.weights import WeightStore


def _request(ids: list[int], tokens: int = 12, slot: str = "release", **sampling: Any) -> GenerateRequest:
    settings = {"temperature": 0.0, "max_tokens": tokens} | sampling
    return GenerateRequest(ids=ids, slot=slot, sampling=Sampling(**settings))


async def test_greedy_is_the_same_alone_and_in_a_crowd(service: Service, published: Any, oracle: Any) -> None:
    """Twenty sequences of different lengths at once (more than can run together) give each the reference's greedy
    continuation, its log-probabilities and its experts."""
    prompts = [oracle.prompt(seed, 3 + 4 * seed) for seed in range(20)]
    crowd = await asyncio.gather(*(oracle.ask(service, _request(ids)) for ids in prompts))
    for ids, got in zip(prompts, crowd, strict=True):
        assert got.ids == oracle.greedy(published.models[0], ids, 12)
        assert got.finish_reason == "length" and got.versions == (VersionSpan(0, published.versions[0]),)
        _check_against_reference(ids, got, published.models[0], oracle)


def _check_against_reference(ids: list[int], got: Generation, model: Any, oracle: Any, start: int = 0) -> None:
    whole = ids + got.ids
    logprobs = oracle.logprobs(model, whole)
    expected = [logprobs[len(ids) - 1 + i, token] for i, token in enumerate(got.ids)]
    np.testing.assert_allclose(got.logprobs, expected, atol=1e-4)
    experts = np.frombuffer(got.experts, np.uint16).reshape(-1, 2, 2)
    assert len(experts) == len(whole) - 1 - start
    reference = model(torch.tensor([whole])).experts_BTLK[0].numpy()
    assert (experts == reference[start : len(whole) - 1]).mean() > 0.98  # near-ties may fall either way


FAMILIES = {
    "yarn": ModelConfig("qwen3_moe", 96, 32, 2, 4, 2, 16, 48, 4, 2, 16, rope_theta=50.0, yarn=Yarn(4.0, 16)),
    "deepseek": DEEPSEEK,
}


@pytest.mark.parametrize("family", FAMILIES)
async def test_every_family_is_served(family: str, tmp_path: Path, oracle: Any) -> None:
    """From a published version, with prefixes re-used: the plain model's greedy text, log-probabilities and experts."""
    config = FAMILIES[family]
    model = oracle.make(config, seed=3)
    store = WeightStore(tmp_path)
    frame = {"config.json": msgspec.json.encode(config_to_hf(config))}
    version = store.publish(state_to_bits(model), parent=None, frame=frame).version
    service = Service(store, EngineConfig(max_len=160, rows=24, running=8, prefill_tokens=32))
    service.load("release", version)
    try:
        ids = oracle.prompt(5, 50)
        for _ in range(2):
            crowd = await asyncio.gather(*(oracle.ask(service, _request(ids[:cut])) for cut in (20, 35, 50)))
            for cut, got in zip((20, 35, 50), crowd, strict=True):
                assert got.ids == oracle.greedy(model, ids[:cut], 12)
                logprobs = oracle.logprobs(model, ids[:cut] + got.ids)
                expected = [logprobs[cut - 1 + i, token] for i, token in enumerate(got.ids)]
                np.testing.assert_allclose(got.logprobs, expected, atol=1e-4)
                known = np.frombuffer(got.experts, np.uint16).reshape(-1, config.num_moe_layers, 2)
                whole = model(torch.tensor([ids[:cut] + got.ids])).experts_BTLK[0].numpy()
                assert (np.sort(known) == np.sort(whole[cut + 11 - len(known) : cut + 11])).mean() > 0.98
    finally:
        service.close()


async def test_sampled_logprobs_match_the_reference(service: Service, published: Any, oracle: Any) -> None:
    """At temperature 1 the reported log-probabilities are the reference model's."""
    ids = oracle.prompt(1, 30)
    got = await oracle.ask(service, _request(ids, 40, temperature=1.0, seed=3))
    _check_against_reference(ids, got, published.models[0], oracle)


async def test_the_same_seed_draws_the_same_tokens(service: Service, oracle: Any) -> None:
    """A seed gives one sequence alone and in a crowd; another seed gives another."""
    ids = oracle.prompt(2, 20)
    alone = await oracle.ask(service, _request(ids, 30, temperature=1.0, seed=9))
    crowd = await asyncio.gather(
        *(oracle.ask(service, _request(ids, 30, temperature=1.0, seed=seed)) for seed in (9, 10, 9))
    )
    assert crowd[0].ids == alone.ids == crowd[2].ids
    assert crowd[1].ids != alone.ids


async def test_a_stop_id_ends_the_answer_and_is_part_of_it(service: Service, published: Any, oracle: Any) -> None:
    """Generation ends at the first stop id, with reason `stop`; the last token did not go through the model."""
    ids = oracle.prompt(3, 10)
    free = oracle.greedy(published.models[0], ids, 20)
    request = msgspec.structs.replace(_request(ids, 20), stop_ids=[free[6]], experts_from=4)
    got = await oracle.ask(service, request)
    assert got.ids == free[: free.index(free[6]) + 1] and got.finish_reason == "stop"
    _check_against_reference(ids, got, published.models[0], oracle, start=4)


async def test_the_longest_sequence_ends_with_length(service: Service, oracle: Any) -> None:
    """An answer that would not fit is cut at the engine's longest sequence."""
    got = await oracle.ask(service, _request(oracle.prompt(4, 150), 100))
    assert len(got.ids) == 10 and got.finish_reason == "length"


async def test_a_prefix_hit_changes_nothing(service: Service, published: Any, oracle: Any) -> None:
    """A conversation that goes on re-uses the drawn tokens' keys and values too, with the same log-probabilities and
    experts as a fresh computation; the counts say so."""
    ids = oracle.prompt(5, 40)
    first = await oracle.ask(service, _request(ids, 10))
    longer = ids + first.ids + oracle.prompt(6, 15)
    before = service.stats()
    got = await oracle.ask(service, _request(longer, 10))
    after = service.stats()
    assert after["prefix_hits"] == before["prefix_hits"] + 1
    assert after["prefix_tokens_reused"] - before["prefix_tokens_reused"] == 49
    assert after["prefilled_tokens"] - before["prefilled_tokens"] == len(longer) - 49
    _check_against_reference(longer, got, published.models[0], oracle)
    branches = await asyncio.gather(
        *(oracle.ask(service, _request(longer[:50] + oracle.prompt(seed, 8), 10)) for seed in range(4))
    )
    for seed, branch in enumerate(branches):
        _check_against_reference(longer[:50] + oracle.prompt(seed, 8), branch, published.models[0], oracle)


async def test_two_versions_side_by_side(service: Service, published: Any, oracle: Any) -> None:
    """Slots run together, each on its own weights; nothing is re-used across versions."""
    service.load("candidate", published.versions[1])
    ids = oracle.prompt(7, 40)
    asked = [_request(ids, 10, slot) for slot in ("release", "candidate") for _ in range(3)]
    got = await asyncio.gather(*(oracle.ask(service, request) for request in asked))
    for request, answer in zip(asked, got, strict=True):
        model = published.models[request.slot == "candidate"]
        assert answer.ids == oracle.greedy(model, ids, 10)
    statuses = {status.slot: status.version for status in service.status()}
    assert statuses == {"release": published.versions[0], "candidate": published.versions[1]}


async def test_a_swap_in_flight_fails_nothing(service: Service, published: Any, oracle: Any) -> None:
    """Weights change under unbroken traffic: sequences go on with their keys and values, every token carries its
    version, and tokens are exactly what the old and then the new weights give on those keys and values."""
    swapped = asyncio.Event()
    answers: list[tuple[list[int], Generation]] = []

    async def keep_asking(seed: int) -> None:
        while not swapped.is_set():
            seed += 100
            ids = oracle.prompt(seed, 10 + seed % 7)
            answers.append((ids, await oracle.ask(service, _request(ids, 60))))

    traffic = [asyncio.create_task(keep_asking(seed)) for seed in range(9)]
    while service.stats()["drawn_tokens"] < 200:
        await asyncio.sleep(0.002)
    loaded = await asyncio.to_thread(service.load, "release", published.versions[1])
    swapped.set()
    await asyncio.gather(*traffic)
    assert loaded.version == published.versions[1] and service.stats()["failed_requests"] == 0
    crossing = [(ids, got) for ids, got in answers if len(got.versions) > 1]
    assert crossing
    for ids, got in (*crossing[:9], *answers[:3], *answers[-3:]):
        assert len(got.ids) == 60
        versions = [span.version for span in got.versions]
        assert versions in ([published.versions[0]], list(published.versions), [published.versions[1]])
        border = next((span.start for span in got.versions if span.version == published.versions[1]), 60)
        assert got.ids == _mixed_greedy(published.models, ids, border, 60)
    ids = crossing[0][0] + crossing[0][1].ids[:40]
    assert (await oracle.ask(service, _request(ids, 8))).ids == oracle.greedy(published.models[1], ids, 8)


async def test_a_prompt_that_a_swap_cuts_short_begins_anew(service: Service, published: Any, oracle: Any) -> None:
    """An answer that carries one version was computed by that version alone, its prompt too; what is kept for re-use
    of either version stays true."""
    service.load("evaluation", published.versions[1])
    scheduler = service.scheduler
    assert scheduler is not None
    shared = oracle.prompt(1, 40)
    await oracle.ask(service, _request(shared, 4))
    short: Queue[GenerateChunk | Exception] = Queue()
    held = threading.Event()

    def swap_then_put(item: GenerateChunk | Exception) -> None:
        if not held.is_set():
            held.set()
            scheduler.call(lambda: scheduler.put("release", scheduler.lanes["evaluation"].weights))
        short.put(item)

    both_are_in = threading.Event()
    scheduler.call(both_are_in.wait)
    service.submit(_request(oracle.prompt(2, 10), 30), swap_then_put)
    long = shared + oracle.prompt(3, 90)
    cut = oracle.submit(service, _request(long, 20))
    both_are_in.set()
    got = await asyncio.to_thread(oracle.wait, cut)
    assert [span.version for span in got.versions] == [published.versions[1]]
    _check_against_reference(long, got, published.models[1], oracle)
    crossing = await asyncio.to_thread(oracle.wait, short)
    assert [span.version for span in crossing.versions] == list(published.versions)
    assert service.stats()["prefilled_tokens"] > 40 + 10 + 130  # a part was computed twice
    service.load("release", published.versions[0])
    again = await oracle.ask(service, _request(long, 20))
    _check_against_reference(long, again, published.models[0], oracle)


@torch.inference_mode()
def _mixed_greedy(models: Any, ids: list[int], border: int, count: int) -> list[int]:
    """Greedy decoding on one plain cache, by the first model for `border` tokens and the second from there."""
    from ostinato.model import KVCache

    cache = KVCache(models[0].config, 1, 160)
    drawn: list[int] = []
    model = models[0] if border else models[1]
    logits = model(torch.tensor([ids]), positions_BT=torch.arange(len(ids))[None], cache=cache).logits_BTV[0, -1]
    while True:
        drawn.append(int(logits.argmax()))
        if len(drawn) == count:
            return drawn
        model = models[0] if len(drawn) < border else models[1]
        position = torch.tensor([[len(ids) + len(drawn) - 1]])
        logits = model(torch.tensor([[drawn[-1]]]), positions_BT=position, cache=cache).logits_BTV[0, -1]


async def test_a_dropped_slot_finishes_what_it_runs(service: Service, published: Any, oracle: Any) -> None:
    """After a drop, running sequences end on the weights they hold and new ones are refused."""
    service.load("candidate", published.versions[1])
    ids = oracle.prompt(8, 12)
    running = [asyncio.create_task(oracle.ask(service, _request(ids, 100, "candidate"))) for _ in range(12)]
    while service.stats()["drawn_tokens"] < 20:
        await asyncio.sleep(0.002)
    await asyncio.to_thread(service.drop, "candidate")
    with pytest.raises(MissingError, match=r"candidate.*PUT /slots/candidate"):
        service.submit(_request(ids, slot="candidate"), lambda _: None)
    expected = oracle.greedy(published.models[1], ids, 100)
    assert all(got.ids == expected for got in await asyncio.gather(*running))
    assert [status.slot for status in service.status()] == ["release"]
    with pytest.raises(MissingError):
        service.drop("candidate")


async def test_cancelling_frees_the_row(service: Service, oracle: Any) -> None:
    """A cancelled sequence ends with what it drew and gives its row back, whether it runs or still waits."""
    before = service.stats()["rows_available"]
    started, go_on = threading.Event(), threading.Event()
    chunks: list[list[GenerateChunk | Exception]] = [[] for _ in range(14)]

    def sink_of(number: int) -> Sink:
        def sink(item: GenerateChunk | Exception) -> None:
            chunks[number].append(item)
            started.set()
            assert go_on.wait(60)  # holds the scheduler until all are cancelled

        return sink

    sequences = [service.submit(_request(oracle.prompt(9, 20), 130), sink_of(n)) for n in range(14)]
    assert await asyncio.to_thread(started.wait, 60)
    for sequence in sequences:
        service.cancel(sequence)
    go_on.set()
    for got in chunks:
        while not got or (isinstance(got[-1], GenerateChunk) and got[-1].finish_reason is None):
            await asyncio.sleep(0.002)
        last = got[-1]
        assert isinstance(last, GenerateChunk) and last.finish_reason == "cancelled"
    stats = service.stats()
    assert stats["rows_available"] == before and stats["drawn_tokens"] < 14 * 130
    assert stats["running"] == stats["filling"] == stats["waiting"] == 0


async def test_more_requests_than_rows_wait_their_turn(published: Any, oracle: Any) -> None:
    """With three rows for two slots of two, everything is answered all the same."""
    service = Service(WeightStore(published.root), EngineConfig(max_len=64, rows=3, running=2, prefill_tokens=8))
    try:
        service.load("release", published.versions[0])
        service.load("evaluation", published.versions[1])
        slots = ["release", "evaluation"] * 8
        asked = [_request(oracle.prompt(seed, 5 + seed), 9, slot) for seed, slot in enumerate(slots)]
        got = await asyncio.gather(*(oracle.ask(service, request) for request in asked))
        for request, answer in zip(asked, got, strict=True):
            assert answer.ids == oracle.greedy(published.models[request.slot == "evaluation"], request.ids, 9)
        assert service.stats()["prefix_evictions"] > 0
    finally:
        service.close()


async def test_the_memory_budget_shrinks_the_engine(published: Any) -> None:
    """Rows and running sequences follow from the bytes that may be spent."""
    service = Service(WeightStore(published.root), EngineConfig(max_len=64, kv_bytes=40 * 64 * 2 * 2 * 2 * 8 * 4))
    try:
        service.load("release", published.versions[0])
        assert service.scheduler is not None
        assert (service.scheduler.zone_slots, service.stats()["rows_available"]) == (5, 25)
    finally:
        service.close()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"ids": []}, "ids"),
        ({"ids": [1, 96]}, "ids"),
        ({"ids": [-1]}, "ids"),
        ({"ids": [1] * 160}, "ids"),
        ({"stop_ids": [400]}, "stop_ids"),
        ({"experts_from": 4}, "experts_from"),
        ({"sampling": Sampling(temperature=-0.1)}, "temperature"),
        ({"sampling": Sampling(temperature=float("nan"))}, "temperature"),
        ({"sampling": Sampling(top_p=0.0)}, "top_p"),
        ({"sampling": Sampling(top_k=-1)}, "top_k"),
        ({"sampling": Sampling(max_tokens=0)}, "max_tokens"),
    ],
)
def test_bad_requests_are_refused_by_field(service: Service, change: dict[str, Any], field: str) -> None:
    """Each refusal names the field."""
    request = msgspec.structs.replace(GenerateRequest(ids=[1, 2, 3], slot="release"), **change)
    with pytest.raises(BadInputError, match=f"The field {field} ") as caught:
        service.submit(request, lambda _: None)
    assert caught.value.param == field and caught.value.hint


def test_bad_loads_leave_the_slot_as_it_was(service: Service, published: Any, oracle: Any) -> None:
    """Unknown slots and versions, weights without a shape, of another shape, with a tokenizer that knows more ids, or
    that give no numbers."""
    store = WeightStore(published.root)
    arrays = state_to_bits(published.models[1])
    config = msgspec.json.encode(config_to_hf(oracle.model))
    tokens = {f"t{i}": i for i in range(100)}
    tokenizer = msgspec.json.encode(
        {"version": "1.0", "added_tokens": [], "model": {"type": "WordLevel", "vocab": tokens, "unk_token": "t0"}}
    )
    other = msgspec.structs.replace(oracle.model, num_layers=1)
    broken = {name: np.full_like(array, 0x7FC0) for name, array in arrays.items()}
    cases: list[tuple[str, str, type[OstinatoError], str]] = [
        ("beta", published.versions[1], MissingError, "no slot 'beta'"),
        ("release", "v-0000000000000000", MissingError, "v-0000000000000000"),
        ("release", store.publish(arrays, parent=None).version, BadInputError, "config.json"),
        ("release", store.publish(arrays, parent=None, frame={"config.json": b"["}).version, BadInputError, "JSON"),
        (
            "release",
            store.publish(arrays, parent=None, frame={"config.json": config, "tokenizer.json": tokenizer}).version,
            ConflictError,
            "100 ids, its weights 96",
        ),
        (
            "release",
            store.publish(
                state_to_bits(oracle.make(other)),
                parent=None,
                frame={"config.json": msgspec.json.encode(config_to_hf(other))},
            ).version,
            ConflictError,
            "num_layers 1 instead of 2",
        ),
        (
            "release",
            store.publish(broken, parent=None, frame={"config.json": config}).version,
            BadInputError,
            "no finite",
        ),
    ]
    for slot, version, kind, words in cases:
        with pytest.raises(kind, match=words):
            service.load(slot, version)
        assert [status.version for status in service.status()] == [published.versions[0]]


async def test_loading_a_version_that_another_slot_holds_takes_its_weights(service: Service, published: Any) -> None:
    """A promotion builds nothing anew, and both canaries agree."""
    candidate = service.load("candidate", published.versions[1])
    promoted = service.load("release", published.versions[1])
    assert candidate.canary == promoted.canary
    assert service.scheduler is not None
    lanes = service.scheduler.lanes
    assert lanes["candidate"].weights is lanes["release"].weights


async def test_a_failing_pass_fails_its_requests_only(service: Service, published: Any, oracle: Any) -> None:
    """An error inside a pass reaches the requests of that slot as `UnavailableError`; the engine lives on."""
    service.load("candidate", published.versions[1])
    assert service.scheduler is not None
    lane = service.scheduler.lanes["candidate"]
    whole, lane.weights = lane.weights, lane.weights._replace(layers=())
    lane.zone.slots = 8
    with pytest.raises(OstinatoError, match="candidate"):
        await oracle.ask(service, _request([1, 2, 3], slot="candidate"))
    lane.weights = whole
    assert len((await oracle.ask(service, _request([1, 2, 3], slot="candidate"))).ids) == 12
    assert len((await oracle.ask(service, _request([1, 2, 3]))).ids) == 12
    assert service.stats()["failed_requests"] == 1
