"""The kinds of task. Each builder takes a plan and returns what is broken, missing or asked, with its hidden checks.

A builder returns None where its plan allows no such task; the caller draws another plan.
"""

import re
from collections.abc import Callable, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ostinato.tinyworld.mutations import MUTATIONS, mutate
from ostinato.tinyworld.names import pick_name, withheld
from ostinato.tinyworld.repo import Example, Plan, Unit, failing, loaded, module_text, repository, test_text
from ostinato.tinyworld.templates import SHOWN, WITHHELD, Template

KINDS = ("bug", "feature", "rename", "lint", "question")
KIND_WEIGHTS = (0.50, 0.15, 0.12, 0.11, 0.12)
STUB = ("    pass  # todo",)

CAUGHT = 0.75
"""Share of bugs and features that a visible test shows; the others' visible tests pass, or there is none."""

RARER = {"missing_return": 0.5, "misspelt_name": 0.3, "wrong_return": 0.6, "wrong_variable": 0.8}
"""Weights of mutations that nearly every line allows; the others weigh 1."""

RULES = (
    "unused import",
    "comparison to None",
    "comparison to True",
    "stray semicolon",
    "unused variable",
    "mutable default",
    "parentheses after return",
    "trailing space",
)

WRAPPERS = (
    ("    return $",),
    ("    result = $", "    return result"),
    ("    return [$]",),
    ("    return $, 1",),
    ("    return str($)",),
    ("    found = $", "    return [found]"),
)
WRAPPER_BASES = ("show", "report", "use", "run", "make")


class Built(Struct, frozen=True):
    """A task without its words. `slots` fill the wordings, `phrasing` is their pool, `tags` describe the task."""

    files: dict[str, str]
    tests: dict[str, str]
    reference: dict[str, str]
    slots: dict[str, str]
    phrasing: str
    tags: dict[str, str]
    answer: str = ""


def pool(kind: str, split: str) -> Sequence[Template]:
    """The templates from which a task of this kind and split takes its target."""
    shown = WITHHELD if split == "unseen_templates" else SHOWN
    return [each for each in shown if len(each.body) <= 2] if kind == "feature" else shown


def _hidden(plan: Plan, checks: Sequence[str], more: Sequence[str] = ()) -> dict[str, str]:
    other = [plan.other.check(example) for example in plan.other.examples[:1]]
    return {"test_hidden.py": test_text([(plan.target, checks), (plan.other, other)]) + "".join(f"{x}\n" for x in more)}


def _slots(plan: Plan, example: Example) -> dict[str, str]:
    target = plan.target
    return {
        "name": target.function.name,
        "path": target.path,
        "call": target.call(example),
        "want": example.want,
        "phrase": target.function.phrase,
    }


def _choose(rng: Random, wrong: list[Example], right: list[Example]) -> tuple[list[Example], list[Example]]:
    """Visible examples (two at most) and hidden ones (four or five, at least one of them wrong before the edit)."""
    rng.shuffle(wrong)
    rng.shuffle(right)
    size = rng.randint(1, 2)
    visible = [wrong[-1], *right][:size] if rng.random() < CAUGHT else right[:size]
    hidden = [*wrong[:2], *right[-2:], *wrong[2:5]][:5]
    return visible, hidden


def broken_lines(plan: Plan, rng: Random) -> tuple[int, str, str, list[Example]] | None:
    """Line, mutation, broken line and the examples that fail, among the combinations that the split may use."""
    function = plan.target.function
    options = [(line, name) for line in range(len(function.body)) for name in MUTATIONS]
    options.sort(key=lambda option: rng.random() ** (1 / RARER.get(option[1], 1.0)), reverse=True)
    for line, name in options:
        is_kept_back = withheld(function.template.name, line, name)
        if plan.split != "unseen_templates" and is_kept_back != (plan.split == "unseen_combinations"):
            continue
        broken = mutate(function.body[line], name, function.scope)
        rng.shuffle(broken)
        for text in [each for each in broken if _keeps(function.constants, function.body[line], each)][:2]:
            body = (*function.body[:line], text, *function.body[line + 1 :])
            wrong = failing(function, body, plan.target.examples)
            if wrong and _compiles(plan.target, body):
                return line, name, text, wrong
    return None


