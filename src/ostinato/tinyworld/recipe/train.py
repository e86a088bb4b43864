"""Make the seed model: `python -m ostinato.tinyworld.recipe.train --out FOLDER`.

Tokenizer, a little pretraining on library source, then demonstrations. The folder is usable from the first checkpoint
on, and the same command goes on where a stopped run was. `log.jsonl` gets one line for each 10 seconds and one for each
evaluation.
"""

import argparse
import ctypes
import json
import platform
import sys
from pathlib import Path

import msgspec
import torch
from msgspec import Struct

from ostinato.model import ModelConfig, Transformer, load_model, save_folder
from ostinato.render import TinyFormat, Tokenizer
from ostinato.tinyworld import generate_task
from ostinato.tinyworld.recipe.data import DataConfig, Prefetcher
from ostinato.tinyworld.recipe.evaluate import EvalReport, evaluate_model
from ostinato.tinyworld.recipe.tokenizer import VOCABULARY, library_sources, train_tokenizer
from ostinato.trainer import Checkpoint, OptimConfig, SftConfig, SftLog, train_sft

MODEL = ModelConfig(
    family="qwen3_moe",
    vocab_size=VOCABULARY,
    hidden_size=128,
    num_layers=4,
    num_heads=4,
    num_kv_heads=2,
    head_dim=32,
    intermediate_size=256,
    num_experts=4,
    num_experts_per_tok=2,
    moe_intermediate_size=128,
)


class SeedConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """One run of the recipe."""

    out: Path
    pretraining_steps: int = 80
    """Steps on library source."""
    steps: int = 1100
    """Steps on demonstrations: about 14 minutes on two cores, evaluations not counted."""
    lr_floor: float = 0.4
    """Where the learning rates end: not at zero, so that the model stays the base model of a story that goes on."""
    threads: int = 2
    rng_seed: int = 0
    eval_episodes: int = 96
    """Episodes of an evaluation on the way; the last one takes three times as many."""
    model: ModelConfig = MODEL
    data: DataConfig = DataConfig()


def train_seed(config: SeedConfig) -> EvalReport:
    """Run the whole recipe into `config.out` and return the last evaluation at temperature 1."""
    torch.set_num_threads(config.threads)
    reuse_memory()
    config.out.mkdir(parents=True, exist_ok=True)
    sources = library_sources()
    if not (config.out / "tokenizer.json").exists():
        train_tokenizer(config.out, sources, config.rng_seed)
        _write_texts(config, sources)
    form = TinyFormat(Tokenizer.from_folder(config.out))
    model = Transformer(config.model, seed=config.rng_seed)
    # Fixed shapes: a CPU compiles its bfloat16 kernels anew for every number of tokens that an expert sees.
    model.use_dense_experts(True)
    run = _Run(config, form, model)
    with Prefetcher(config.out, config.data, config.rng_seed) as source:
        pretraining = SftConfig(
            steps=config.pretraining_steps, checkpoint_minutes=1e9, optim=OptimConfig(decay_share=0)
        )
        train_sft(
            model,
            lambda step: source.batches("pretraining", step),
            pretraining,
            state_file=config.out / "pretraining.pt",
            on_log=lambda line: run.log("pretraining", line),
        )
        train_sft(
            model,
            lambda step: source.batches("demonstrations", step),
            SftConfig(
                steps=config.steps,
                optim=OptimConfig(decay_share=0.45, floor=config.lr_floor),
            ),
            state_file=config.out / "state.pt",
            on_log=lambda line: run.log("demonstrations", line),
            on_checkpoint=run.checkpoint,
        )
    run.evaluate(config.eval_episodes * 3, 0.0)
    return run.evaluate(config.eval_episodes * 3, 1.0)


class _Run:
    """Writes what happens."""

    def __init__(self, config: SeedConfig, form: TinyFormat, model: Transformer) -> None:
        self.config, self.form, self.model = config, form, model

    def log(self, phase: str, line: SftLog) -> None:
        self._write({"phase": phase} | msgspec.to_builtins(line))

    def checkpoint(self, at: Checkpoint) -> None:
        save_folder(self.config.out, self.model)
        self._write({"checkpoint": msgspec.to_builtins(at)})
        self.evaluate(self.config.eval_episodes, 1.0)

    def evaluate(self, episodes: int, temperature: float) -> EvalReport:
        """On held-out tasks, with the weights as written: rounded to bfloat16."""
        tasks = [generate_task("held_out", number) for number in range(episodes)]
        report = evaluate_model(load_model(self.config.out), self.form, tasks, temperature=temperature)
        self._write({"evaluation": msgspec.to_builtins(report)})
        return report

    def _write(self, line: dict[str, object]) -> None:
        text = json.dumps(line)
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
        with (self.config.out / "log.jsonl").open("a") as file:
            file.write(text + "\n")


def reuse_memory() -> None:
    """Let glibc keep freed memory instead of giving it back to the system: training on a CPU frees and asks for the
    same large blocks all the time, and page faults cost about a fifth of it. Elsewhere nothing happens."""
    if platform.libc_ver()[0] == "glibc":
        library = ctypes.CDLL(None)
        mmap_max, trim_threshold = -4, -1
        library.mallopt(mmap_max, 0)
        library.mallopt(trim_threshold, 2**31 - 1)


def _write_texts(config: SeedConfig, sources: dict[str, str]) -> None:
    listed = "\n".join(f"{name}.py" for name in sorted(sources))
    (config.out / "sources.txt").write_text(
        f"Python {platform.python_version()}, standard library, Python Software Foundation License version 2\n"
        f"(https://docs.python.org/3/license.html):\n{listed}\n\n"
        "Everything else was generated by ostinato.tinyworld.\n"
    )
    dials = {name: value for name, value in msgspec.to_builtins(config, enc_hook=str).items() if name != "out"}
    recipe = msgspec.json.format(msgspec.json.encode(dials), indent=2).decode()
    (config.out / "RECIPE.md").write_text(
        "# Seed model\n\nMade by `python -m ostinato.tinyworld.recipe.train` from random weights: a tokenizer and\n"
        "a little pretraining on standard-library source (see sources.txt), then demonstrations of the tiny tasks\n"
        "with copy drills. `log.jsonl` holds the losses and evaluations.\n\n```json\n" + recipe + "\n```\n"
    )


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Train the seed model.")
    parser.add_argument("--out", type=Path, required=True, help="folder to write; a stopped run in it is continued")
    parser.add_argument("--steps", type=int, default=1100)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rng-seed", type=int, default=0)
    parser.add_argument("--eval-episodes", type=int, default=96)
    given = parser.parse_args(arguments)
    train_seed(
        SeedConfig(
            given.out,
            steps=given.steps,
            threads=given.threads,
            rng_seed=given.rng_seed,
            eval_episodes=given.eval_episodes,
        )
    )


if __name__ == "__main__":
    main()
