"""A small tokenizer, trained on the spot."""

from collections.abc import Sequence

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from ostinato.render import SPECIAL_TOKENS

VOCABULARY = 300
_CORPUS = ["def clamp(value, low, high):\n    return max(low, min(value, high))\n", "please fix the test", "error: ok"]


def train_tokenizer(special: Sequence[str] = SPECIAL_TOKENS) -> Tokenizer:
    """Byte-level BPE of `VOCABULARY` ids, the special tokens first: the seed model's, where no others are given."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=list(special), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    return tokenizer


def tiny_frame() -> dict[str, bytes]:
    """The small files of a model folder in the seed model's format, without its `config.json`."""
    return {
        "tokenizer.json": train_tokenizer().to_str().encode(),
        "tokenizer_config.json": b'{"ostinato_format": "tiny"}',
    }
