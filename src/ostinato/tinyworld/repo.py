"""Small repositories: two modules of one function each, a visible test file per module, and the test script."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from msgspec import Struct

from ostinato.tinyworld.names import AREAS, FOLDERS, MODULES, Split, pick_name
from ostinato.tinyworld.runner import RUN_TESTS, StepLimitError, compiled, step_limit
from ostinato.tinyworld.templates import SHOWN, Function, Template, instantiate, sample_arguments

EXAMPLES = 10
"""Examples sampled per function; tests are made of them."""


class Example(Struct, frozen=True):
    """One call of a function, its arguments as Python text and as values, and the text of the right result."""

    args: str
    values: tuple[Any, ...]
    want: str


class Unit(Struct, frozen=True):
    """One module: its name as imported, its path, its function, and examples of it."""

    module: str
    path: str
    function: Function
    examples: tuple[Example, ...]

    def call(self, example: Example) -> str:
        """The text of the example's call."""
        return f"{self.function.name}({example.args})"

    def check(self, example: Example) -> str:
        """The example as an assert statement."""
        return f"assert {self.call(example)} == {example.want}"


class Plan(Struct, frozen=True):
    """What a task is built on. `style` is plain, legacy (a comment leads each module) or packaged (in a folder)."""

    split: Split
    style: str
    folder: str
    comment: str
    target: Unit
    other: Unit


def loaded(function: Function, body: Sequence[str]) -> Callable[..., Any]:
    """The function with the given body, as a callable. Raises SyntaxError where the body is none."""
    space: dict[str, Any] = {}
    exec(compiled("\n".join((function.head, *body)), "<function>"), space)
    made: Callable[..., Any] = space[function.name]
    return made


def _fresh(value: Any) -> Any:
    """A copy, lists in lists included, since a broken function may change its arguments."""
    if isinstance(value, list):
        return [_fresh(each) for each in value]
    return value.copy() if isinstance(value, dict) else value


def failing(function: Function, body: Sequence[str], examples: Sequence[Example]) -> list[Example]:
    """The examples that the function with this body gets wrong; all of them where it does not compile."""
    try:
        broken = loaded(function, body)
    except (SyntaxError, StepLimitError):
        return list(examples)
    wrong = []
    for example in examples:
        try:
            with step_limit():
                right = repr(broken(*map(_fresh, example.values))) == example.want
        except (Exception, StepLimitError):
            right = False
        if not right:
            wrong.append(example)
    return wrong


def sample_examples(function: Function, rng: Random, count: int = EXAMPLES) -> tuple[Example, ...]:
    """Up to `count` distinct calls with short results. Several results differ, where the function allows it."""
    call = loaded(function, function.body)
    found: dict[str, Example] = {}
    for _ in range(10 * count):
        values = sample_arguments(function.template, rng)
        args = ", ".join(map(repr, values))
        try:
            want = repr(call(*map(_fresh, values)))
        except (IndexError, ValueError, ZeroDivisionError, KeyError):
            continue
        if len(args) + len(want) <= 72 and args not in found:
            found[args] = Example(args=args, values=values, want=want)
            if len(found) == count:
                break
    assert found, function.name
    return tuple(found.values())


def plan(split: Split, rng: Random, pool: Sequence[Template]) -> Plan:
    """Choose style, words and two functions; the target's template comes from `pool`."""
    style = rng.choices(("plain", "legacy", "packaged"), (0.40, 0.35, 0.25))[0]
    folder = rng.choice(FOLDERS) if style == "packaged" else ""
    comment = f"# legacy: {rng.choice(AREAS)}" if style == "legacy" else ""
    first, second = rng.sample(MODULES, 2)
    template = rng.choice(pool)
    beside = rng.choice([each for each in SHOWN if each is not template])
    name = pick_name(rng, template.bases, split)
    other_name = pick_name(rng, beside.bases, split, taken=(name,))
    target = unit(folder, first, instantiate(template, name, rng, split), rng)
    other = unit(folder, second, instantiate(beside, other_name, rng, split), rng, count=3)
    return Plan(split=split, style=style, folder=folder, comment=comment, target=target, other=other)


def unit(folder: str, module: str, function: Function, rng: Random, count: int = EXAMPLES) -> Unit:
    """A module in `folder` ("" for the root) that holds `function`."""
    prefix = f"{folder}/" if folder else ""
    return Unit(
        module=f"{folder}.{module}" if folder else module,
        path=f"{prefix}{module}.py",
        function=function,
        examples=sample_examples(function, rng, count),
    )


def module_text(
    plan: Plan, function: Function, *, body: Sequence[str] = (), head: str = "", imports: Sequence[str] = ()
) -> str:
    """The text of a module: comment, imports, and the function, with other `body` or `head` where given."""
    top = [plan.comment] if plan.comment else []
    return "\n".join([*top, *imports, head or function.head, *(body or function.body)]) + "\n"


def test_text(checks: Sequence[tuple[Unit, Sequence[str]]]) -> str:
    """The text of a test file: imports, then the asserts, for each unit."""
    imports = [f"from {each.module} import {each.function.name}" for each, _ in checks]
    return "\n".join([*imports, *(line for _, lines in checks for line in lines)]) + "\n"


def test_path(unit: Unit) -> str:
    """Where a module's visible tests lie."""
    return f"test_{unit.module.rpartition('.')[2]}.py"


def repository(plan: Plan, target_text: str, other_text: str, visible: Sequence[Example]) -> dict[str, str]:
    """All files: both modules, their visible tests (for the target: `visible`, where given) and `run_tests.py`."""
    files = {plan.target.path: target_text, plan.other.path: other_text}
    if visible:
        checks = [plan.target.check(example) for example in visible]
        files[test_path(plan.target)] = test_text([(plan.target, checks)])
    files[test_path(plan.other)] = test_text([(plan.other, [plan.other.check(plan.other.examples[0])])])
    files["run_tests.py"] = RUN_TESTS
    return files
