"""Does use make the model better, in truth?

For each of five random seeds the loop of the demo turns (same processes, HTTP and sandboxes), then the seed model and
the last release get the same requests of persons who never trained anything. Everything is judged by those persons.

    python -m benchmarks.learning --json
    python -m benchmarks.learning --seeds 1 --exam 100        # a shorter look, which proves nothing
"""

import argparse
import asyncio
import math
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

import msgspec
from rich.console import Console

from benchmarks.reporting import Figure, finish
from ostinato.demo import DemoConfig, run_demo
from ostinato.engine import EngineClient
from ostinato.services import Services
from ostinato.settings import CycleConfig
from ostinato.store import Ledger
from ostinato.tinyworld import RequestsConfig, Split, Truth, run_requests

SEEDS = (5107, 5214, 5321, 5428, 5535)
"""Of the populations. Never used while the world, the rewards or the dials were tuned."""
CYCLES = 2
"""Candidates for each random seed: what five of them have time for in 100 minutes."""
EXAM_SEED = 900_000
TEMPERATURES = (0.0, 0.3, 0.6, 1.0)
T_FOUR = 2.776
"""The 97.5% quantile of Student's t with four degrees of freedom: five seeds are five clusters."""

Number = Callable[[Truth], float | None]


@dataclass(frozen=True)
class Sizes:
    """Sessions for each model: `served` on held-out persons at temperature 1, `exam` on them at others, `choice` for
    each temperature, `unseen` for other splits."""

    served: int = 800
    exam: int = 320
    choice: int = 90
    unseen: int = 150


@dataclass(frozen=True)
class Estimate:
    """A mean difference (last release minus seed model) with its 95% interval."""

    mean: float
    low: float
    high: float
    n: int


class SeedResult(msgspec.Struct):
    """Everything that one random seed gave: truths by (condition, side)."""

    seed: int
    promotions: int
    sessions: int
    minutes: float
    truths: dict[str, dict[str, list[Truth]]]
    best: dict[str, float]


def persistence(truth: Truth) -> float | None:
    """Surviving share of the edit; no edit counts 0; None where none was wanted."""
    return truth.persistence


def dissatisfied(truth: Truth) -> float:
    """Complained or left."""
    return float(truth.dissatisfied)


def solved(truth: Truth) -> float:
    """The hidden tests pass (a question: answered without an edit)."""
    return float(truth.solved)


def tokens(truth: Truth) -> float:
    """Generated tokens."""
    return float(truth.tokens)


def tool_calls(truth: Truth) -> float:
    """Calls of tools."""
    return float(truth.tool_calls)


def by_person(before: Sequence[Truth], after: Sequence[Truth], number: Number) -> list[float]:
    """Mean paired difference of each person; both sides had the same visits in the same order."""
    rows: dict[str, list[float]] = defaultdict(list)
    for old, new in zip(before, after, strict=True):
        assert (old.person, old.task_id) == (new.person, new.task_id), "pairs are of one visit"
        if old.error or new.error:
            continue  # a fault of ours says nothing about either model; its share is a figure of its own
        first, second = number(old), number(new)
        if first is not None and second is not None:
            rows[old.person].append(second - first)
    return [sum(values) / len(values) for values in rows.values()]


def estimate(values: Sequence[float], quantile: float = 1.96) -> Estimate:
    """The mean of independent values with its interval."""
    mean = math.fsum(values) / len(values)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / max(len(values) - 1, 1))
    half = quantile * spread / math.sqrt(len(values)) if len(values) > 1 else math.inf
    return Estimate(mean, mean - half, mean + half, len(values))


def mean_of(truths: Iterable[Truth], number: Number) -> float:
    """The plain mean over sessions to which the number applies."""
    values = [value for truth in truths if not truth.error and (value := number(truth)) is not None]
    return math.fsum(values) / len(values)


def pooled(results: Sequence[SeedResult], condition: str, number: Number, *, relative: bool = False) -> Estimate:
    """The mean over random seeds, seeds as clusters."""
    values = []
    for result in results:
        sides = result.truths[condition]
        difference = estimate(by_person(sides["seed"], sides["last"], number)).mean
        values.append(difference / mean_of(sides["seed"], number) if relative else difference)
    return estimate(values, T_FOUR)


