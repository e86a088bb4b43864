"""What the tests of the commands share: a tiny model's folder, and commands run as a person would type them."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from ostinato.render import SPECIAL_TOKENS


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face folder of a mixture of experts with random weights, so small that it is served at once."""
    import torch  # here, so that tests which need no model do not wait for it

    from ostinato.model import ModelConfig, Transformer, save_folder

    folder = tmp_path_factory.mktemp("model")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=272,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["def clamp(value, low, high): return value", "please fix the test"], trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"ostinato_format": "tiny"}')
    torch.set_num_threads(1)
    config = ModelConfig(
        family="qwen3_moe",
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=32,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        intermediate_size=48,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
        max_position_embeddings=512,
    )
    save_folder(folder, Transformer(config))
    return folder


@pytest.fixture(scope="session")
def ostinato() -> Callable[..., subprocess.CompletedProcess[str]]:
    """`ostinato("status", "--data", folder)` runs the command to its end; `path` is the command's own PATH."""

    def run(*arguments: str | Path, path: str | None = None) -> subprocess.CompletedProcess[str]:
        environment = os.environ | ({} if path is None else {"PATH": path})
        command = [sys.executable, "-m", "ostinato", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)

    return run
