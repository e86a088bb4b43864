"""Templates of functions: what tasks are generated from.

The notation, one block per template:

    NAME | BASES | PHRASE | PARAMETERS
        BODY

NAME identifies the template; a leading `!` withholds it from every split but `unseen_templates`. BASES are verbs for
the function's name. PHRASE says in a request what the function does. PARAMETERS are `TYPE` or `ROLE:TYPE` (types:
`values.py`; roles: `names.PARAM_WORDS`). In the body, `$a $b $c` are the parameters, other small letters are local
names (`names.LOCAL_WORDS`), and `$K $L` wide, `$N` small constants, `$S` a mark.

No body holds a `while`, a recursion or a range without bound, so that its mutants end too.
"""

import re
from random import Random
from typing import Any

from msgspec import Struct

from ostinato.tinyworld import templates_lists, templates_maps, templates_numbers, templates_texts
from ostinato.tinyworld.names import LOCAL_WORDS, MARKS, PARAM_WORDS, Split, class_of, name_class
from ostinato.tinyworld.values import MAKERS

_SLOT = re.compile(r"\$([a-zKLNS])")


class Param(Struct, frozen=True):
    """A parameter: the role that names it and the type that makes its arguments."""

    role: str
    kind: str


class Template(Struct, frozen=True):
    """One function in the notation above; `body` holds its lines, indented by four spaces at least."""

    name: str
    bases: tuple[str, ...]
    phrase: str
    params: tuple[Param, ...]
    body: tuple[str, ...]
    is_withheld: bool


class Function(Struct, frozen=True):
    """A template with all names and constants chosen. `scope` lists parameters, then local names.
    `constants` are patterns of the chosen constants, as they stand in the body."""

    template: Template
    name: str
    params: tuple[str, ...]
    scope: tuple[str, ...]
    phrase: str
    body: tuple[str, ...]
    constants: tuple[str, ...]

    @property
    def head(self) -> str:
        """The line `def name(parameters):`."""
        return f"def {self.name}({', '.join(self.params)}):"


def _parse_param(text: str) -> Param:
    role, _, kind = text.rpartition(":")
    return Param(role=role or MAKERS[kind][0], kind=kind)


def _parse_block(block: str) -> Template:
    head, *body = block.split("\n")
    name, bases, phrase, params = (part.strip() for part in head.removeprefix("! ").split(" | "))
    return Template(
        name=name,
        bases=tuple(bases.split()),
        phrase=phrase,
        params=tuple(_parse_param(text) for text in params.split()),
        body=tuple(body),
        is_withheld=head.startswith("! "),
    )


def _parse(*texts: str) -> dict[str, Template]:
    parsed = [_parse_block(block) for text in texts for block in text.strip("\n").split("\n\n")]
    assert len({template.name for template in parsed}) == len(parsed)
    return {template.name: template for template in parsed}


TEMPLATES: dict[str, Template] = _parse(
    templates_numbers.TEXT, templates_texts.TEXT, templates_lists.TEXT, templates_maps.TEXT
)
"""All templates by name."""

SHOWN: tuple[Template, ...] = tuple(each for each in TEMPLATES.values() if not each.is_withheld)
"""Templates of every split but `unseen_templates`."""

WITHHELD: tuple[Template, ...] = tuple(each for each in TEMPLATES.values() if each.is_withheld)
"""Templates that only `unseen_templates` uses for the function in question."""


def _constants(rng: Random, template: Template, split: Split) -> dict[str, str]:
    """Values for `$K $L $N $S`. The pairing of the template and its wide constants is of the split's class."""
    text = "\n".join((template.phrase, *template.body))
    slots = sorted({slot for slot in _SLOT.findall(text) if slot.isupper()})
    while True:
        chosen = {slot: str(rng.randint(2, 40)) for slot in slots if slot in "KL"}
        tag = f"{template.name}:{chosen.get('K', '')}:{chosen.get('L', '')}"
        if not chosen or class_of(tag) == name_class(split):
            break
    if "N" in slots:
        chosen["N"] = str(rng.randint(2, 3))
    if "S" in slots:
        chosen["S"] = rng.choice(MARKS)
    return chosen


def _pick(rng: Random, words: tuple[str, ...], taken: list[str]) -> str:
    free = [word for word in words if word not in taken]
    return rng.choice(free) if free else f"{words[0]}2"


def instantiate(template: Template, name: str, rng: Random, split: Split) -> Function:
    """Choose words for parameters and local names, and constants of the split's class."""
    taken: list[str] = []
    constants = _constants(rng, template, split)
    filled = dict(constants)
    for letter, param in zip("abc", template.params, strict=False):
        filled[letter] = _pick(rng, PARAM_WORDS[param.role], taken)
        taken.append(filled[letter])
    for letter in _SLOT.findall("\n".join(template.body)):
        if letter not in filled:
            filled[letter] = _pick(rng, LOCAL_WORDS[letter], taken)
            taken.append(filled[letter])

    def fill(text: str) -> str:
        return _SLOT.sub(lambda match: filled[match.group(1)], text)

    return Function(
        template=template,
        name=name,
        params=tuple(taken[: len(template.params)]),
        scope=tuple(taken),
        phrase=fill(template.phrase),
        body=tuple(fill(line) for line in template.body),
        constants=tuple(rf"(?<!\w){re.escape(text)}(?!\w)" for text in constants.values()),
    )


def sample_arguments(template: Template, rng: Random) -> tuple[Any, ...]:
    """One tuple of arguments for a function of this template."""
    made: list[Any] = []
    for param in template.params:
        made.append(MAKERS[param.kind][1](rng, made))
    return tuple(made)
