"""The seed model's format."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.records import BadInputError, Message, ToolCall, ToolSpec
from ostinato.render import SPECIAL_TOKENS, TinyFormat

Tools = tuple[ToolSpec, ...]


def test_a_conversation_is_written_as_the_format_says(tiny: TinyFormat, tools: Tools) -> None:
    """Role token, text, end; calls and arguments by position; then the generation prompt."""
    call = ToolCall("call_0", "write", {"text": "b", "path": "a"})
    messages = [Message("system", "s"), Message("user", "u"), Message("assistant", "t", (call,)), Message("tool", "ok")]
    text = tiny.tokenizer.decode(tiny.open(messages, tools))
    assert text == (
        "<|bos|><|sys|>s<|end|><|user|>u<|end|><|asst|>t<|call|>write<|arg|>a<|arg|>b<|end|><|tool|>ok<|end|><|asst|>"
    )


@given(text=st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(SPECIAL_TOKENS))
def test_text_never_smuggles_a_special_token(tiny: TinyFormat, text: str) -> None:
    """Whatever a person writes becomes ordinary tokens, and reads back the same."""
    ids = tiny.message_ids(Message("user", text))[1:-1]
    special = {tiny.tokenizer.id_of(token) for token in SPECIAL_TOKENS}
    assert not special & set(ids)
    assert tiny.tokenizer.decode(ids) == text


_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_CALLS = st.lists(
    st.one_of(
        st.builds(lambda a, b: ("write", {"path": a, "text": b}), _TEXT, _TEXT),
        st.just(("run", dict[str, str]())),
    ),
    max_size=3,
)


@given(content=_TEXT, calls=_CALLS)
def test_parse_undoes_rendering(
    tiny: TinyFormat, tools: Tools, content: str, calls: list[tuple[str, dict[str, str]]]
) -> None:
    """Any reply with valid calls is read back as it was written."""
    made = tuple(ToolCall(f"call_{i}", name, args) for i, (name, args) in enumerate(calls))
    message = Message("assistant", content, made)
    parsed = tiny.parse(tiny.message_ids(message, tools)[1:], tools)
    assert parsed.message() == message
    assert parsed.invalid == ""


@given(data=st.data())
def test_any_ids_parse_and_stream_alike(tiny: TinyFormat, tools: Tools, data: st.DataObject) -> None:
    """Random ids never raise; streamed text is a prefix of the parsed content however it is cut."""
    ids = data.draw(st.lists(st.integers(0, tiny.tokenizer.vocab_size - 1), max_size=30))
    ids = [token for token in ids if token != tiny.end]
    cut = data.draw(st.integers(0, len(ids)))
    stream = tiny.stream()
    text = stream.feed(ids[:cut]) + stream.feed(ids[cut:])
    assert tiny.parse(ids, tools).content.startswith(text)


def test_odd_calls_keep_what_was_said(tiny: TinyFormat, tools: Tools) -> None:
    """Too many arguments, an unknown tool, and an argument without a call are all visible to the agent."""
    encode = tiny.tokenizer.encode
    ids = [
        tiny.call,
        *encode("run"),
        tiny.arg,
        *encode("x"),
        tiny.call,
        *encode("fly"),
        tiny.arg,
        *encode("y"),
        tiny.end,
    ]
    first, second = tiny.parse(ids, tools, "c").tool_calls
    assert (first.name, first.arguments) == ("run", {"extra1": "x"})
    assert (second.id, second.name, second.arguments) == ("c1", "fly", {"arg1": "y"})
    stray = tiny.parse([*encode("a"), tiny.arg, *encode("z"), tiny.end], tools)
    assert (stray.content, stray.tool_calls[0].name, stray.tool_calls[0].arguments) == ("a", "", {"arg1": "z"})


def test_a_cut_call_lacks_its_last_argument(tiny: TinyFormat, tools: Tools) -> None:
    """An argument that may be incomplete is dropped, so that nothing acts on half of it."""
    encode = tiny.tokenizer.encode
    parsed = tiny.parse([tiny.call, *encode("write"), tiny.arg, *encode("a"), tiny.arg, *encode("hal")], tools)
    assert parsed.tool_calls[0].arguments == {"path": "a"}
    assert parsed.invalid == "cut off inside a call"


def test_special_tokens_inside_a_reply_are_named(tiny: TinyFormat, tools: Tools) -> None:
    """A role token in the middle of a text is an invalid reply, and stays visible."""
    parsed = tiny.parse([*tiny.tokenizer.encode("a"), tiny.user, tiny.end], tools)
    assert parsed.content == "a<|user|>"
    assert "<|user|>" in parsed.invalid


def test_characters_of_several_tokens_stream_whole(tiny: TinyFormat) -> None:
    """A character's bytes are held back until the last one is there."""
    stream = tiny.stream()
    pieces = [stream.feed([token]) for token in tiny.tokenizer.encode("é🎻x")]
    assert "".join(pieces) == "é🎻x"
    assert all("\ufffd" not in piece for piece in pieces)


def test_a_lone_surrogate_is_refused(tiny: TinyFormat) -> None:
    """It cannot be UTF-8, so it cannot be tokenised."""
    with pytest.raises(BadInputError, match="surrogate"):
        tiny.message_ids(Message("user", "\ud800"))
