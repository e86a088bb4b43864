"""The task generator: a split and a number come in, a task goes out; the same ones give the same task everywhere."""

from random import Random

from ostinato.records import BadInputError, Task
from ostinato.tinyworld.kinds import BUILDERS, KIND_WEIGHTS, KINDS, Built, pool
from ostinato.tinyworld.names import SPLITS, Split
from ostinato.tinyworld.phrases import PRECISE, VAGUE, VAGUE_SHARE
from ostinato.tinyworld.repo import Plan, plan
from ostinato.tinyworld.runner import RUN_TESTS

TEST_COMMAND = ("python3", "-S", "-B", "run_tests.py")


def generate_task(split: Split, seed: int) -> Task:
    """The task of `split` with number `seed`. Raises BadInputError for a split that does not exist.

    Tags: kind, split, style (plain, legacy, packaged), vague (yes, no), function, module (path), template, line (of the
    body, from 0), mutation (or the lint rule); where they apply also caught (does a visible test fail), new (name),
    rule, ask (where, returns, first) and phrasing. Other tags, `slot_...`, are the words that filled the request."""
    if split not in SPLITS:
        raise BadInputError(f"no split named {split!r}", hint=f"Use one of {', '.join(SPLITS)}.", param="split")
    rng = Random(f"{split}/{seed}")
    kind = "bug" if split == "unseen_combinations" else rng.choices(KINDS, KIND_WEIGHTS)[0]
    while True:
        drawn = plan(split, rng, pool(kind, split))
        built = BUILDERS[kind](drawn, rng)
        if built is not None:
            return _task(f"tiny-{split}-{seed}", kind, drawn, built, rng)


def _task(task_id: str, kind: str, drawn: Plan, built: Built, rng: Random) -> Task:
    is_vague = rng.random() < VAGUE_SHARE
    wording = rng.choice((VAGUE if is_vague else PRECISE)[built.phrasing])
    tags = {
        "kind": kind,
        "split": drawn.split,
        "style": drawn.style,
        "vague": "yes" if is_vague else "no",
        "function": drawn.target.function.name,
        "module": drawn.target.path,
        "template": drawn.target.function.template.name,
        "phrasing": built.phrasing,
        **built.tags,
        **{f"slot_{key}": value for key, value in built.slots.items()},
    }
    return Task(
        task_id=task_id,
        request=wording.format(**built.slots),
        files=built.files,
        tests={**built.tests, "run_tests.py": RUN_TESTS},
        test_command=TEST_COMMAND,
        reference=built.reference,
        wants_edit=kind != "question",
        answer=built.answer,
        kind=kind,
        tags=tags,
    )