def _keeps(constants: Sequence[str], line: str, broken: str) -> bool:
    """Whether the broken line still holds the line's chosen constants: what it lost nobody could write again."""
    return all(len(re.findall(word, line)) == len(re.findall(word, broken)) for word in constants)


def _compiles(unit: Unit, body: Sequence[str]) -> bool:
    try:
        loaded(unit.function, body)
    except SyntaxError:
        return False
    return True


def bug(plan: Plan, rng: Random) -> Built | None:
    """One line of the target is broken."""
    found = broken_lines(plan, rng)
    if found is None:
        return None
    line, mutation, text, wrong = found
    function = plan.target.function
    body = (*function.body[:line], text, *function.body[line + 1 :])
    return _repair(plan, rng, body, wrong, "bug", {"line": str(line), "mutation": mutation})


def feature(plan: Plan, rng: Random) -> Built | None:
    """The target's body is still to be written."""
    wrong = failing(plan.target.function, STUB, plan.target.examples)
    return _repair(plan, rng, STUB, wrong, "feature", {"line": "0", "mutation": "todo"}) if wrong else None


def _repair(
    plan: Plan, rng: Random, body: Sequence[str], wrong: list[Example], phrasing: str, tags: dict[str, str]
) -> Built:
    target = plan.target
    right = [example for example in target.examples if example not in wrong]
    visible, hidden = _choose(rng, list(wrong), right)
    broken = module_text(plan, target.function, body=body)
    caught = [example for example in visible if example in wrong]
    return Built(
        files=repository(plan, broken, module_text(plan, plan.other.function), visible),
        tests=_hidden(plan, [target.check(example) for example in hidden]),
        reference={target.path: module_text(plan, target.function)},
        slots=_slots(plan, (caught or wrong)[0]),
        phrasing=phrasing,
        tags={**tags, "caught": "yes" if caught else "no"},
    )


def rename(plan: Plan, rng: Random) -> Built | None:
    """The target gets a new name; the other module calls it."""
    target, function = plan.target, plan.target.function
    name = pick_name(rng, WRAPPER_BASES, plan.split, taken=(function.name,))
    new = pick_name(rng, function.template.bases, plan.split, taken=(function.name, name))
    module = target.module.rpartition(".")[2]
    called = f"{module}.{function.name}({', '.join(function.params)})"
    body = tuple(line.replace("$", called) for line in rng.choice(WRAPPERS))
    wrapper = replace(function, name=name, body=body)
    examples = _wrapped(wrapper, module, target)
    plan = replace(plan, other=replace(plan.other, function=wrapper, examples=examples))
    line = f"from {plan.folder} import {module}" if plan.folder else f"import {module}"
    other_text = module_text(plan, wrapper, imports=(line,))
    files = repository(plan, module_text(plan, function), other_text, ())
    renamed = replace(target, function=replace(function, name=new))
    checks = [renamed.check(example) for example in target.examples[:3]]
    gone = [f'assert "{function.name}" not in open("{path}").read()' for path in (target.path, plan.other.path)]
    return Built(
        files=files,
        tests=_hidden(replace(plan, target=renamed), checks, gone),
        reference={path: files[path].replace(function.name, new) for path in (target.path, plan.other.path)},
        slots={**_slots(plan, target.examples[0]), "new": new},
        phrasing="rename",
        tags={"new": new, "line": "", "mutation": "rename"},
    )


def _wrapped(wrapper: Any, module: str, target: Unit) -> tuple[Example, ...]:
    """The target's examples with the wrapper's results."""
    call = loaded(wrapper, wrapper.body)
    call.__globals__[module] = SimpleNamespace(**{target.function.name: loaded(target.function, target.function.body)})
    return tuple(replace(each, want=repr(call(*each.values))) for each in target.examples[:3])


class Fault(Struct, frozen=True):
    """A break of a lint rule: parts of the module as they are and as they should be, and asserts on the text."""

    wrong: dict[str, Any]
    right: dict[str, Any]
    checks: tuple[str, ...]


def _absent(plan: Plan, text: str) -> str:
    return f'assert "{text}" not in open("{plan.target.path}").read()'


def _changed(plan: Plan, rng: Random, lines: list[int], edit: Callable[[str], str], check: str) -> Fault | None:
    """A fault in one of `lines` of the body, made by `edit`."""
    if not lines:
        return None
    body = list(plan.target.function.body)
    chosen = rng.choice(lines)
    body[chosen] = edit(body[chosen])
    return Fault(wrong={"body": body}, right={}, checks=(check,))


