"""What the tests of the commands share: a tiny model's folder, and commands run as a person would type them."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.tiny_tokenizer import VOCABULARY, tiny_frame


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face folder of a mixture of experts with random weights, so small that it is served at once."""
    from tests.tiny_model import TINY  # here, so that tests which need no model do not wait for torch

    from ostinato.model import Transformer, save_folder

    folder = tmp_path_factory.mktemp("model")
    for name, content in tiny_frame().items():
        (folder / name).write_bytes(content)
    save_folder(folder, Transformer(replace(TINY, vocab_size=VOCABULARY)))
    return folder


@pytest.fixture(scope="session")
def ostinato() -> Callable[..., subprocess.CompletedProcess[str]]:
    """`ostinato("status", "--data", folder)` runs the command to its end; `path` is the command's own PATH."""

    def run(*arguments: str | Path, path: str | None = None) -> subprocess.CompletedProcess[str]:
        environment = os.environ | ({} if path is None else {"PATH": path})
        command = [sys.executable, "-m", "ostinato", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)

    return run
