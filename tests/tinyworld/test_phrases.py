"""The wordings."""

from ostinato.tinyworld.phrases import JUNK, PRECISE, QUESTIONS, REPLIES, VAGUE


def test_each_kind_has_enough_wordings() -> None:
    """Seven wordings or more, two vague ones or more, all different."""
    for kind in PRECISE:
        assert len(PRECISE[kind]) + len(VAGUE[kind]) >= 7
        assert len(VAGUE[kind]) >= 2
        assert len({*PRECISE[kind], *VAGUE[kind]}) == len(PRECISE[kind]) + len(VAGUE[kind])


def test_texts_are_short_and_questions_end_as_questions() -> None:
    """A tiny model reads and writes them."""
    for kind in PRECISE:
        assert all(len(text.split()) <= 9 for text in (*PRECISE[kind], *VAGUE[kind], *REPLIES[kind]))
        assert all(text.endswith("?") for text in QUESTIONS[kind])
        assert not any(text.endswith("?") for text in REPLIES[kind])
    assert all(text.startswith("  # ") for texts in JUNK.values() for text in texts)
