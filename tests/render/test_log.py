"""The token-exact log of a session."""

from hypothesis import given
from hypothesis import strategies as st

from ostinato.records import Message, ToolSpec
from ostinato.render import TinyFormat, TokenLog

Tools = tuple[ToolSpec, ...]
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)


def _turn(log: TokenLog, tiny: TinyFormat, tools: Tools, messages: list[Message], sampled: list[int]) -> list[Message]:
    """One turn: plan, sample, record; returns the conversation with the reply."""
    plan = log.plan(messages, tools)
    reply = tiny.parse(sampled, tools).message()
    log.record(plan, messages, tools, sampled, reply)
    return [*messages, reply]


@given(data=st.data())
def test_each_turn_is_a_prefix_of_the_next_context(tiny: TinyFormat, tools: Tools, data: st.DataObject) -> None:
    """For random sampled ids (odd, cut or stopped) and random results, earlier ids never change, restarted or not."""
    ids = st.lists(st.integers(0, tiny.tokenizer.vocab_size - 1).filter(lambda t: t != tiny.end), max_size=12)
    log, messages, before = TokenLog(tiny), [Message("user", data.draw(_TEXT))], list[int]()
    for turn in range(data.draw(st.integers(1, 5))):
        plan = log.plan(messages, tools)
        assert (plan.segment, plan.segment_reason, plan.context_len) == (0, "", len(before))
        assert plan.ids[: plan.context_len] == before
        assert plan.ids[-1] == tiny.asst
        sampled = data.draw(ids) + data.draw(st.sampled_from([[tiny.end], []]))
        messages = _turn(log, tiny, tools, messages, sampled)
        before = plan.ids + sampled
        assert log.length == len(before)
        if data.draw(st.booleans()):
            log = TokenLog(tiny)
            log.restore(before, messages, tools, 0)
        new = st.lists(st.builds(Message, st.sampled_from(["user", "tool"]), _TEXT), min_size=turn % 2, max_size=3)
        messages = messages + data.draw(new)


def test_a_clean_session_reads_as_if_rendered_whole(tiny: TinyFormat, tools: Tools) -> None:
    """Where sampled ids are what the tokenizer would give, the log equals one rendering of all."""
    log, messages = TokenLog(tiny), [Message("system", "s"), Message("user", "fix the test")]
    for answer in ("please", "error: ok"):
        messages = _turn(log, tiny, tools, messages, [*tiny.tokenizer.encode(answer), tiny.end])
        messages.append(Message("user", "more"))
    assert log.plan(messages, tools).ids == tiny.open(messages, tools)


def test_rewritten_history_opens_a_segment_that_keeps_the_ids_before(tiny: TinyFormat, tools: Tools) -> None:
    """Ids up to the last untouched reply are taken over, though the tokenizer would have given others."""
    # "please" letter by letter: no tokenizer gives that, so taking it over shows.
    spelled = [token for letter in "please" for token in tiny.tokenizer.encode(letter)]
    log = TokenLog(tiny)
    start = [Message("user", "fix")]
    kept = [*log.plan(start, tools).ids, *spelled, tiny.end]
    first = _turn(log, tiny, tools, start, [*spelled, tiny.end])
    second = _turn(log, tiny, tools, [*first, Message("user", "more")], [*tiny.tokenizer.encode("ok"), tiny.end])
    changed = [*second[:2], Message("user", "other")]
    plan = log.plan(changed, tools)
    assert (plan.segment, plan.context_len, plan.segment_reason) == (1, 0, "history rewritten at message 3")
    assert plan.ids == [*kept, *tiny.message_ids(changed[2]), tiny.asst]
    third = _turn(log, tiny, tools, changed, [tiny.end])
    again = log.plan([*third[:2], Message("user", "once more")], tools)
    assert again.ids == [*kept, *tiny.message_ids(Message("user", "once more")), tiny.asst]
    assert again.segment == 2


def test_each_kind_of_break_says_why(tiny: TinyFormat, tools: Tools) -> None:
    """System prompt, tools, an edited reply, and a retry each have their own reason."""
    log = TokenLog(tiny)
    start = [Message("system", "s"), Message("user", "u")]
    held = _turn(log, tiny, tools, start, [*tiny.tokenizer.encode("a"), tiny.end])
    more = [*held, Message("user", "v")]
    assert log.plan(more, tools).segment_reason == ""
    assert log.plan([Message("system", "t"), *more[1:]], tools).segment_reason == "system prompt changed"
    assert log.plan(more, tools[:1]).segment_reason == "tools changed"
    edited = [*start, Message("assistant", "b"), Message("user", "v")]
    assert log.plan(edited, tools).segment_reason == "history rewritten at message 3"
    assert log.plan(start, tools).segment_reason == "history ends at message 2"
    assert log.plan(more, tools).segment == 0