def habit_share(results: Sequence[SeedResult]) -> tuple[float, float]:
    """The gain in persistence, split into skill and habits, in points (averaged over both orders of exchange).

    Persistence = P(solved) * E(kept | solved) + P(not solved) * E(kept | not solved). Skill is the change of P(solved),
    habits the change of what is kept given that."""
    skill = habits = 0.0
    for result in results:
        parts = []
        for side in ("seed", "last"):
            rows = [(t.solved, t.persistence) for t in result.truths["served"][side] if t.persistence is not None]
            share = sum(good for good, _ in rows) / len(rows)
            kept = [
                sum(value for good, value in rows if good is wanted) / max(sum(good is wanted for good, _ in rows), 1)
                for wanted in (True, False)
            ]
            parts.append((share, kept[0], kept[1]))
        (p0, a0, b0), (p1, a1, b1) = parts
        skill += (p1 - p0) * ((a0 - b0) + (a1 - b1)) / 2
        habits += ((a1 - a0) * (p0 + p1) + (b1 - b0) * (2 - p0 - p1)) / 2
    return skill / len(results), habits / len(results)


def live(seed: int, data: Path, cycle: CycleConfig, log: Console) -> None:
    """Turn the loop of the demo."""
    status = run_demo(data, cycle, DemoConfig(seed=seed), log)
    if status != 0:
        sys.exit(f"learning: the loop of seed {seed} ended with status {status}; see {data}/runs/logs")


async def exam(data: Path, seed: int, sizes: Sizes) -> tuple[dict[str, dict[str, list[Truth]]], dict[str, float]]:
    """Give both models the same requests, at each temperature and split."""
    with Ledger.open(data) as ledger:
        releases = ledger.releases()
    services = await asyncio.to_thread(Services, data, releases[-1].version)
    try:
        client = EngineClient(services.addresses.engine)
        await client.load("evaluation", releases[0].version)
        await client.close()
        side = {"seed": "ostinato@evaluation", "last": "ostinato@release"}

        async def ask(model: str, split: Split, many: int, temperature: float, population: int) -> list[Truth]:
            return await run_requests(
                RequestsConfig(
                    gateway=services.addresses.gateway,
                    envs=services.addresses.envs,
                    model=model,
                    sessions=many,
                    split=split,
                    seed=population,
                    concurrency=16,
                    temperature=temperature,
                )
            )

        population = EXAM_SEED + seed
        truths: dict[str, dict[str, list[Truth]]] = defaultdict(dict)
        best: dict[str, float] = {}
        for name, model in side.items():
            scores = {}
            for temperature in TEMPERATURES:
                chosen = await ask(model, "live", sizes.choice, temperature, population + 1)
                scores[temperature] = mean_of(chosen, persistence)
            best[name] = max(scores, key=lambda temperature: scores[temperature])
            truths["served"][name] = await ask(model, "held_out", sizes.served, 1.0, population)
            truths["greedy"][name] = await ask(model, "held_out", sizes.exam, 0.0, population)
            known = {0.0: "greedy", 1.0: "served"}.get(best[name])
            if known:
                truths["best"][name] = truths[known][name][: sizes.exam]
            else:
                truths["best"][name] = await ask(model, "held_out", sizes.exam, best[name], population)
            truths["combinations"][name] = await ask(model, "unseen_combinations", sizes.unseen, 1.0, population)
            truths["templates"][name] = await ask(model, "unseen_templates", sizes.unseen, 1.0, population)
        return dict(truths), best
    finally:
        await asyncio.to_thread(services.end)


def run_seed(seed: int, folder: Path, cycle: CycleConfig, sizes: Sizes) -> SeedResult:
    """One random seed, from the seed model to the exam. A finished one is read back."""
    data = folder / f"seed-{seed}"
    record = data / "learning.json"
    if record.exists():
        return msgspec.json.decode(record.read_bytes(), type=SeedResult)
    begin = time.monotonic()
    live(seed, data, cycle, Console(file=sys.stderr, width=150))
    truths, best = asyncio.run(exam(data, seed, sizes))
    with Ledger.open(data) as ledger:
        promotions, sessions = len(ledger.releases()) - 1, ledger.accounts("live").sessions
    result = SeedResult(seed, promotions, sessions, (time.monotonic() - begin) / 60, truths, best)
    record.write_bytes(msgspec.json.encode(result))
    return result


