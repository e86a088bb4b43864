"""What is known of each version."""

import math
from pathlib import Path

import pytest
from msgspec.structs import replace

from ostinato.dashboard import Figure, accounts_line, plain_rows, version_rows
from ostinato.dashboard.figures import figure, live_figures
from ostinato.records import Fate, Outcome
from ostinato.store import Ledger, SessionResult

FIRST, SECOND, DAMAGED, THIRD = (f"v-{digit * 16}" for digit in "0123")


def test_each_version_has_its_row(ledger: Ledger) -> None:
    """Oldest first, with parent, verdict, and only the sessions that it served itself."""
    rows = version_rows(ledger)
    assert [row.version for row in rows] == [FIRST, SECOND, DAMAGED, THIRD]
    assert [row.parent for row in rows] == ["", FIRST, SECOND, SECOND]
    assert [row.verdict for row in rows] == ["first release", "promoted", "blocked", "running"]
    assert [row.cycle for row in rows] == [0, 1, 2, 2]
    assert sum(row.sessions for row in rows) == 700
    assert rows[2].sessions == 0
    assert rows[2].live == {}
    bench = [row.bench for row in rows]
    assert bench[3] is None
    assert bench[0] is not None and bench[2] is not None
    assert bench[0].n == 40
    assert bench[2].high < bench[0].low


def test_persons_are_the_unit() -> None:
    """A person with many sessions counts once, with their mean."""

    def result(person: str, kept: bool) -> SessionResult:
        outcome = Outcome.KEPT if kept else Outcome.REVERTED
        return SessionResult("s", person, 0.0, None, None, "v", outcome, 1.0, {"edited": 1.0})

    results = [result("a", True)] * 98 + [result("b", False), result("c", False)]
    kept = live_figures(results)["persistence"]
    assert (kept.mean, kept.n) == pytest.approx((1 / 3, 3))


def test_an_interval_by_hand() -> None:
    """0, 0, 1, 1: mean .5, deviation .577, half a width 1.96 * .577 / 2."""
    half = 1.96 * math.sqrt(1 / 3) / 2
    found = figure([0, 0, 1, 1])
    assert (found.low, found.high) == pytest.approx((0.5 - half, 0.5 + half))
    assert figure([1.0]) == Figure(1.0, -math.inf, math.inf, 1)


def test_the_accounts_in_one_line(ledger: Ledger) -> None:
    """Every fate that occurs, and whether it balances."""
    assert accounts_line(ledger) == "700 sessions = 600 open + 100 held_out (balanced)"
    ledger.put_fate("s1", Fate.TRAINED, "", SECOND)
    assert accounts_line(ledger) == "700 sessions = 599 open + 1 trained + 100 held_out (balanced)"


def test_the_terminal_table(ledger: Ledger) -> None:
    """Short names, shares in percent, dashes where nothing is known."""
    rows = version_rows(ledger)
    cells = plain_rows(rows)
    assert [row[0] for row in cells] == ["v-00000000", "v-11111111", "v-22222222", "v-33333333"]
    assert cells[0][1] == "–"
    assert cells[2][3:] == ("–", "–", "–", "0", "blocked")
    assert cells[1][3].startswith(f"{rows[1].live['persistence'].mean:.1%} [")


def test_one_person_gives_no_interval(ledger: Ledger) -> None:
    """It is said, and no infinity is shown."""
    lone = replace(version_rows(ledger)[0], bench=figure([1.0]))
    assert plain_rows([lone])[0][2] == "100.0% (n = 1)"


def test_an_empty_ledger_has_no_rows(tmp_path: Path) -> None:
    """And accounts of nothing."""
    with Ledger.open(tmp_path) as ledger:
        assert version_rows(ledger) == []
        assert accounts_line(ledger) == "0 sessions = 0 open (balanced)"
