"""The seed model's tokenizer."""

from pathlib import Path

from ostinato.render import SPECIAL_TOKENS, TinyFormat, Tokenizer, format_for
from ostinato.tinyworld import sample_trajectories
from ostinato.tinyworld.recipe import train_tokenizer
from ostinato.tinyworld.recipe.tokenizer import VOCABULARY, library_sources, plain_texts


def test_any_text_comes_back(tokenizer_folder: Path) -> None:
    """Byte-level: texts of the tasks and foreign ones survive the round trip."""
    tokenizer = Tokenizer.from_folder(tokenizer_folder)
    texts = ["naïve café", "\t\r\n  x", "日本語 🙂", "a  b   c", "x=-12.50"]
    for trajectory in sample_trajectories("held_out", 20, 3):
        texts += plain_texts(trajectory)
    for text in texts:
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_shape_of_the_vocabulary(tokenizer_folder: Path) -> None:
    """1,024 tokens, special ones first; digits stand alone; a newline goes with its indent."""
    tokenizer = Tokenizer.from_folder(tokenizer_folder)
    assert tokenizer.vocab_size == VOCABULARY
    assert [tokenizer.id_of(token) for token in SPECIAL_TOKENS] == list(range(len(SPECIAL_TOKENS)))
    assert len(tokenizer.encode("2048")) == 4
    assert len(tokenizer.encode("\n        ")) == 1


def test_the_folder_names_the_chat_format(tokenizer_folder: Path) -> None:
    """The render room recognises it."""
    files = {path.name: path.read_bytes() for path in tokenizer_folder.iterdir()}
    assert isinstance(format_for(files), TinyFormat)


def test_training_again_gives_the_same_file(tokenizer_folder: Path, tmp_path: Path) -> None:
    """The tokenizer is a function of sources and seed."""
    train_tokenizer(tmp_path, library_sources())
    assert (tmp_path / "tokenizer.json").read_bytes() == (tokenizer_folder / "tokenizer.json").read_bytes()
