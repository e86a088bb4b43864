"""What the engine's server offers, without HTTP: checked requests, and slots loaded from the weights folder."""

import math
import threading
import time

import msgspec
import torch

from ostinato.engine.config import EngineConfig
from ostinato.engine.kv import Rows
from ostinato.engine.layout import Weights, build_weights
from ostinato.engine.runner import Batch, Piece, run_pass
from ostinato.engine.scheduler import Scheduler
from ostinato.engine.sequence import Sequence, Sink
from ostinato.engine.slots import SLOTS, Loaded
from ostinato.model import ModelConfig, config_from_hf
from ostinato.records import BadInputError, ConflictError, GenerateRequest, MissingError, SlotStatus, UnavailableError
from ostinato.render import Tokenizer
from ostinato.weights import WeightStore

CANARY_TOKENS = 16


class Service:
    """Loading may be called from any thread, one load at a time; so may everything else."""

    def __init__(self, store: WeightStore, config: EngineConfig) -> None:
        self.store, self.config = store, config
        self.scheduler: Scheduler | None = None
        self._loading = threading.Lock()
        self._checked_frames: set[str] = set()

    def load(self, slot: str, version: str) -> Loaded:
        """Fetch and verify a version, build its weights, try them on the canary prompt, and swap them in between two
        steps. Raises `MissingError` for an unknown slot or version, `ConflictError` where the tokenizer or the shape
        does not fit, `BadInputError` for weights that give no finite numbers. Then the slot is as it was."""
        check_slot(slot)
        started = time.monotonic()
        with self._loading:
            weights = self._held(version) or self._build(version)
            canary = _canary(weights)
            if self.scheduler is None:
                self.scheduler = Scheduler(weights.config, self.config)
                self.scheduler.start()
            scheduler = self.scheduler
            scheduler.call(lambda: scheduler.put(slot, weights)).result()
        return Loaded(slot, version, time.monotonic() - started, canary)

    def drop(self, slot: str) -> None:
        """Empty a slot. Raises `MissingError` when it is empty already."""
        check_slot(slot)
        scheduler = self._running()
        scheduler.call(lambda: scheduler.drop(slot)).result()

    def submit(self, request: GenerateRequest, sink: Sink) -> Sequence:
        """Check a request and queue it. Raises `BadInputError` naming the field, `MissingError` for the slot."""
        check_slot(request.slot)
        scheduler = self._running()
        check_request(request, scheduler.model.vocab_size, scheduler.max_len)
        return scheduler.submit(request, sink)

    def cancel(self, sequence: Sequence) -> None:
        """Stop a sequence, if it is still under way."""
        if self.scheduler is not None:
            self.scheduler.cancel(sequence)

    def status(self) -> list[SlotStatus]:
        """What each slot holds."""
        return self.scheduler.status() if self.scheduler else []

    def stats(self) -> dict[str, int]:
        """The scheduler's counts; empty before the first load."""
        return self.scheduler.stats() if self.scheduler else {}

    def check_alive(self) -> None:
        """Raise `UnavailableError` when the scheduler's thread has died."""
        if self.scheduler is not None and not self.scheduler.alive:
            raise UnavailableError("The engine's scheduler has died.", hint="Restart the engine; its log says why.")

    def close(self) -> None:
        """Stop the scheduler."""
        if self.scheduler is not None:
            self.scheduler.stop()

    def _running(self) -> Scheduler:
        if self.scheduler is None:
            raise MissingError("No slot holds weights yet.", hint="Load one first: PUT /slots/release.", param="slot")
        self.check_alive()
        return self.scheduler

    def _held(self, version: str) -> Weights | None:
        """The weights of a version that some slot holds: a promotion then costs nothing."""
        lanes = self.scheduler.lanes.values() if self.scheduler else ()
        return next((lane.weights for lane in lanes if lane.weights.version == version), None)

    def _build(self, version: str) -> Weights:
        model = self._check_files(version)
        if self.scheduler is not None and model != self.scheduler.model:
            raise ConflictError(
                f"Version {version} has another shape than the model that this engine runs "
                f"({_difference(model, self.scheduler.model)}).",
                hint="Start another engine for it.",
            )
        max_len = min(self.config.max_len, model.max_position_embeddings)
        return build_weights(version, model, self.store.fetch(version), max_len, self.config.device)

    def _check_files(self, version: str) -> ModelConfig:
        """The version's configuration; a tokenizer beside it must not know more ids than the weights."""
        frame = self.store.frame(version)
        if "config.json" not in frame:
            raise BadInputError(
                f"Version {version} has no config.json.", hint="Publish it with the files of its model folder."
            )
        try:
            model = config_from_hf(msgspec.json.decode(frame["config.json"], type=dict))
        except msgspec.DecodeError as error:
            raise BadInputError(
                f"The config.json of version {version} is no JSON object: {error}.",
                hint="Publish it again from a whole model folder.",
            ) from error
        name = self.store.get(version).frame
        if "tokenizer.json" in frame and name not in self._checked_frames:
            size = Tokenizer(frame["tokenizer.json"]).vocab_size
            if size > model.vocab_size:
                raise ConflictError(
                    f"The tokenizer of version {version} knows {size} ids, its weights {model.vocab_size}.",
                    hint="Publish the weights with the tokenizer.json that they were trained with.",
                )
            self._checked_frames.add(name)
        return model


