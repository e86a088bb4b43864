"""Arguments for functions under test: one generator per type of the template notation."""

from collections.abc import Callable
from random import Random
from typing import Any

from ostinato.tinyworld.names import MARKS, TEXT_WORDS

Maker = Callable[[Random, list[Any]], Any]
"""Makes one argument from the generator and the arguments before it."""


def _ints(rng: Random, low: int = -9, high: int = 20, least: int = 2, most: int = 4) -> list[int]:
    return [rng.randint(low, high) for _ in range(rng.randint(least, most))]


def _words(rng: Random, least: int = 2, most: int = 3) -> list[str]:
    return rng.sample(TEXT_WORDS, rng.randint(least, most))


def _elem(rng: Random, before: list[Any]) -> Any:
    """Mostly a part of the first argument (an element, a key, a letter), else something of the same type."""
    options = list(before[0])
    if options and rng.random() < 0.7:
        return rng.choice(options)
    if isinstance(before[0], str):
        return rng.choice("aeilmrst")
    return rng.choice(TEXT_WORDS) if isinstance(before[0], dict) else rng.randint(-9, 20)


def _firsts(rng: Random, before: list[Any]) -> Any:
    names = [entry[0] for entry in before[0]]
    return rng.choice(names) if rng.random() < 0.7 else rng.choice(TEXT_WORDS)


def _alike(rng: Random, before: list[Any]) -> str:
    """A word, half of the time with the first letter of the first argument."""
    return str(before[0])[0] + "at" if rng.random() < 0.5 else rng.choice(TEXT_WORDS)


def _dups(rng: Random, _: list[Any]) -> list[int]:
    return [rng.randint(1, 4) for _ in range(rng.randint(3, 5))]


def _mirror(rng: Random, _: list[Any]) -> str:
    half = rng.choice(TEXT_WORDS)[:3]
    return half + half[::-1] if rng.random() < 0.5 else rng.choice(TEXT_WORDS)


MAKERS: dict[str, tuple[str, Maker]] = {
    "int": ("number", lambda rng, _: rng.randint(-9, 20)),
    "nat": ("number", lambda rng, _: rng.randint(0, 20)),
    "wide": ("number", lambda rng, _: rng.randint(0, 45)),
    "tiny": ("number", lambda rng, _: rng.randint(-3, 5)),
    "pos": ("count", lambda rng, _: rng.randint(1, 12)),
    "small": ("count", lambda rng, _: rng.randint(1, 5)),
    "big": ("number", lambda rng, _: rng.randint(0, 200)),
    "pct": ("percent", lambda rng, _: 5 * rng.randint(0, 20)),
    "flag": ("flag", lambda rng, _: rng.random() < 0.5),
    "word": ("word", lambda rng, _: rng.choice(TEXT_WORDS)),
    "alike": ("word", _alike),
    "text": ("text", lambda rng, _: " ".join(_words(rng))),
    "title": ("text", lambda rng, _: " ".join(_words(rng)).title()),
    "dotted": ("text", lambda rng, _: rng.choice(MARKS).join(_words(rng))),
    "mirror": ("word", _mirror),
    "char": ("char", lambda rng, _: rng.choice("*-+#")),
    "elem": ("elem", _elem),
    "first": ("char", lambda rng, before: rng.choice([*before[0], "zz"])[0]),
    "ints": ("list", lambda rng, _: _ints(rng)),
    "empties": ("list", lambda rng, _: [] if rng.random() < 0.3 else _ints(rng)),
    "dups": ("list", _dups),
    "words": ("words", lambda rng, _: _words(rng)),
    "dupwords": ("words", lambda rng, _: [rng.choice(TEXT_WORDS[:3]) for _ in range(rng.randint(2, 4))]),
    "map": ("map", lambda rng, _: {word: rng.randint(0, 20) for word in _words(rng, 1, 3)}),
    "minimap": ("map", lambda rng, _: {word: rng.randint(0, 20) for word in _words(rng, 1, 2)}),
    "pairs": ("pairs", lambda rng, _: [(word, rng.randint(0, 20)) for word in _words(rng)]),
    "firsts": ("elem", _firsts),
    "grid": ("grid", lambda rng, _: [_ints(rng, 0, 9, 1, 2) for _ in range(rng.randint(1, 3))]),
}
"""Type of the notation -> the role whose words name such a parameter by default, and the maker."""
