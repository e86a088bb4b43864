"""The words that tasks are made of, and which split owns which pairing of words.

Single words are shared by all splits, so that the tokenizer knows them; the pairing of a function's verb and noun, and
a template's wide constants, belong to one of three classes by a hash, so that evaluation meets names and constants
that no training task holds.
"""

import zlib
from random import Random
from typing import Literal

Split = Literal["seed", "live", "held_out", "unseen_combinations", "unseen_templates"]
SPLITS: tuple[Split, ...] = ("seed", "live", "held_out", "unseen_combinations", "unseen_templates")

NameClass = Literal["seed", "live", "held_out"]

NOUNS = (
    "price",
    "item",
    "order",
    "user",
    "stock",
    "card",
    "file",
    "page",
    "score",
    "team",
    "note",
    "room",
    "ticket",
    "bill",
    "cart",
    "line",
    "row",
    "node",
    "task",
    "job",
    "mail",
    "date",
    "event",
    "point",
    "box",
    "tag",
)
MODULES = (
    "pricing",
    "orders",
    "billing",
    "stocks",
    "users",
    "tickets",
    "rooms",
    "tasks",
    "jobs",
    "mails",
    "events",
    "points",
    "games",
    "teams",
    "pages",
    "notes",
    "reports",
    "carts",
    "text_tools",
    "list_tools",
    "data_tools",
)
FOLDERS = ("core", "lib", "app", "shop")
AREAS = ("billing", "orders", "users", "stock", "mail", "pages")

PARAM_WORDS: dict[str, tuple[str, ...]] = {
    "number": ("value", "number", "amount", "level", "n"),
    "low": ("low", "lower", "start", "first"),
    "high": ("high", "upper", "limit", "top"),
    "limit": ("limit", "bound", "top", "level"),
    "goal": ("goal", "target", "limit"),
    "count": ("count", "size", "times", "width"),
    "price": ("price", "cost", "rate"),
    "percent": ("percent", "rate", "share"),
    "text": ("text", "line", "note", "title"),
    "word": ("word", "name", "label", "text"),
    "char": ("char", "letter", "mark"),
    "mark": ("mark", "sign", "char"),
    "minute": ("minute", "rest", "part"),
    "list": ("values", "numbers", "items", "data", "scores"),
    "other": ("other", "second", "more"),
    "words": ("words", "names", "labels", "tags"),
    "map": ("table", "prices", "stock", "counts"),
    "pairs": ("pairs", "rows", "entries"),
    "keys": ("keys", "names", "wanted"),
    "grid": ("grid", "rows", "table"),
    "flag": ("flag", "active", "paid", "ready"),
    "value": ("value", "number", "extra"),
    "elem": ("key", "target", "wanted"),
    "index": ("index", "place", "pos"),
}

LOCAL_WORDS: dict[str, tuple[str, ...]] = {
    "t": ("total", "result", "acc"),
    "o": ("out", "result", "found"),
    "m": ("table", "result", "out"),
    "i": ("item", "value", "entry", "x"),
    "j": ("other", "right", "y"),
    "k": ("key", "name", "k"),
    "v": ("value", "amount", "v"),
    "n": ("count", "size", "n"),
    "p": ("index", "pos", "i"),
    "s": ("text", "out", "result"),
    "w": ("word", "part", "w"),
    "h": ("best", "top", "result"),
    "r": ("row", "part", "line"),
}

TEXT_WORDS = (
    "red",
    "blue",
    "green",
    "tea",
    "milk",
    "corn",
    "fish",
    "apple",
    "pear",
    "lemon",
    "salt",
    "ham",
    "cake",
    "rice",
)
MARKS = ("-", "_", "/", ":", ",")


def _bucket(text: str) -> int:
    return zlib.crc32(text.encode()) % 10


def class_of(text: str) -> NameClass:
    """Which class owns a pairing: 60% seed, 20% live, 20% held out, by a hash of its text."""
    bucket = _bucket(text)
    return "seed" if bucket < 6 else "live" if bucket < 8 else "held_out"


def name_class(split: Split) -> NameClass:
    """The class whose names and constants a split uses: the three evaluation splits share the held-out ones."""
    return split if split in ("seed", "live") else "held_out"


def withheld(template: str, line: int, mutation: str) -> bool:
    """Whether a combination of template, body line and mutation is kept for the split `unseen_combinations` (20%)."""
    return zlib.crc32(f"{template}/{line}/{mutation}".encode()) % 5 == 0


def pick_name(rng: Random, bases: tuple[str, ...], split: Split, taken: tuple[str, ...] = ()) -> str:
    """A function name `base_noun` of the split's class that is no part of, and holds no part of, the `taken` names."""
    wanted = name_class(split)
    options = [f"{base}_{noun}" for base in bases for noun in NOUNS]
    rng.shuffle(options)
    for name in options:
        if class_of(name) == wanted and not any(name in other or other in name for other in taken):
            return name
    raise AssertionError(f"no free name for {bases} in {split}")