def check_slot(slot: str) -> None:
    """Raise `MissingError` for a name that is no slot."""
    if slot not in SLOTS:
        raise MissingError(f"There is no slot {slot!r}.", hint=f"The slots are {', '.join(SLOTS)}.", param="slot")


def check_request(request: GenerateRequest, vocab: int, max_len: int) -> None:
    """Raise `BadInputError` for what cannot be generated, naming the field."""
    count, sampling = len(request.ids), request.sampling
    if not count:
        raise _bad("ids", "is empty", "Send at least one token id.")
    if count >= max_len:
        raise _bad("ids", f"has {count} tokens; at most {max_len - 1} fit", "Shorten the conversation.")
    for name, ids in (("ids", request.ids), ("stop_ids", request.stop_ids)):
        if ids and not 0 <= min(ids) <= max(ids) < vocab:
            wrong = next(token for token in ids if not 0 <= token < vocab)
            raise _bad(name, f"holds {wrong}; ids run from 0 to {vocab - 1}", "Use this model's own tokenizer.")
    if not 0 <= request.experts_from <= count:
        raise _bad("experts_from", f"is {request.experts_from}; it must lie in 0 to {count}", "Name a position of ids.")
    if not (math.isfinite(sampling.temperature) and sampling.temperature >= 0):
        raise _bad("temperature", f"is {sampling.temperature}", "It must be 0 or more.")
    if not 0 < sampling.top_p <= 1:
        raise _bad("top_p", f"is {sampling.top_p}", "It must be more than 0 and at most 1.")
    if sampling.top_k < 0:
        raise _bad("top_k", f"is {sampling.top_k}", "It must be 0 (off) or more.")
    if sampling.max_tokens < 1:
        raise _bad("max_tokens", f"is {sampling.max_tokens}", "It must be 1 or more.")


def _bad(field: str, what: str, hint: str) -> BadInputError:
    return BadInputError(f"The field {field} {what}.", hint=hint, param=field)


def _difference(left: ModelConfig, right: ModelConfig) -> str:
    ours, theirs = msgspec.structs.asdict(right), msgspec.structs.asdict(left)
    return ", ".join(f"{name} {theirs[name]} instead of {ours[name]}" for name in ours if ours[name] != theirs[name])


def _canary(weights: Weights) -> list[float]:
    """Natural log-probabilities of a fixed prompt, so that two engines can be seen to hold the same weights."""
    ids = [(7919 * i + 1) % weights.config.vocab_size for i in range(CANARY_TOKENS)]
    rows = Rows(weights.config, 1, CANARY_TOKENS, weights.embed.device.type)
    count = CANARY_TOKENS - 1
    batch = Batch(ids[:-1], list(range(count)), 0, [Piece(0, 0, count)], list(range(count)))
    with torch.inference_mode():
        logprobs = run_pass(weights, rows, None, batch).logits_MV.log_softmax(dim=-1)
        values: list[float] = logprobs[torch.arange(count), torch.tensor(ids[1:])].tolist()
    if not all(math.isfinite(value) for value in values):
        raise BadInputError(
            f"The weights of version {weights.version} give no finite log-probabilities.",
            hint="Publish a sound version; the slot was left as it was.",
        )
    return values