def fault(rule: str, plan: Plan, rng: Random) -> Fault | None:
    """How the target breaks `rule`; None where its lines offer no place."""
    function = plan.target.function
    body = function.body
    plain = [at for at, line in enumerate(body) if not line.endswith(":")]
    if rule == "unused import":
        module = rng.choice(("json", "os", "re", "math"))
        return Fault(wrong={"imports": (f"import {module}",)}, right={}, checks=(_absent(plan, f"import {module}"),))
    if rule == "comparison to None":
        first = function.params[0]
        rest = "".join(f", {value!r}" for value in plan.target.examples[0].values[1:])
        guard = ("        return None", *body)
        return Fault(
            wrong={"body": (f"    if {first} == None:", *guard)},
            right={"body": (f"    if {first} is None:", *guard)},
            checks=(_absent(plan, "== None"), f"assert {function.name}(None{rest}) is None"),
        )
    if rule == "unused variable":
        name = rng.choice(("tmp", "unused", "old"))
        return Fault(wrong={"body": (f"    {name} = 0", *body)}, right={}, checks=(_absent(plan, f"{name} = 0"),))
    if rule == "mutable default":
        before = function.head.removesuffix("):")
        extra = rng.choice(("extra", "more", "seen"))
        heads = f"{before}, {extra}=[]):", f"{before}, {extra}=None):"
        return Fault(wrong={"head": heads[0]}, right={"head": heads[1]}, checks=(_absent(plan, "=[]"),))
    if rule == "comparison to True":
        ifs = [at for at, line in enumerate(body) if line.lstrip().startswith("if ")]
        return _changed(plan, rng, ifs, _compare_to_true, _absent(plan, "== True"))
    if rule == "stray semicolon":
        return _changed(plan, rng, plain, lambda line: line + ";", _absent(plan, ";"))
    if rule == "parentheses after return":
        returns = [at for at in plain if body[at].startswith("    return ")]
        return _changed(plan, rng, returns, _parenthesise, _absent(plan, "return("))
    spaces = f'assert all(x == x.rstrip() for x in open("{plan.target.path}").read().split("\\n"))'
    return _changed(plan, rng, plain, lambda line: line + "  ", spaces)


def _compare_to_true(line: str) -> str:
    indent, _, condition = line.removesuffix(":").partition("if ")
    return f"{indent}if ({condition}) == True:"


def _parenthesise(line: str) -> str:
    return line.replace("return ", "return(", 1) + ")"


def lint(plan: Plan, rng: Random) -> Built | None:
    """The target's module breaks one lint rule."""
    rule = rng.choice(RULES)
    made = fault(rule, plan, rng)
    if made is None:
        return None
    target = plan.target
    wrong = module_text(plan, target.function, **made.wrong)
    checks = [target.check(example) for example in target.examples[:3]]
    return Built(
        files=repository(plan, wrong, module_text(plan, plan.other.function), target.examples[:1]),
        tests=_hidden(plan, checks, made.checks),
        reference={target.path: module_text(plan, target.function, **made.right)},
        slots={**_slots(plan, target.examples[0]), "rule": rule},
        phrasing="lint",
        tags={"rule": rule, "line": "", "mutation": rule},
    )


def question(plan: Plan, rng: Random) -> Built | None:
    """Something is asked that the repository answers; nothing may be changed."""
    target = plan.target
    ask = rng.choice(("where", "returns", "first"))
    shown = min(target.examples, key=lambda example: len(example.want) + len(example.args))
    answer = {"where": target.path, "returns": shown.want, "first": target.function.params[0]}[ask]
    files = repository(plan, module_text(plan, target.function), module_text(plan, plan.other.function), (shown,))
    return Built(
        files=files,
        tests=_hidden(plan, [target.check(example) for example in target.examples[:3]]),
        reference={},
        slots={**_slots(plan, shown), "answer": answer},
        phrasing=ask,
        tags={"ask": ask, "line": "", "mutation": ""},
        answer=answer,
    )


BUILDERS: dict[str, Callable[[Plan, Random], Built | None]] = {
    "bug": bug,
    "feature": feature,
    "rename": rename,
    "lint": lint,
    "question": question,
}
