"""The command line: help that is light, and one clear error for what it cannot do."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import ostinato as package
from ostinato.records import FeedbackEvent, Rating, Version
from ostinato.services import Claim
from ostinato.store import Ledger

Ostinato = Callable[..., subprocess.CompletedProcess[str]]
HELP = """
import contextlib, io, json, sys
from ostinato.cli import app

def walk(app, before):
    for name in app:
        if not name.startswith("-"):
            yield [*before, name]
            yield from walk(app[name], [*before, name])

pages = {}
for words in [[], *walk(app, [])]:
    page = io.StringIO()
    with contextlib.redirect_stdout(page):
        app([*words, "--help"], result_action="return_value")
    pages[" ".join(words)] = page.getvalue()
heavy = sorted({"torch", "transformers", "matplotlib", "scipy", "aiohttp"} & set(sys.modules))
print(json.dumps({"pages": pages, "heavy": heavy}))
"""
COMMANDS = {
    "demo",
    "serve",
    "status",
    "report",
    "doctor",
    "engine",
    "gateway",
    "envs",
    "evaluate",
    "train",
    "train rl",
    "incidents",
    "watch",
    "proposed",
    "rewards",
    "rewards explain",
    "rewards recompute",
    "tinyworld",
    "tinyworld hack",
    "tinyworld persons",
    "tinyworld train-seed",
}


def refused(result: subprocess.CompletedProcess[str]) -> str:
    """The error of a command that failed as it should: status 1, one or two lines, no traceback."""
    assert result.returncode == 1, result.stderr
    assert result.stdout == ""
    assert result.stderr.startswith("ostinato: ")
    assert len(result.stderr.strip().splitlines()) <= 2, result.stderr
    return result.stderr


def test_every_command_has_help_that_loads_nothing_heavy() -> None:
    """A first sentence, and words for each option that is not plain; no torch, no matplotlib, no HTTP client."""
    done = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True, check=True)
    told = json.loads(done.stdout)
    assert told["heavy"] == []
    pages: dict[str, str] = told["pages"]
    assert set(pages) == COMMANDS | {""}
    assert all("Usage: " in page for page in pages.values())
    assert "too small to prove anything" in " ".join(pages["demo"].replace("│", " ").split())
    assert "becomes the first release" in " ".join(pages["serve"].replace("│", " ").split())


def test_help_and_version_as_typed(ostinato: Ostinato) -> None:
    """Exit status 0, and nothing on standard error."""
    shown = ostinato("--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "Usage: ostinato COMMAND" in shown.stdout
    assert ostinato("--version").stdout == f"{package.__version__}\n"


def test_doctor_names_what_is_there(ostinato: Ostinato) -> None:
    """Python, SQLite, bubblewrap with a sandbox that really ran, torch; and a next step for whatever is missing."""
    shown = ostinato("doctor")
    assert f"ostinato {package.__version__}" in shown.stdout
    for words in ("SQLite 3.", "bubblewrap: /", "sandboxes: Sandboxes work.", "torch: 2", "seed model: ", "127.0.0.1"):
        assert words in shown.stdout
    missing = [line for line in shown.stdout.splitlines() if "missing" in line]
    assert all("Next: " in line for line in missing)
    assert shown.returncode == (1 if missing else 0)


def test_status_needs_a_ledger(tmp_path: Path, ostinato: Ostinato) -> None:
    """The error names the folder and how to get a ledger; nothing is made."""
    error = refused(ostinato("status", "--data", tmp_path / "none"))
    assert f"There is no ledger in {tmp_path / 'none'}" in error
    assert "ostinato demo" in error
    assert not (tmp_path / "none").exists()


def test_incidents_are_shown_and_closed_with_a_reason(tmp_path: Path, ostinato: Ostinato) -> None:
    """Open ones with the sessions that show them; a number that is not open, or no reason, is an error."""
    with Ledger.open(tmp_path) as ledger:
        ledger.put_incident("monitor.asked", "asks more", 1.0, version="v-1", rule="r", sessions=("s-7",))
    shown = ostinato("incidents", "--data", tmp_path).stdout
    assert shown.startswith("1 monitor.asked v-1 ")
    assert "asks more" in shown
    assert "see: ostinato rewards explain s-7" in shown
    assert "--close needs a reason" in refused(ostinato("incidents", "--data", tmp_path, "--close", "1"))
    assert ostinato("incidents", "--data", tmp_path, "--close", "1", "--why", "fine").stdout == "No incident is open.\n"
    assert "closed: fine" in ostinato("incidents", "--data", tmp_path, "--everything").stdout
    assert "no open incident 1" in refused(ostinato("incidents", "--data", tmp_path, "--close", "1", "--why", "again"))


def test_an_unknown_hack_is_refused_before_anything_starts(tmp_path: Path, ostinato: Ostinato) -> None:
    """The error names those that there are."""
    error = refused(ostinato("tinyworld", "hack", "flattery", "--data", tmp_path / "none"))
    assert "There are: questions, broken-calls" in error
    assert not (tmp_path / "none").exists()


def test_status_and_report_show_what_the_ledger_holds(tmp_path: Path, ostinato: Ostinato) -> None:
    """Also while nobody has used anything yet."""
    with Ledger.open(tmp_path) as ledger:
        ledger.put_version(Version("v-0123456789abcdef", None, "anchor", 1.0, 1000, 2000, 1.0, "f"))
        ledger.put_release("v-0123456789abcdef", 1.0)
        ledger.add_feedback(FeedbackEvent("e1", "r-not-stored", 1.0, Rating(1)), None)
    shown = ostinato("status", "--data", tmp_path)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "v-01234567" in shown.stdout
    assert "first release" in shown.stdout
    assert "0 sessions = 0 open (balanced)" in shown.stdout
    assert "feedback whose response is not stored yet: 1" in shown.stdout
    written = ostinato("report", "--data", tmp_path)
    assert (written.returncode, written.stderr) == (0, "")
    assert Path(written.stdout.strip()) == tmp_path / "report.html"
    assert "v-0123456789abcdef" in (tmp_path / "report.html").read_text()


def test_a_newer_data_folder_is_refused(tmp_path: Path, ostinato: Ostinato) -> None:
    """Before a model is looked at."""
    Ledger.open(tmp_path).close()
    db = sqlite3.connect(tmp_path / "ledger.sqlite")
    db.execute("PRAGMA user_version = 999")
    db.close()
    error = refused(ostinato("serve", "--data", tmp_path, "--port", "0"))
    assert "schema 999" in error
    assert "pip install --upgrade ostinato" in error


def test_a_bad_settings_file_stops_the_demo(tmp_path: Path, ostinato: Ostinato) -> None:
    """By the key's name, before anything is made."""
    settings = tmp_path / "settings.toml"
    settings.write_text("cyles = 3\n")
    error = refused(ostinato("demo", "--settings", settings, "--data", tmp_path / "data"))
    assert "cyles" in error
    assert str(settings) in error
    assert "docs/settings.md" in error
    assert not (tmp_path / "data").exists()


