"""The curves of a run in one PNG. Needs the extra `report`."""

import math
from collections.abc import Sequence
from pathlib import Path

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
    """Draw the live figures over sessions, in chunks of 150, by arm, with promotions marked. Returns `path`."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise UnavailableError("The curves need matplotlib.", hint="Next: pip install 'ostinato[report]'") from None
    mpl.use("Agg")
    from matplotlib.figure import Figure as Canvas

    results = ledger.results()
    canvas = Canvas(figsize=(11, 6.4), layout="constrained", facecolor="white")
    axes = canvas.subplots(2, 2, sharex=True)
    promotions = [release.at for release in ledger.releases()[1:]]
    for axis, (name, title, share) in zip(axes.flat, PANELS, strict=True):
        for arm, colour, label in ((None, RELEASE, "release"), ("candidate", CANDIDATE, "candidate's arm")):
            chosen = [(i, r) for i, r in enumerate(results) if (r.arm == "candidate") == (arm == "candidate")]
            points = _chunks(chosen, name)
            if points:
                x, y, low, high = zip(*points, strict=True)
                axis.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
                axis.plot(x, y, color=colour, marker="o", markersize=4, linewidth=1.6, label=label)
        for number, at in enumerate(promotions, start=1):
            position = sum(result.opened_at < at for result in results)
            axis.axvline(
                position, color=PROMOTED, linewidth=1, linestyle="--", label="promotion" if number == 1 else None
            )
        axis.set_title(title, loc="left", color=INK, fontsize=11)
        axis.grid(color=GRID, linewidth=0.8)
        axis.set_axisbelow(True)
        axis.tick_params(colors=INK, labelsize=9)
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
        if share:
            axis.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    for axis in axes[1]:
        axis.set_xlabel("sessions", color=INK, fontsize=9)
    if axes[0][0].get_legend_handles_labels()[0]:
        axes[0][0].legend(frameon=False, fontsize=9, labelcolor=INK)
    promoted = sum(row.verdict == "promoted" for row in rows)
    canvas.suptitle(
        f"{len(results)} sessions, {promoted} promotions (bands: 95%, persons as units)", color=INK, fontsize=12
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    canvas.savefig(path, dpi=130)
    return path


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
