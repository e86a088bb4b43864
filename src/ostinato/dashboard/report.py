"""The report: one HTML page that carries everything with it and loads nothing."""

import base64
import math
import time
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader, select_autoescape
from markupsafe import Markup

from ostinato.dashboard.curves import draw_curves
from ostinato.dashboard.figures import Figure, VersionRow, accounts_line, version_rows
from ostinato.records import Experiment, Look
from ostinato.store import Ledger

_SHARES = ("persistence", "dissatisfied")
"""Metrics that lie between 0 and 1; others are counts."""


def write_report(ledger: Ledger, folder: Path, *, title: str, note: str = "") -> Path:
    """Write `report.html` and `curves.png` into `folder` from what the ledger holds now; the page's path."""
    rows = version_rows(ledger)
    picture = draw_curves(ledger, rows, folder / "curves.png")
    environment = Environment(
        loader=PackageLoader("ostinato.dashboard", "."), autoescape=select_autoescape(["html"]), trim_blocks=True
    )
    environment.filters |= {
        "share": _share_cell,
        "number": _number_cell,
        "size": _size,
        "look": _look,
    }
    page = environment.get_template("report.html").render(
        title=title,
        note=note,
        written=time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        rows=rows,
        experiments=[
            (experiment, _last_looks(ledger.looks(experiment.experiment_id))) for experiment in _tried(ledger)
        ],
        accounts=accounts_line(ledger),
        episodes=ledger.accounts("episode").sessions,
        counters=ledger.counters(),
        incidents=ledger.incidents(),
        sandboxes=ledger.sandbox_count(),
        parked=ledger.parked_feedback(),
        picture=base64.b64encode(picture.read_bytes()).decode(),
    )
    path = folder / "report.html"
    temporary = path.with_suffix(".tmp")
    temporary.write_text(page)
    temporary.replace(path)
    return path


def _tried(ledger: Ledger) -> list[Experiment]:
    return [experiment for experiment in ledger.experiments() if experiment.candidate]


def _last_looks(looks: Sequence[Look]) -> list[Look]:
    """The last look at each metric."""
    return list({look.metric: look for look in looks}.values())


def _cell(text: str) -> Markup:
    """A figure for the page: the mean, and its interval below."""
    mean, _, interval = text.partition(" ")
    return (
        Markup('{}<br><span class="soft">{}</span>').format(mean, interval) if interval else Markup("{}").format(mean)
    )


def _share_cell(value: Figure | None) -> Markup:
    return _cell(_share(value))


def _number_cell(value: Figure | None) -> Markup:
    return _cell(_number(value))


def _share(value: Figure | None) -> str:
    if value is None:
        return "–"
    if math.isinf(value.high):
        return f"{value.mean:.1%} (n = 1)"
    return f"{value.mean:.1%} [{value.low:.1%}, {value.high:.1%}]"


def _number(value: Figure | None) -> str:
    if value is None:
        return "–"
    if math.isinf(value.high):
        return f"{value.mean:.1f} (n = 1)"
    return f"{value.mean:.1f} [{value.low:.1f}, {value.high:.1f}]"


def _look(look: Look) -> str:
    """Shares in points, tokens as they are."""
    scale, unit = (100, " pt") if look.metric in _SHARES else (1, "")
    low, high = scale * look.low, scale * look.high
    return f"{look.metric} {scale * look.difference:+.1f}{unit} [{low:+.1f}, {high:+.1f}]"


def _size(value: int) -> str:
    return f"{value / 1000:,.0f} kB"


def plain_rows(rows: Sequence[VersionRow]) -> list[tuple[str, ...]]:
    """The version table as text cells, for a wide terminal; one for each of `HEADINGS`."""
    return [
        (
            row.version[:10],
            row.parent[:10] or "–",
            _share(row.bench),
            _share(row.live.get("persistence")),
            _share(row.live.get("dissatisfied")),
            _number(row.live.get("tokens")),
            str(row.sessions),
            row.verdict,
        )
        for row in rows
    ]


def narrow_rows(rows: Sequence[VersionRow]) -> list[tuple[str, ...]]:
    """The same for 80 columns: whole numbers, intervals on a line of their own, and no parents."""
    return [
        (
            row.version[:10],
            _two_lines(row.bench, 100, "%"),
            _two_lines(row.live.get("persistence"), 100, "%"),
            _two_lines(row.live.get("dissatisfied"), 100, "%"),
            _two_lines(row.live.get("tokens"), 1, ""),
            str(row.sessions),
            row.verdict,
        )
        for row in rows
    ]


def _two_lines(value: Figure | None, scale: float, unit: str) -> str:
    if value is None:
        return "–"
    interval = "(n = 1)" if math.isinf(value.high) else f"[{value.low * scale:.0f}, {value.high * scale:.0f}]"
    return f"{value.mean * scale:.0f}{unit}\n{interval}"


HEADINGS = ("version", "parent", "bench", "kept", "dissatisfied", "tokens", "sessions", "verdict")
"""Of `plain_rows`; `narrow_rows` leaves out the second."""
