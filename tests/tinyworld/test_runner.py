"""The in-process test runner says what the real interpreter says."""

import subprocess
import sys
from pathlib import Path

import pytest

from ostinato.tinyworld import SPLITS, generate_task
from ostinato.tinyworld.runner import RUN_TESTS, StepLimitError, compiled, run_tests, step_limit


def really_run(folder: Path, files: dict[str, str], *flags: str) -> str:
    """What the test command prints in a real folder."""
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    command = [sys.executable, *flags, "run_tests.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == (0 if done.stdout.endswith("passed\n") else 1)
    return done.stdout


def test_same_text_as_the_real_interpreter(tmp_path: Path) -> None:
    """Start states, with the hidden tests and without, print the same in memory and in a folder."""
    for split in SPLITS:
        for number in range(10):
            task = generate_task(split, number)
            files = task.files if number % 2 else {**task.files, **task.tests}
            folder = tmp_path / task.task_id
            folder.mkdir()
            assert run_tests(files) == really_run(folder, files, "-S", "-B"), task


@pytest.mark.parametrize(
    "module",
    [
        "def f(x):\n    return y\n",
        "def f(x)\n    return x\n",
        "def f(x):\nreturn x\n",
        "def g(x):\n    return x\n",
        "import nothing\n",
        "from os import nothing_such\n",
        "import test_m\n",
        "def f(x):\n    print('seen', x, sep='-')\n    return 2\n",
        "def f(x):\n    assert x == 0\n",
        "def f(x):\n    return [][x]\n",
        "def f(x):\n    return {}['k']\n",
        "def f(x):\n    raise SystemExit(3)\n",
        "def f(x):\n    return x + ''\n",
        "def f(x, y):\n    return x\n",
        "from . import m\n",
        "def f(x):\n    return open('none.txt').read()\n",
        "from m import f\n",
    ],
)
def test_same_text_for_odd_modules(tmp_path: Path, module: str) -> None:
    """Errors of every sort read the same in memory and in a folder."""
    files = {"m.py": module, "test_m.py": "from m import f\nassert f(1) == 1\n", "run_tests.py": RUN_TESTS}
    assert run_tests(files) == really_run(tmp_path, files, "-I", "-S", "-B")


def test_endless_and_growing_code_is_stopped() -> None:
    """Loops without end, lists that double, and huge numbers end with the time limit."""
    test = "from m import f\nassert f([1]) == 1\n"
    for body in (
        "    while True:\n        x = 1\n",
        "    for y in x:\n        x.append(y)\n",
        "    for y in x:\n        x.extend(x)\n",
        "    return 9 ** 9 ** 9\n",
        "    return 'a' * 999999999999\n",
        "    return sum(range(999999))\n",
        "    n = 3\n    for y in range(99):\n        n = n * n\n    return n\n",
    ):
        assert run_tests({"m.py": f"def f(x):\n{body}", "test_m.py": test}) == "failed: time limit\n", body


def test_nothing_is_left_behind() -> None:
    """A run leaves no module, no trace function and no output behind."""
    before = set(sys.modules), sys.gettrace()
    task = generate_task("seed", 1)
    run_tests({**task.files, **task.reference})
    assert (set(sys.modules), sys.gettrace()) == before


def test_step_limit_is_for_one_run() -> None:
    """The limit counts lines, and ends with its block."""

    def count(size: int) -> int:
        total = 0
        for each in range(size):
            total += each
        return total

    with pytest.raises(StepLimitError), step_limit(50):
        count(1000)
    with step_limit(50):
        assert count(5) == 10
    assert count(1000) == 499500


def test_small_powers_are_allowed() -> None:
    """A constant small power compiles."""
    compiled("x = 3 ** 2\n", "m.py")
