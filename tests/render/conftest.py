"""A small tokenizer with the seed model's special tokens, trained on the spot."""

import json

import pytest
from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as RawTokenizer

from ostinato.records import ToolSpec
from ostinato.render import SPECIAL_TOKENS, JinjaFormat, TinyFormat, Tokenizer, format_for

CORPUS = ["def clamp(value, low, high):\n    return max(low, min(value, high))\n", "please fix the test", "error: ok"]

CHATML = r"""{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{% for call in m.tool_calls %}{% if m.content or not loop.first %}{{ "\n" }}{% endif %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def _train(special: list[str]) -> RawTokenizer:
    tokenizer = RawTokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=340, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


@pytest.fixture(scope="session")
def tiny() -> TinyFormat:
    """The seed model's format over a small tokenizer."""
    return TinyFormat(Tokenizer(_train(list(SPECIAL_TOKENS)).to_str().encode()))


@pytest.fixture(scope="session")
def chatml_files() -> dict[str, bytes]:
    """The small files of a folder with a ChatML template."""
    tokenizer = _train(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens([AddedToken("<tool_call>", special=False), AddedToken("</tool_call>", special=False)])
    config = {"chat_template": CHATML, "eos_token": "<|im_end|>"}
    return {"tokenizer.json": tokenizer.to_str().encode(), "tokenizer_config.json": json.dumps(config).encode()}


@pytest.fixture(scope="session")
def chatml(chatml_files: dict[str, bytes]) -> JinjaFormat:
    """A ChatML format with Hermes tool calls."""
    found = format_for(chatml_files)
    assert isinstance(found, JinjaFormat)
    return found


@pytest.fixture(scope="session")
def tools() -> tuple[ToolSpec, ...]:
    """Two tools: one with two arguments, one with none."""
    properties = {"path": {"type": "string"}, "text": {"type": "string"}}
    return (
        ToolSpec("write", "Write a file.", {"type": "object", "properties": properties}),
        ToolSpec("run", "Run.", {"type": "object", "properties": {}}),
    )
