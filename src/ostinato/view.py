"""What a person sees while the loop turns: phase, how far, how long to go, the figures so far, the sessions of now."""

import json
import sys
import threading
import time
from collections import deque
from typing import IO, Any

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.measure import Measurement
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ostinato.dashboard import HEADINGS, VersionRow, narrow_rows, plain_rows

PLAIN_EVERY_S = 5.0
COLOURS = {"kept": "green", "mended": "green", "answered": "green", "asked": "yellow", "reverted": "red"}


class Screen:
    """A live view in a terminal, plain lines elsewhere. Safe to call from any thread."""

    def __init__(self, console: Console, title: str) -> None:
        self.console = console
        self.title = title
        self.started = time.monotonic()
        self._phase = ("start", 0, 0, 1, "")
        self._phase_at = time.monotonic()
        self._phase_from = 0
        self._sentences: deque[str] = deque(maxlen=6)
        self._sessions: deque[Text] = deque(maxlen=8)
        self._rows: list[VersionRow] = []
        self._finished = 0
        self._lock = threading.Lock()
        self._live: Live | None = None
        self._plain_at = 0.0

    def __enter__(self) -> "Screen":
        if self.console.is_terminal:
            self._live = Live(get_renderable=self._render, console=self.console, refresh_per_second=3, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def phase(self, number: int, name: str, done: int, total: int, note: str = "") -> None:
        """See `cycle.Watcher.phase`."""
        with self._lock:
            if (self._phase[0], self._phase[1]) != (name, number):
                self._phase_at, self._phase_from = time.monotonic(), done
            self._phase = (name, number, done, max(total, 1), note)
        self._plain()

    def said(self, sentence: str) -> None:
        """Keep one sentence on the screen."""
        with self._lock:
            self._sentences.append(plainly(sentence))
        if self._live is None:
            self._line(sentence)

    def rows(self, rows: list[VersionRow]) -> None:
        """The figures so far."""
        with self._lock:
            self._rows = rows

    def session(self, line: dict[str, Any]) -> None:
        """One session that ended."""
        person, outcome, request, reply = (
            plainly(line.get(name, "")) for name in ("person", "outcome", "request", "reply")
        )
        text = Text.assemble(
            (f"{person:8.8} ", "dim"),
            (f"{outcome:10.10} ", COLOURS.get(outcome, "magenta")),
            (f"{request:.58}", ""),
            ("  →  ", "dim"),
            (f"{reply or '(no reply)':.40}", "italic"),
            overflow="ellipsis",
            no_wrap=True,
        )
        with self._lock:
            self._finished += 1
            self._sessions.append(text)
        if self._live is None and self._finished == 1:
            self._line(f"first live session: {text.plain}")

    def follow(self, lines: IO[str]) -> None:
        """Show every JSON line of a stream as a session, until it ends; returns at once."""
        threading.Thread(target=self._follow, args=(lines,), daemon=True, name="sessions").start()

    def _follow(self, lines: IO[str]) -> None:
        try:
            for line in lines:
                self._told(line)
        except ValueError:
            return  # the stream was closed while its process ended

    def _told(self, line: str) -> None:
        """One line of the persons' process."""
        try:
            told = json.loads(line)
        except ValueError:
            self.said(line)  # a library's word among ours; the stream must be read on
            return
        if told["event"] == "session":
            self.session(told)
        elif told["event"] == "failed":
            self.said(f"a session could not begin: {told['error']}")

    def _clock(self) -> str:
        elapsed = int(time.monotonic() - self.started)
        return f"{elapsed // 60:2d}:{elapsed % 60:02d}"

    def _left(self) -> str:
        _, _, done, total, _ = self._phase
        gone, fresh = time.monotonic() - self._phase_at, done - self._phase_from
        if fresh <= 0 or gone < 2 or done >= total:
            return ""
        return f"about {max(int((total - done) * gone / fresh), 1)} s to go"

    def _plain(self) -> None:
        if self._live is not None or time.monotonic() - self._plain_at < PLAIN_EVERY_S:
            return
        self._plain_at = time.monotonic()
        name, number, done, total, note = self._phase
        words = [f"cycle {number}: {name} {done}/{total}", self._left(), note, f"{self._finished} sessions"]
        self._line(", ".join(word for word in words if word))

    def _line(self, text: str) -> None:
        """One line of a log. No markup is read in it, since intervals stand in brackets."""
        self.console.print(f"{self._clock()} {plainly(text)}", markup=False, highlight=False, soft_wrap=True)

    def _render(self) -> Group:
        with self._lock:
            name, number, done, total, note = self._phase
            head = Table.grid(padding=(0, 2))
            rate = self._finished / max(time.monotonic() - self.started, 1)
            head.add_row(
                Text(self.title, style="bold"),
                Text(self._clock(), style="cyan"),
                Text(f"{self._finished} sessions, {rate:.1f} a second", style="dim"),
            )
            bar = Table.grid(padding=(0, 2))
            share = ProgressBar(total=total, completed=min(done, total), width=30)
            bar.add_row(
                Text(f"cycle {number}", style="bold"),
                Text(name, style="cyan"),
                share,
                Text(f"{done}/{total}"),
                Text(self._left() or note, style="dim"),
            )
            parts: list[Any] = [head, bar, Text("")]
            if self._rows:
                parts += [version_table(self._rows), Text("")]
            parts += [Text(sentence, style="yellow") for sentence in self._sentences]
            parts += list(self._sessions)
            return Group(*(Padding(part, (0, 1)) for part in parts))


class VersionTable:
    """The versions with their figures, for a terminal of any width."""

    def __init__(self, rows: list[VersionRow]) -> None:
        self._rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The table; intervals go below their means where the lines are too short."""
        table = _table(HEADINGS, plain_rows(self._rows))
        if Measurement.get(console, options.update(width=400), table).maximum <= options.max_width:
            yield table
        else:
            yield _table((HEADINGS[0], *HEADINGS[2:]), narrow_rows(self._rows))


def version_table(rows: list[VersionRow]) -> VersionTable:
    """The versions with their figures."""
    return VersionTable(rows)


def _table(headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold dim")
    for heading in headings:
        table.add_column(heading, no_wrap=True)
    for cells in rows:
        style = {"promoted": "green", "blocked": "red", "stopped": "red", "undecided": "yellow"}.get(cells[-1], "")
        table.add_row(*(Text(cell) for cell in cells[:-1]), Text(cells[-1], style=style))
    return table


def plainly(text: object) -> str:
    """One line without control characters: what a model or a person wrote must not steer the terminal."""
    return " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())


def console() -> Console:
    """Standard output, wide enough for the table where it is no terminal."""
    return Console() if sys.stdout.isatty() else Console(width=160)
