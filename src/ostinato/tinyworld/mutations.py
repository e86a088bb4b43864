"""Ways to break one line. Each operator maps a line and the names in scope to broken lines.

Whether a broken line really changes behaviour is for the caller to find out by running tests.
"""

import re
from collections.abc import Callable

Operator = Callable[[str, tuple[str, ...]], list[str]]


def _swaps(line: str, pairs: tuple[tuple[str, str], ...]) -> list[str]:
    """Every line that comes from one replacement of one occurrence by a pair's second text."""
    found = []
    for old, new in pairs:
        start = line.find(old)
        while start >= 0:
            found.append(line[:start] + new + line[start + len(old) :])
            start = line.find(old, start + len(old))
    return found


def _swapper(*pairs: tuple[str, str]) -> Operator:
    return lambda line, _scope: _swaps(line, pairs)


def _both(*pairs: tuple[str, str]) -> Operator:
    return _swapper(*pairs, *((new, old) for old, new in pairs))


def _constant(line: str, _scope: tuple[str, ...]) -> list[str]:
    found = []
    for match in re.finditer(r"(?<![\w.])\d+(?![\w.])", line):
        value = int(match.group())
        others = {value + 1, max(value - 1, 0)} - {value}
        found += [line[: match.start()] + str(other) + line[match.end() :] for other in others]
    return sorted(found)


def _wrong_variable(line: str, scope: tuple[str, ...]) -> list[str]:
    found = []
    code = line.split("for ")[0] if line.lstrip().startswith("for ") else line
    for match in re.finditer(r"(?<![\w.\"])[a-z_]\w*(?!\w*[(\"])", code):
        if match.group() in scope:
            found += [line[: match.start()] + other + line[match.end() :] for other in scope if other != match.group()]
    return found


def _missing_return(line: str, _scope: tuple[str, ...]) -> list[str]:
    indent, word, rest = line.partition("return ")
    return [indent + rest] if word else []


def _wrong_return(line: str, scope: tuple[str, ...]) -> list[str]:
    indent, word, rest = line.partition("return ")
    return [f"{indent}return {name}" for name in scope if name != rest] if word else []


def _negation(line: str, _scope: tuple[str, ...]) -> list[str]:
    if " if not " in line or line.lstrip().startswith("if not "):
        return [line.replace("if not ", "if ", 1)]
    if line.lstrip().startswith("if "):
        return [line.replace("if ", "if not ", 1)]
    return []


def _membership(line: str, _scope: tuple[str, ...]) -> list[str]:
    if " not in " in line:
        return [line.replace(" not in ", " in ", 1)]
    found = re.sub(r"((?:if|return) \S+) in ", r"\1 not in ", line, count=1)
    return [found] if found != line else []


def _bound(line: str, _scope: tuple[str, ...]) -> list[str]:
    found = re.sub(r"\[:(\w+)\]", r"[\1:]", line), re.sub(r"\[(-?\w+):\]", r"[:\1]", line)
    ranges = re.sub(r"range\(1, (.*)\):", r"range(\1):", line), re.sub(r"range\((\w+)\)", r"range(1, \1)", line)
    return [other for other in (*found, *ranges) if other != line]


def _swapped_arguments(line: str, _scope: tuple[str, ...]) -> list[str]:
    found = re.sub(r"\((\w+), (\w+)\)", r"(\2, \1)", line, count=1)
    minus = re.sub(r"(\w+) (-|//|<|>) (\w+)", r"\3 \2 \1", line, count=1)
    comma = re.sub(r"return (\w+), (\w+)$", r"return \2, \1", line)
    return [other for other in (found, minus, comma) if other != line]


def _initial_value(line: str, _scope: tuple[str, ...]) -> list[str]:
    table = {" = 0": " = 1", " = 1": " = 0", ' = ""': ' = " "', " = []": " = [0]"}
    return [line.removesuffix(old) + new for old, new in table.items() if line.endswith(old)]


def _dropped_call(line: str, _scope: tuple[str, ...]) -> list[str]:
    return [
        line[: match.start()] + match.group(2) + line[match.end() :]
        for match in re.finditer(r"\b(abs|str|int|len|sorted|list|sum|dict)\((\w+)\)", line)
    ]


def _dropped_method(line: str, _scope: tuple[str, ...]) -> list[str]:
    found = re.sub(r"\.(upper|lower|title|strip|split|items|values|keys)\(\)", "", line, count=1)
    return [found] if found != line else []


def _misspelt_name(line: str, scope: tuple[str, ...]) -> list[str]:
    used = [name for name in scope if len(name) > 2 and re.search(rf"\b{name}\b", line)]
    return [re.sub(rf"\b{name}\b", name[:-1], line, count=1) for name in used] if " for " not in line else []


def _deeper(line: str, _scope: tuple[str, ...]) -> list[str]:
    return ["    " + line] if re.match(r"    return [a-z]\w*$", line) else []


MUTATIONS: dict[str, Operator] = {
    "arithmetic": _swapper((" + ", " - "), (" - ", " + "), (" * ", " + "), (" // ", " * "), (" % ", " // ")),
    "increment": _both((" += ", " -= "), (" *= ", " += ")),
    "flipped_comparison": _swapper((" > ", " < "), (" < ", " > "), (" >= ", " < "), (" <= ", " > ")),
    "edge_comparison": _both((" > ", " >= "), (" < ", " <= ")),
    "equality": _both((" == ", " != ")),
    "membership": _membership,
    "off_by_one": _constant,
    "wrong_variable": _wrong_variable,
    "missing_return": _missing_return,
    "wrong_return": _wrong_return,
    "negation": _negation,
    "bound": _bound,
    "swapped": _swapped_arguments,
    "initial_value": _initial_value,
    "wrong_method": _both(
        (".upper(", ".lower("),
        ("startswith", "endswith"),
        ("rjust", "ljust"),
        ("max(", "min("),
        (".keys(", ".values("),
        (".append(", ".extend("),
        ("sum(", "len("),
    ),
    "and_or": _both((" and ", " or ")),
    "truth": _both(("True", "False")),
    "sign": _swapper(("[-1]", "[0]"), ("[0]", "[-1]"), ("[::-1]", "[::1]"), ("-1", "1"), ("[:-1]", "[1:]")),
    "dropped_call": _dropped_call,
    "dropped_method": _dropped_method,
    "mark": _swapper(('"-"', '"_"'), ('"_"', '"-"'), ('":"', '","'), ('","', '":"'), ('"/"', '"-"'), ('" "', '""')),
    "misspelt_name": _misspelt_name,
    "early_return": _deeper,
}
"""Name of the mutation -> operator."""


def mutate(line: str, mutation: str, scope: tuple[str, ...]) -> list[str]:
    """All lines that `mutation` makes of `line`, given the names in `scope`; none where it does not apply."""
    return [other for other in MUTATIONS[mutation](line, scope) if other != line]
