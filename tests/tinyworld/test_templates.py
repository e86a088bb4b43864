"""The function templates: enough, withheld by a fixed list, and all of them runnable."""

from random import Random

from ostinato.tinyworld.repo import loaded, sample_examples
from ostinato.tinyworld.templates import SHOWN, TEMPLATES, WITHHELD, instantiate


def test_there_are_enough_templates() -> None:
    """At least 110 templates, 18 of them withheld, none both."""
    assert len(TEMPLATES) >= 110
    assert len(WITHHELD) == 18
    assert len(SHOWN) + len(WITHHELD) == len(TEMPLATES)


def test_every_template_runs_and_ends() -> None:
    """Each template, with words filled in, gives several results, and holds no loop without bound."""
    for template in TEMPLATES.values():
        varied = 0
        for number in range(5):
            function = instantiate(template, "some_name", Random(number), "seed")
            assert "$" not in "\n".join((function.head, function.phrase, *function.body))
            assert "while" not in "\n".join(function.body)
            assert len(set(function.scope)) == len(function.scope)
            examples = sample_examples(function, Random(number))
            varied += len({example.want for example in examples}) >= 2
            call = loaded(function, function.body)
            assert [repr(call(*each.values)) for each in examples] == [each.want for each in examples]
        assert varied >= 3, template


def test_modules_are_short() -> None:
    """No function is longer than a dozen lines, so that reading one stays cheap."""
    for template in TEMPLATES.values():
        assert len(template.body) <= 8
        assert max(len(line) for line in template.body) <= 72
