"""A tokenizer trained once for all tests of the recipe; torch with one thread, since the cores are shared."""

from pathlib import Path

import pytest
import torch

from ostinato.tinyworld.recipe import train_tokenizer
from ostinato.tinyworld.recipe.tokenizer import library_sources

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with tokenizer.json and its configuration."""
    folder = tmp_path_factory.mktemp("tokenizer")
    train_tokenizer(folder, library_sources())
    return folder
