"""What the seed model reads: library source, demonstrations, and copy drills.

Copying the old text exactly is what a tiny model learns last, so a fixed share of documents are drills: a few segments,
then the same segments in another order.
"""

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from random import Random

from msgspec import Struct

from ostinato.agent import TOOLS
from ostinato.render import TinyFormat, Tokenizer
from ostinato.tinyworld import Trajectory, sample_trajectories
from ostinato.tinyworld.recipe.tokenizer import library_sources
from ostinato.trainer import Document, StepBatches, bucket

CONTEXT_WEIGHT = 0.2
"""Loss weight of tokens that the assistant does not sample."""
LONGEST = 640
"""Longer documents are left out."""


class DataConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The make-up of one training step."""

    demonstrations: int = 26
    drills: int = 6
    windows: int = 18
    """Windows of library source in a pretraining step, in place of the demonstrations."""
    window: int = 256
    micro_tokens: int = 3840
    """Positions in one forward pass; a step takes several."""
    chunk: int = 8
    """Steps prepared together by the helper process."""


def trajectory_document(form: TinyFormat, trajectory: Trajectory) -> Document:
    """A demonstration as ids with loss weights: the message's own on what the assistant sampled, else a fifth."""
    ids = form.begin()
    weights = [0.0]
    for message, weight in zip(trajectory.messages, trajectory.loss_weights, strict=True):
        added = form.message_ids(message, TOOLS)
        if message.role == "assistant":
            prompt = len(form.generation_prompt())
            weights += [CONTEXT_WEIGHT] * prompt + [weight] * (len(added) - prompt)
        else:
            weights += [CONTEXT_WEIGHT] * len(added)
        ids += added
    return Document(ids, weights)


def drill(rng: Random, lines: list[list[int]], vocabulary: int, specials: int) -> Document:
    """Segments, then the same in shuffled order, where they must be copied: half of the drills are random tokens, half
    lines of code. Only tokens that can be copied count, from the second one of each segment on."""
    count = rng.randint(4, 7)
    if rng.random() < 0.5:
        segments = [[rng.randrange(specials, vocabulary) for _ in range(rng.randint(4, 14))] for _ in range(count)]
    else:
        segments = [rng.choice(lines) for _ in range(count)]
    ids = [0] + [token for segment in segments for token in segment]
    weights = [0.0] * len(ids)
    for segment in rng.sample(segments, count):
        ids += segment
        weights += [0.0] + [0.5] * (len(segment) - 1)
    return Document(ids, weights)


class SeedData:
    """Deterministic documents by step, from a tokenizer folder and an `rng` seed."""

    def __init__(self, folder: Path, config: DataConfig, seed: int = 0) -> None:
        self.config, self.seed = config, seed
        self.form = TinyFormat(Tokenizer.from_folder(folder))
        encode = self.form.tokenizer.encode
        self.library = [encode(text) for text in library_sources().values()]
        lines = {line for text in library_sources().values() for line in text.split("\n") if 12 <= len(line) <= 70}
        pool = Random(seed).sample(sorted(lines), min(4000, len(lines)))
        self.lines = [encode("\n" + line) for line in pool]

    def pretraining(self, step: int) -> list[Document]:
        """Windows of library source, and drills."""
        rng = Random(f"pretraining/{self.seed}/{step}")
        sizes = [len(ids) for ids in self.library]
        documents = []
        for ids in rng.choices(self.library, weights=sizes, k=self.config.windows):
            start = rng.randrange(max(1, len(ids) - self.config.window))
            window = ids[start : start + self.config.window]
            documents.append(Document(window, [0.5] * len(window)))
        return documents + self.drills(rng)

    def demonstrations(self, step: int) -> list[Document]:
        """Demonstrations that no other step has, and drills."""
        rng = Random(f"demonstrations/{self.seed}/{step}")
        found = sample_trajectories("seed", self.config.demonstrations, _block(self.seed, step))
        documents = [trajectory_document(self.form, trajectory) for trajectory in found]
        return [one for one in documents if len(one.ids) <= LONGEST] + self.drills(rng)

    def drills(self, rng: Random) -> list[Document]:
        """The drills of one step."""
        vocabulary = self.form.tokenizer.vocab_size
        return [drill(rng, self.lines, vocabulary, 9) for _ in range(self.config.drills)]


def _block(seed: int, step: int) -> int:
    """A number of `sample_trajectories` that is used once; the tokenizer's are the small ones."""
    return 1_000 + seed * 1_000_000 + step


_worker: SeedData | None = None


def _start_worker(folder: Path, config: DataConfig, seed: int) -> None:
    global _worker
    _worker = SeedData(folder, config, seed)


def _chunk(phase: str, first: int) -> list[list[Document]]:
    assert _worker is not None
    make = _worker.pretraining if phase == "pretraining" else _worker.demonstrations
    return [make(step) for step in range(first, first + _worker.config.chunk)]


class Prefetcher:
    """Prepares the documents of coming steps in one helper process. Close it, or use it in a `with`."""

    def __init__(self, folder: Path, config: DataConfig, seed: int = 0) -> None:
        self.config = config
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(1, context, _start_worker, (folder, config, seed))

    def __enter__(self) -> "Prefetcher":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the helper process."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def batches(self, phase: str, step: int) -> Iterator[StepBatches]:
        """The batches of `step` and on, without end; `phase` is "pretraining" or "demonstrations"."""
        chunk = self.config.chunk
        first = step - step % chunk
        waiting: list[Future[list[list[Document]]]] = []
        while True:
            while len(waiting) < 3:
                waiting.append(self._pool.submit(_chunk, phase, first + chunk * len(waiting)))
            for number, documents in enumerate(waiting.pop(0).result(), first):
                if number >= step:
                    yield list(bucket(documents, self.config.micro_tokens))
            first += chunk
