"""Formats of Hugging Face folders."""

import json

import pytest

from ostinato.records import BadInputError, Message, ToolCall, ToolSpec
from ostinato.render import JinjaFormat, TinyFormat, TokenLog, format_for

Tools = tuple[ToolSpec, ...]


def _sample(chatml: JinjaFormat, text: str) -> list[int]:
    return chatml.tokenizer.encode_marked(text + "<|im_end|>")


def test_it_renders_as_transformers_does(chatml: JinjaFormat, chatml_files: dict[str, bytes], tools: Tools) -> None:
    """The same template gives the same text in transformers' own renderer."""
    from transformers.utils.chat_template_utils import render_jinja_template

    template = json.loads(chatml_files["tokenizer_config.json"])["chat_template"]
    rows = [
        {"role": "user", "content": "héllo"},
        {"role": "assistant", "content": "ok"},
        {"role": "user", "content": "x"},
    ]
    theirs = render_jinja_template([rows], chat_template=template, add_generation_prompt=True)[0]
    ours = [Message("user", "héllo"), Message("assistant", "ok"), Message("user", "x")]
    assert chatml.tokenizer.decode(chatml.open(ours, tools)) == theirs[0]


def test_a_session_extends_exactly(chatml: JinjaFormat, tools: Tools) -> None:
    """Sampled ids stay as they were, over a turn with a call and one that was cut at the limit."""
    log = TokenLog(chatml)
    messages = [Message("user", "write it")]
    first = log.plan(messages, tools)
    sampled = _sample(chatml, 'Now.\n<tool_call>\n{"name": "write", "arguments": {"path": "a"}}\n</tool_call>')
    reply = chatml.parse(sampled, tools)
    assert reply.content == "Now."
    assert reply.tool_calls == (ToolCall("call_0", "write", {"path": "a"}),)
    log.record(first, messages, tools, sampled, reply.message())
    messages += [reply.message(), Message("tool", "ok", tool_call_id="call_0")]
    second = log.plan(messages, tools)
    assert second.segment_reason == ""
    assert second.ids[: second.context_len] == first.ids + sampled
    cut = chatml.tokenizer.encode_marked("half a sen")
    log.record(second, messages, tools, cut, chatml.parse(cut).message())
    messages += [chatml.parse(cut).message(), Message("user", "go on")]
    third = log.plan(messages, tools)
    assert third.ids[: third.context_len] == second.ids + cut
    assert chatml.tokenizer.decode(third.ids) == chatml.tokenizer.decode(chatml.open(messages, tools))


def test_a_template_that_lays_history_out_anew_opens_a_segment(chatml: JinjaFormat, tools: Tools) -> None:
    """Other white space in a sampled call than the template writes: a new segment that says so."""
    log = TokenLog(chatml)
    messages = [Message("user", "write it")]
    sampled = _sample(chatml, '<tool_call>{"name":"write","arguments":{"path":"a"}}</tool_call>')
    reply = chatml.parse(sampled, tools).message()
    log.record(log.plan(messages, tools), messages, tools, sampled, reply)
    plan = log.plan([*messages, reply, Message("tool", "ok", tool_call_id="call_0")], tools)
    assert (plan.segment, plan.context_len, plan.segment_reason) == (1, 0, "chat template rewrites history")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<tool_call>{bad</tool_call>", "not JSON"),
        ('<tool_call>{"name": "x"}', "cut off"),
        ("<tool_call>[]</tool_call>", "JSON"),
    ],
)
def test_unreadable_calls_stay_text(chatml: JinjaFormat, text: str, reason: str) -> None:
    """What cannot be read as a call is kept as content, with the reason."""
    parsed = chatml.parse(_sample(chatml, text))
    assert parsed.content == text
    assert reason in parsed.invalid


def test_streamed_text_is_a_prefix_of_the_content(chatml: JinjaFormat) -> None:
    """Nothing of a call, nor the line break before it, is streamed as text."""
    ids = _sample(chatml, 'Now\n\n.\n<tool_call>{"name": "run"}</tool_call>')
    stream = chatml.stream()
    text = "".join(stream.feed([token]) for token in ids)
    assert text == chatml.parse(ids).content == "Now\n\n."


def test_format_for_picks_by_the_config(tiny: TinyFormat, chatml_files: dict[str, bytes]) -> None:
    """`ostinato_format` names the seed model's format; an unknown name is refused."""
    plain = _train_files(tiny)
    assert isinstance(format_for(plain), TinyFormat)
    with pytest.raises(BadInputError, match="'huge'"):
        format_for({**plain, "tokenizer_config.json": b'{"ostinato_format": "huge"}'})
    assert format_for(chatml_files).stop_ids == [2]


def _train_files(tiny: TinyFormat) -> dict[str, bytes]:
    raw = tiny.tokenizer._plain.to_str().encode()
    return {"tokenizer.json": raw, "tokenizer_config.json": b'{"ostinato_format": "tiny"}'}


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"tokenizer.json": b"{"}, "tokenizer.json cannot be read"),
        ({"tokenizer_config.json": b"{"}, "tokenizer_config.json is no JSON"),
        ({"tokenizer_config.json": b"[]"}, "must hold a JSON object"),
        ({"tokenizer_config.json": b'{"eos_token": "<|im_end|>"}'}, "no chat template"),
        ({"tokenizer_config.json": b'{"chat_template": "x"}'}, "no end-of-turn token"),
        ({"tokenizer_config.json": b'{"chat_template": "x", "eos_token": "<no>"}'}, "has no token '<no>'"),
        ({"tokenizer_config.json": b'{"chat_template": "{% for", "eos_token": "<|im_end|>"}'}, "cannot be read"),
    ],
)
def test_broken_folders_are_refused(chatml_files: dict[str, bytes], change: dict[str, bytes], match: str) -> None:
    """Each names the file or the token that is wrong."""
    with pytest.raises(BadInputError, match=match):
        format_for({**chatml_files, **change})
    with pytest.raises(BadInputError, match=r"no tokenizer\.json"):
        format_for({})


def test_a_refusal_of_the_template_is_an_error_of_the_caller(chatml_files: dict[str, bytes]) -> None:
    """`raise_exception` in a template becomes our error with its message."""
    config = {"chat_template": "{{ raise_exception('roles must alternate') }}", "eos_token": "<|im_end|>"}
    found = format_for({**chatml_files, "tokenizer_config.json": json.dumps(config).encode()})
    with pytest.raises(BadInputError, match="roles must alternate"):
        found.open([Message("user", "a")], ())
