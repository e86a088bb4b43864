"""What a person sees: a live screen in a terminal, lines elsewhere, and nothing that steers the terminal."""

import json
import threading
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from ostinato.dashboard import Figure, VersionRow
from ostinato.view import Screen, console, plainly, version_table

SESSION = {"event": "session", "person": "p7", "outcome": "kept", "request": "fix add", "reply": "Fixed it."}
SHARE = Figure(0.4567, 0.4012, 0.5123, 60)
ROWS = [
    VersionRow("v-0123456789abcdef", "", "anchor", 1, 0, "first release", "", 200, SHARE, {"persistence": SHARE}),
    VersionRow("v-fedcba9876543210", "v-0123456789abcdef", "delta", 1, 1, "blocked", "bad", 0, None, {}),
]


def terminal(width: int = 100) -> tuple[Console, StringIO]:
    """A console that believes in a terminal, and what was written to it."""
    file = StringIO()
    return Console(force_terminal=True, color_system=None, file=file, width=width, height=40), file


def pipe() -> tuple[Console, StringIO]:
    """A console that writes to a pipe or a file."""
    file = StringIO()
    return Console(file=file, width=160), file


def shown(screen: Screen, width: int = 100) -> str:
    """The picture that the live screen shows now."""
    held, file = terminal(width)
    held.print(screen._render())
    return file.getvalue()


def test_a_terminal_shows_everything_at_once() -> None:
    """Title, phase, how far, figures, sentences and the sessions of now."""
    held, file = terminal()
    with Screen(held, "Ostinato demo") as screen:
        screen.phase(2, "experiment", 30, 120, "burn-in: 12 of 60 persons")
        screen.rows(ROWS)
        screen.said("cycle 1: promoted v-1 [-2.0%, +8.0%]")
        screen.session(SESSION)
        picture = shown(screen)
    for words in (
        "Ostinato demo",
        "cycle 2",
        "experiment",
        "30/120",
        "burn-in: 12 of 60 persons",
        "v-01234567",
        "first release",
        "cycle 1: promoted v-1 [-2.0%, +8.0%]",
        "p7",
        "fix add  →  Fixed it.",
        "1 sessions",
    ):
        assert words in picture
    assert "experiment" in file.getvalue(), "the live screen itself was drawn"
    assert file.getvalue().rstrip().endswith("\x1b[2K"), "and is taken away at the end"


def test_only_the_latest_sessions_stay() -> None:
    """The screen does not grow."""
    with Screen(terminal()[0], "Ostinato demo") as screen:
        for number in range(50):
            screen.session(SESSION | {"person": f"p{number}"})
        picture = shown(screen)
    assert "p49" in picture
    assert "p41 " not in picture
    assert "50 sessions" in picture


def test_elsewhere_there_are_plain_lines() -> None:
    """The first session at once, every sentence, a phase now and then; no control characters."""
    held, file = pipe()
    with Screen(held, "Ostinato demo") as screen:
        screen.phase(1, "collect", 3, 900, "0 bench tasks")
        screen.phase(1, "collect", 4, 900)
        screen.session(SESSION)
        screen.session(SESSION)
        screen.said("cycle 1: gate passed [v-1] [/x] by +3.0% [-2.0%, +8.0%]")
    lines = [line.partition(":")[2][3:] for line in file.getvalue().splitlines()]
    assert lines[0] == "cycle 1: collect 3/900, 0 bench tasks, 0 sessions"
    assert lines[-2:] == [
        "first live session: p7 kept fix add → Fixed it.",
        "cycle 1: gate passed [v-1] [/x] by +3.0% [-2.0%, +8.0%]",
    ]


def test_a_stream_is_followed_to_its_end() -> None:
    """Sessions, starts that failed, the end, and a word of somebody else in between."""
    held, file = pipe()
    told: list[dict[str, Any]] = [
        SESSION,
        {"event": "failed", "error": "The server is gone."},
        SESSION | {"reply": ""},
        {"event": "done", "sessions": 2},
    ]
    lines = [json.dumps(line) for line in told]
    screen = Screen(held, "Ostinato demo")
    screen.follow(StringIO("\n".join([lines[0], "a library's word", *lines[1:]]) + "\n"))
    for thread in threading.enumerate():
        if thread.name == "sessions":
            thread.join(30)
    assert "first live session" in file.getvalue()
    assert "a session could not begin: The server is gone." in file.getvalue()
    assert "a library's word" in file.getvalue()
    picture = shown(screen)
    assert "2 sessions" in picture
    assert "(no reply)" in picture


def test_a_stream_that_is_closed_meanwhile_is_no_fault() -> None:
    """As happens when the process is ended."""
    closed = StringIO()
    closed.close()
    screen = Screen(pipe()[0], "Ostinato demo")
    screen._follow(closed)


def test_words_of_a_model_do_not_steer_the_terminal() -> None:
    """Escapes, newlines and markup are shown, not obeyed."""
    assert plainly("a\x1b[2Jb\r\nc\x07  d\u200e") == "a [2Jb c d"
    screen = Screen(terminal()[0], "Ostinato demo")
    screen.session(SESSION | {"request": "[bold]x[/bold]\n\x1b]0;title\x07", "reply": "\x1b[31mred"})
    picture = shown(screen)
    assert "\x1b" not in picture
    assert "[bold]x[/bold] ]0;title" in picture


@pytest.mark.parametrize(("width", "mean", "parent"), [(80, "46%", False), (160, "45.7% [40.1%, 51.2%]", True)])
def test_the_table_fits_its_terminal(width: int, mean: str, parent: bool) -> None:
    """Whole in 80 columns too: then intervals stand below their means, and parents are left out."""
    held, file = terminal(width)
    held.print(version_table(ROWS))
    text = file.getvalue()
    assert "…" not in text
    assert mean in text
    assert ("parent" in text) == parent
    for word in ("v-01234567", "v-fedcba98", "first release", "blocked", "200"):
        assert word in text


def test_a_table_without_rows_is_its_headings() -> None:
    """Before the first version there is nothing to say."""
    held, file = pipe()
    held.print(version_table([]))
    assert file.getvalue().split()[:2] == ["version", "parent"]


def test_the_console_is_wide_where_there_is_no_terminal() -> None:
    """Under pytest standard output is a file."""
    assert console().width == 160
