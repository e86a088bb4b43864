"""A small tokenizer with the seed model's special tokens, trained on the spot."""

import json

import pytest
from tests.tiny_tokenizer import train_tokenizer
from tokenizers import AddedToken

from ostinato.records import ToolSpec
from ostinato.render import JinjaFormat, TinyFormat, Tokenizer, format_for

CHATML = r"""{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{% for call in m.tool_calls %}{% if m.content or not loop.first %}{{ "\n" }}{% endif %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


@pytest.fixture(scope="session")
def tiny() -> TinyFormat:
    """The seed model's format over a small tokenizer."""
    return TinyFormat(Tokenizer(train_tokenizer().to_str().encode()))


@pytest.fixture(scope="session")
def chatml_files() -> dict[str, bytes]:
    """The small files of a folder with a ChatML template."""
    tokenizer = train_tokenizer(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
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
