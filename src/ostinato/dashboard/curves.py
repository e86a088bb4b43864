"""The curves of a run in one PNG. Needs the extra `report`."""

import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ostinato.dashboard.figures import Figure, VersionRow, live_figures
from ostinato.records import UnavailableError
from ostinato.store import Ledger, SessionResult

PANELS = (
    ("persistence", "edits kept", True),
    ("dissatisfied", "dissatisfied", True),
    ("tokens", "tokens per session", False),
    ("tool_calls", "tool calls per session", False),
)
INK, RELEASE, CANDIDATE, PROMOTED, GRID = "#26323a", "#1f6f8b", "#d9822b", "#2e8b57", "#dfe5e8"
CHUNK = 150


def draw_curves(ledger: Ledger, rows: Sequence[VersionRow], path: Path) -> Path:
    """Draw the live figures over sessions, in chunks of 150: of the release, and of each candidate in its arm, with
    promotions marked. Returns `path`."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise UnavailableError("The curves need matplotlib.", hint="Next: pip install 'ostinato[report]'") from None
    mpl.use("Agg")
    from matplotlib.figure import Figure as Canvas

    results = ledger.results()
    canvas = Canvas(figsize=(11, 6.4), layout="constrained", facecolor="white")
    axes = canvas.subplots(2, 2, sharex=True)
    promotions = [sum(r.opened_at < release.at for r in results) for release in ledger.releases()[1:]]
    for axis, (name, title, share) in zip(axes.flat, PANELS, strict=True):
        for line in _lines(results):
            _draw(axis, line, _chunks(line.chosen, name))
        for number, place in enumerate(promotions):
            label = "_more" if number else "promotion"
            axis.axvline(place, color=PROMOTED, linewidth=1, linestyle="--", label=label)
        _dress(axis, title, share)
    for axis in axes[1]:
        axis.set_xlabel("sessions", color=INK, fontsize=9)
    if axes[0][0].get_legend_handles_labels()[0]:
        axes[0][0].legend(frameon=False, fontsize=9, labelcolor=INK)
    promoted = sum(row.verdict == "promoted" for row in rows)
    times = "1 promotion" if promoted == 1 else f"{promoted} promotions"
    words = f"{len(results):,} sessions, {times} (bars: 95% intervals, persons as units)"
    canvas.suptitle(words, color=INK, fontsize=12)
    path.parent.mkdir(parents=True, exist_ok=True)
    canvas.savefig(path, dpi=130)
    return path


def _draw(axis: Any, line: "_Line", points: list[tuple[float, float, float, float]]) -> None:
    if not points:
        return
    x, y, low, high = zip(*points, strict=True)
    bars = [[abs(mean - bound) for mean, bound in zip(y, bounds, strict=True)] for bounds in (low, high)]
    style = {"marker": "o", "markersize": 4, "linewidth": 1.6, "elinewidth": 1, "capsize": 2}
    axis.errorbar(x, y, yerr=bars, color=line.colour, label=line.label, **style)


def _dress(axis: Any, title: str, share: bool) -> None:
    axis.set_title(title, loc="left", color=INK, fontsize=11)
    axis.grid(color=GRID, linewidth=0.8)
    axis.set_axisbelow(True)
    axis.tick_params(colors=INK, labelsize=9)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    if share:
        axis.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")


class _Line(NamedTuple):
    chosen: list[tuple[int, SessionResult]]
    colour: str
    label: str


def _lines(results: Sequence[SessionResult]) -> list[_Line]:
    """Sessions with their places: one line for the release, and one for each candidate that persons met."""
    release: list[tuple[int, SessionResult]] = []
    candidates: dict[str | None, list[tuple[int, SessionResult]]] = defaultdict(list)
    for place in enumerate(results):
        (candidates[place[1].experiment_id] if place[1].arm == "candidate" else release).append(place)
    lines = [_Line(release, RELEASE, "release")]
    for number, chosen in enumerate(candidates.values()):
        # A label that begins with an underscore stays out of the legend.
        lines.append(_Line(chosen, CANDIDATE, "_more" if number else "candidates' arms"))
    return lines


def _chunks(chosen: list[tuple[int, SessionResult]], name: str) -> list[tuple[float, float, float, float]]:
    """(position, mean, low, high) of each chunk of sessions; a last chunk below half the size is left out."""
    points: list[tuple[float, float, float, float]] = []
    for start in range(0, len(chosen), CHUNK):
        part = chosen[start : start + CHUNK]
        if len(part) < CHUNK // 2 and points:
            break
        value: Figure | None = live_figures([result for _, result in part]).get(name)
        if value is not None and math.isfinite(value.low):
            middle = sum(index for index, _ in part) / len(part)
            points.append((middle, value.mean, value.low, value.high))
    return points
