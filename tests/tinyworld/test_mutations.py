"""The ways to break a line."""

import pytest

from ostinato.tinyworld import generate_task
from ostinato.tinyworld.mutations import MUTATIONS, mutate


@pytest.mark.parametrize(
    ("mutation", "line", "broken"),
    [
        ("arithmetic", "    return a + b", "    return a - b"),
        ("increment", "    total += x", "    total -= x"),
        ("flipped_comparison", "    if a > b:", "    if a < b:"),
        ("edge_comparison", "    if a > b:", "    if a >= b:"),
        ("equality", "    if a == b:", "    if a != b:"),
        ("membership", "    return a in b", "    return a not in b"),
        ("membership", "    if a not in b:", "    if a in b:"),
        ("off_by_one", "    return a[1]", "    return a[2]"),
        ("wrong_variable", "    return a", "    return b"),
        ("missing_return", "    return a", "    a"),
        ("wrong_return", "    return max(a, b)", "    return b"),
        ("negation", "    if not a:", "    if a:"),
        ("negation", "    if a:", "    if not a:"),
        ("bound", "    return a[:b]", "    return a[b:]"),
        ("swapped", "    return f(a, b)", "    return f(b, a)"),
        ("initial_value", "    total = 0", "    total = 1"),
        ("wrong_method", "    return max(a, b)", "    return min(a, b)"),
        ("and_or", "    return a and b", "    return a or b"),
        ("truth", "    return True", "    return False"),
        ("sign", "    return a[-1]", "    return a[0]"),
        ("dropped_call", "    return str(a)", "    return a"),
        ("dropped_method", "    return a.upper()", "    return a"),
        ("mark", '    return "-".join(a)', '    return "_".join(a)'),
        ("misspelt_name", "    return total", "    return tota"),
        ("early_return", "    return total", "        return total"),
    ],
)
def test_operator_breaks_its_line(mutation: str, line: str, broken: str) -> None:
    """Each operator makes the expected broken line, and never the line itself."""
    found = mutate(line, mutation, ("a", "b", "total"))
    assert broken in found
    assert line not in found


def test_every_mutation_is_met() -> None:
    """No operator is dead: each breaks some task."""
    sample = [generate_task("seed", number) for number in range(3000)]
    sample += [generate_task("unseen_templates", number) for number in range(400)]
    met = {task.tags["mutation"] for task in sample if task.kind == "bug"}
    assert met == set(MUTATIONS)
    assert len(met) >= 12


def test_lines_that_an_operator_does_not_fit_stay() -> None:
    """An operator without a place gives nothing."""
    for mutation in MUTATIONS:
        assert mutate("    pass", mutation, ()) == []