def test_a_folder_in_use_is_not_moved_aside(tmp_path: Path, ostinato: Ostinato) -> None:
    """`demo --fresh` while another process serves from it."""
    folder = tmp_path / "data"
    claim = Claim(folder)
    error = refused(ostinato("demo", "--fresh", "--data", folder))
    claim.release()
    assert f"{folder} is in use by process {os.getpid()}" in error
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("engine", "--slot", "production=v-1"), "the slots are release, candidate, evaluation"),
        (("engine", "--slot", "release"), "--slot release= is not SLOT=VERSION"),
        (("gateway", "--engine", "http://127.0.0.1:9"), "has no release yet"),
        (
            ("evaluate", "--candidate=a", "--release=b", "--gateway=g", "--envs=e", "--gate={"),
            "--gate '{': Input data was truncated",
        ),
    ],
)
def test_a_bad_argument_is_named(tmp_path: Path, ostinato: Ostinato, arguments: tuple[str, ...], words: str) -> None:
    """With an example or the next command."""
    Ledger.open(tmp_path).close()
    error = refused(ostinato(*arguments, "--data", tmp_path))
    assert words in error
    assert len(error.strip().splitlines()) == 2


def test_an_unknown_option_is_a_usage_error(ostinato: Ostinato) -> None:
    """Exit status 2, with the nearest option there is."""
    result = ostinato("serve", "--modle", "x")
    assert result.returncode == 2
    assert "--model" in result.stderr + result.stdout


def test_a_closed_pipe_is_no_error_to_read(tmp_path: Path) -> None:
    """`ostinato status | head -0` prints no traceback."""
    Ledger.open(tmp_path).close()
    command = [sys.executable, "-m", "ostinato", "status", "--data", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""


def test_ctrl_c_while_a_command_works_prints_no_traceback(tmp_path: Path) -> None:
    """Exit status 130, as shells expect. (A shell lets what it starts in the background ignore the signal.)"""
    script = (
        "import ostinato.settings, signal, time\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def slow(folder):\n    print('at work', flush=True)\n    time.sleep(300)\n"
        "ostinato.settings.existing_ledger = slow\n"
        "from ostinato.cli import main\n"
        "main()\n"
    )
    command = [sys.executable, "-c", script, "report", "--data", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "at work\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr.read() == ""