def figures_of(results: Sequence[SeedResult]) -> list[Figure]:
    """The targets of the benchmark, and what is shown beside them."""
    figures: list[Figure] = []
    sessions = sum(len(result.truths["served"]["last"]) for result in results)
    directions: tuple[tuple[str, Number, int], ...] = (
        ("persistence", persistence, 1),
        ("skill", solved, 1),
        ("dissatisfied", dissatisfied, -1),
    )
    for name, number, sign in directions:
        single = [estimate(by_person(r.truths["served"]["seed"], r.truths["served"]["last"], number)) for r in results]
        off = sum((low if sign > 0 else -high) > 0 for low, high in ((e.low, e.high) for e in single))
        whole = pooled(results, "served", number)
        good = (whole.low if sign > 0 else -whole.high) > 0
        word = "higher" if sign > 0 else "lower"
        figures.append(_levels(results, "served", name, number, whole, f"{word}, off zero pooled", good, sessions))
        wanted = math.ceil(0.8 * len(results))
        target = f"{word}, off zero in {wanted} of {len(results)} random seeds"
        figures.append(Figure(f"{name}: random seeds off zero", float(off), target, off >= wanted, sessions))
    for name, number in (("tokens", tokens), ("tool calls", tool_calls)):
        change = pooled(results, "served", number, relative=True)
        text = f"{change.mean:+.1%} [{change.low:+.1%}, {change.high:+.1%}]"
        figures.append(Figure(f"effort: {name}", text, "upper bound at most +3%", change.high <= 0.03, sessions))
    everything = [t for r in results for sides in r.truths.values() for truths in sides.values() for t in truths]
    broken = sum(bool(truth.error) for truth in everything) / len(everything)
    figures.append(
        Figure("sessions that a fault of ours broke", broken, "at most 0.5%", broken <= 0.005, len(everything))
    )
    skill, habits = habit_share(results)
    figures.append(Figure("gain in persistence from skill", skill, "", None, sessions))
    figures.append(Figure("gain in persistence from habits", habits, "", None, sessions))
    for condition, words in (("best", "each at its best temperature"), ("greedy", "both greedy")):
        kept, skilled = pooled(results, condition, persistence), pooled(results, condition, solved)
        name = f"persistence, {words}"
        figures.append(
            _levels(results, condition, name, persistence, kept, "higher, off zero pooled", kept.low > 0, sessions)
        )
        target = "not lower by more than 3 points"
        good = skilled.mean > -0.03
        figures.append(_levels(results, condition, f"skill, {words}", solved, skilled, target, good, sessions))
    for condition in ("combinations", "templates"):
        change = pooled(results, condition, solved)
        many = sum(len(result.truths[condition]["last"]) for result in results)
        target, good = "must not fall by more than 3 points", change.mean > -0.03
        figures.append(_levels(results, condition, f"skill, unseen {condition}", solved, change, target, good, many))
    return figures


def _levels(
    results: Sequence[SeedResult],
    condition: str,
    name: str,
    number: Number,
    change: Estimate,
    target: str,
    holds: bool,
    n: int,
) -> Figure:
    before, after = (
        math.fsum(mean_of(result.truths[condition][side], number) for result in results) / len(results)
        for side in ("seed", "last")
    )
    points = f"{100 * change.mean:+.1f} points [{100 * change.low:+.1f}, {100 * change.high:+.1f}]"
    text = f"{before:.1%} -> {after:.1%} ({points})"
    return Figure(name, text, target, holds, n)


def main() -> None:
    """Run, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="how many of the five random seeds")
    parser.add_argument("--exam", type=int, default=Sizes().served, help="sessions for each model as served")
    parser.add_argument("--folder", type=Path, help="where data folders go; finished seeds there are not run again")
    options = parser.parse_args()
    folder = options.folder or Path(mkdtemp(prefix="ostinato-learning-"))
    sizes = Sizes(served=options.exam, exam=min(options.exam, Sizes().exam))
    cycle = msgspec.structs.replace(CycleConfig(), cycles=CYCLES, damaged_cycle=0)
    results = [run_seed(seed, folder, cycle, sizes) for seed in SEEDS[: options.seeds]]
    promotions = ", ".join(str(result.promotions) for result in results)
    minutes = sum(result.minutes for result in results)
    notes = (
        f"{len(results)} random seeds, {sum(r.sessions for r in results)} live sessions, promotions {promotions}, "
        f"{minutes:.0f} minutes. Best temperatures: {[result.best for result in results]}. Data in {folder}."
    )
    finish("learning", figures_of(results), notes, as_json=options.json)


if __name__ == "__main__":
    main()
