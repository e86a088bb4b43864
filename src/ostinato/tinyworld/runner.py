"""Runs a repository's tests inside this process, with the very text that `run_tests.py` prints in a real folder.

For supervised data and in-memory evaluation, where a Python start per run is too slow. The code runs with a reduced set
of builtins, without files beyond the repository's own texts, and with a limit on steps, so that a wrong edit neither
hangs nor harms. It is no security boundary: live sessions run in sandboxes.
"""

import ast
import builtins
import io
import json
import math
import re
import string
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from importlib.machinery import ModuleSpec
from types import CodeType, FrameType, ModuleType
from typing import Any

RUN_TESTS = """\
import os
import sys

ROOT = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, ROOT)


def reason(error, lines):
    if isinstance(error, AssertionError) and error.__traceback__.tb_next:
        return lines[error.__traceback__.tb_next.tb_lineno - 1].strip()
    text = str(error).split(" (")[0] if isinstance(error, ImportError) else str(error)
    return f"{type(error).__name__}: {text}"


def main():
    for name in sorted(os.listdir(ROOT)):
        if name.startswith("test_") and name.endswith(".py"):
            with open(os.path.join(ROOT, name), encoding="utf-8") as file:
                text = file.read()
            try:
                exec(compile(text, name, "exec"), {"__name__": name[:-3]})
            except BaseException as error:
                print("failed: " + reason(error, text.splitlines()))
                return 1
    print("passed")
    return 0


sys.exit(main())
"""
"""The script `run_tests.py` of every repository. It needs the standard library's `os` and `sys` alone."""

STEP_LIMIT = 5_000
SIZE_LIMIT = 10_000
"""Elements of a range, list, text or dictionary, and bits of a number."""

_LIBRARY: dict[str, ModuleType] = {
    module.__name__: module
    for module in (
        json,
        math,
        re,
        string,
        ModuleType("os"),
        ModuleType("sys"),
        ModuleType("time"),
        ModuleType("random"),
    )
}
_HUGE = re.compile(r"\d{7}")
_REMOVED = {"open", "input", "exec", "eval", "compile", "breakpoint", "__import__", "exit", "quit", "help"}
_BUILTINS = {name: value for name, value in vars(builtins).items() if name not in _REMOVED}


class StepLimitError(BaseException):
    """The code ran for too many steps or grew too large; a real run would have met a limit of its sandbox."""


@lru_cache(maxsize=8192)
def compiled(text: str, path: str) -> CodeType:
    """The code of one file. Raises SyntaxError, and StepLimitError for huge numbers and powers without bound."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if _HUGE.search(text):
            raise StepLimitError(path)
        if "**" in text or "<<" in text:
            for node in ast.walk(ast.parse(text, path)):
                if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Pow | ast.LShift):
                    power = node.right if isinstance(node, ast.BinOp) else node.value
                    if not (isinstance(power, ast.Constant) and power.value in range(9)):
                        raise StepLimitError(path)
        return compile(text, path, "exec", dont_inherit=True)


def _is_large(value: object) -> bool:
    if type(value) is int:
        return value.bit_length() > SIZE_LIMIT
    return isinstance(value, list | str | dict) and len(value) > SIZE_LIMIT


@contextmanager
def step_limit(limit: int = STEP_LIMIT) -> Iterator[None]:
    """Within it, Python code of this thread raises StepLimitError after `limit` lines, or once a local name holds
    more than SIZE_LIMIT (looked at every second line, since a list can double with each). Puts an earlier trace back.
    Python ends a trace that raised, so one `with` guards one run."""
    left = limit

    def trace(frame: FrameType, _event: str, _arg: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0 or (left % 2 == 0 and any(map(_is_large, frame.f_locals.values()))):
            raise StepLimitError
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def _bounded_range(*args: Any) -> range:
    made = range(*args)
    if len(made) > SIZE_LIMIT:
        raise StepLimitError
    return made


class _Space:
    """The modules of one run: loads a repository's files on import, and keeps what they print."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self.files = files
        self.loaded: dict[str, ModuleType] = {}
        self.printed = io.StringIO()
        self.builtins = {
            **_BUILTINS,
            "__import__": self.load,
            "open": self.open,
            "print": self.print,
            "range": _bounded_range,
        }

    def print(self, *values: Any, sep: str = " ", end: str = "\n", **_: Any) -> None:
        self.printed.write(sep.join(map(str, values)) + end)

    def open(self, path: str, *_: Any, **__: Any) -> io.StringIO:
        if path not in self.files:
            raise FileNotFoundError(2, "No such file or directory", path)
        return io.StringIO(self.files[path])

    def load(
        self, name: str, _globals: Any = None, _locals: Any = None, wanted: Any = (), level: int = 0
    ) -> ModuleType:
        """What the import statement calls: the top package, or the module itself where names are `wanted` of it."""
        if level:
            raise ImportError("attempted relative import with no known parent package")
        if name in _LIBRARY:
            return _LIBRARY[name]
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            module = self._module(".".join(parts[:end]))
        for item in wanted or ():
            if not hasattr(module, item) and f"{name.replace('.', '/')}/{item}.py" in self.files:
                self._module(f"{name}.{item}")
        return module if wanted else self.loaded[parts[0]]

    def _module(self, name: str) -> ModuleType:
        if name in self.loaded:
            return self.loaded[name]
        path = name.replace(".", "/") + ".py"
        is_folder = any(other.startswith(name.replace(".", "/") + "/") for other in self.files)
        if path not in self.files and not is_folder:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        module = ModuleType(name)
        self.loaded[name] = module
        if path in self.files:
            self._fill(module, path)
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(self.loaded[parent], last, module)
        return module

    def _fill(self, module: ModuleType, path: str) -> None:
        spec = ModuleSpec(module.__name__, None)
        module.__spec__ = spec
        vars(spec)["_initializing"] = True  # so that a circular import says what it says in a real run
        vars(module).update(__builtins__=self.builtins, __file__=path)
        try:
            exec(compiled(self.files[path], path), vars(module))
        except BaseException:
            del self.loaded[module.__name__]
            raise
        vars(spec)["_initializing"] = False


def _reason(error: BaseException, lines: list[str], path: str) -> str:
    if isinstance(error, StepLimitError):
        return "time limit"
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != path:
        trace = trace.tb_next
    if isinstance(error, AssertionError) and trace is not None:
        return lines[trace.tb_lineno - 1].strip()
    text = str(error).split(" (")[0] if isinstance(error, ImportError) else str(error)
    return f"{type(error).__name__}: {text}"


def run_tests(files: Mapping[str, str]) -> str:
    """What `python3 -S -B run_tests.py` prints in a folder with `files` (path -> text), without a change to files.

    A run past the step limit ends with `failed: time limit`. A changed `run_tests.py` is not obeyed."""
    space = _Space(files)
    for path in sorted(path for path in files if path.startswith("test_") and path.endswith(".py") and "/" not in path):
        try:
            with step_limit():
                exec(compiled(files[path], path), {"__name__": path[:-3], "__builtins__": space.builtins})
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return f"{space.printed.getvalue()}failed: {_reason(error, files[path].splitlines(), path)}\n"
    return f"{space.printed.getvalue()}passed\n"
