"""What the seed model reads."""

from pathlib import Path
from random import Random

from ostinato.agent import TOOLS
from ostinato.render import TinyFormat, Tokenizer
from ostinato.tinyworld import sample_trajectories
from ostinato.tinyworld.recipe import SeedData, trajectory_document
from ostinato.tinyworld.recipe.data import CONTEXT_WEIGHT, DataConfig, Prefetcher, drill

SMALL = DataConfig(demonstrations=3, drills=2, windows=2, window=32, chunk=2)


def test_documents_are_the_rendered_conversation(tokenizer_folder: Path) -> None:
    """Ids are those of the chat format; sampled tokens have the message's weight, all others a fifth."""
    form = TinyFormat(Tokenizer.from_folder(tokenizer_folder))
    for trajectory in sample_trajectories("seed", 20, 1):
        document = trajectory_document(form, trajectory)
        assert document.ids == form.render(trajectory.messages, TOOLS)
        assert len(document.weights) == len(document.ids)
        sampled = sum(
            len(form.message_ids(message, TOOLS)) - 1
            for message, weight in zip(trajectory.messages, trajectory.loss_weights, strict=True)
            if message.role == "assistant" and weight == 1.0
        )
        assert sum(weight == 1.0 for weight in document.weights) == sampled
        assert set(document.weights) <= {0.0, CONTEXT_WEIGHT, 1.0}
        assert (document.weights[-1] == 1.0) == (trajectory.loss_weights[-1] == 1.0)


def test_drills_can_be_solved_by_copying() -> None:
    """The second half holds the segments of the first, and only there tokens count."""
    lines = [[50, 51, 52, 53], [60, 61, 62], [70, 71, 72, 73, 74], [80, 81, 82]]
    for number in range(50):
        document = drill(Random(number), lines, 1024, 9)
        half = (len(document.ids) - 1) // 2
        assert sorted(document.ids[1 : 1 + half]) == sorted(document.ids[1 + half :])
        assert not any(document.weights[: 1 + half])
        assert sum(weight > 0 for weight in document.weights) >= half - 7
        assert min(document.ids[1:]) >= 9


def test_steps_are_repeatable_and_differ(tokenizer_folder: Path) -> None:
    """A step is a function of its number; no two are alike."""
    data = SeedData(tokenizer_folder, SMALL)
    again = SeedData(tokenizer_folder, SMALL)
    for make, same in ((data.pretraining, again.pretraining), (data.demonstrations, again.demonstrations)):
        assert make(4) == same(4)
        assert make(4) != make(5)
    assert len(data.demonstrations(0)) == SMALL.demonstrations + SMALL.drills


def test_the_helper_process_gives_the_same_steps_from_any_start(tokenizer_folder: Path) -> None:
    """Prefetched batches are those of the step asked for, also in the middle of a chunk."""
    data = SeedData(tokenizer_folder, SMALL)
    with Prefetcher(tokenizer_folder, SMALL) as source:
        batches = source.batches("demonstrations", 3)
        for step in (3, 4, 5):
            tokens = sum(int((batch.segment_ids_BT >= 0).sum()) for batch in next(batches))
            assert tokens == sum(len(one.ids) for one in data.demonstrations(step))
