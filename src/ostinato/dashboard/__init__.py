"""Tables, curves and the report. The ledger is read; rows, a PNG and a self-contained HTML page go out, and nothing is
written back. May import records, rewards, store, weights and render.
"""

from ostinato.dashboard.curves import draw_curves
from ostinato.dashboard.figures import Figure, VersionRow, accounts_line, version_rows
from ostinato.dashboard.report import HEADINGS, narrow_rows, plain_rows, write_report

__all__ = [
    "HEADINGS",
    "Figure",
    "VersionRow",
    "accounts_line",
    "draw_curves",
    "narrow_rows",
    "plain_rows",
    "version_rows",
    "write_report",
]
