"""Running a Python script in a fork of the guest, as a new interpreter would run it. Standard library alone: it is
shipped into the sandbox beside the guest.

Differs from a new interpreter in this: `sys.flags` and `sys.orig_argv` are the guest's, string hashes have the same
seed in every run of one sandbox, and `__del__` of objects in reference cycles is not called at the end.
"""

# pathlib would be half of the cost of a guest's start.
# ruff: noqa: PTH113, PTH120, PTH123
import builtins
import os
import sys


def script_at(argv: list[str], folder: str) -> int:
    """Where the script stands, if a command is `python3 -S [-B] SCRIPT.py ...`: what `run_script` can do. Else 0."""
    at = 1
    while at < len(argv) and argv[at] in ("-S", "-B"):
        at += 1
    fits = argv[0] in ("python3", "python") and "-S" in argv[1:at] and at < len(argv) and argv[at].endswith(".py")
    return at if fits and os.path.isfile(f"{folder}/{argv[at]}") else 0


def run_script(path: str, argv: list[str], pristine: frozenset[str], hidden: str) -> None:
    """In the forked child: be `python3 -S -B PATH`, without the start of a new interpreter, which costs several times
    what a small test does. The process is new and its memory its own; modules that a bare interpreter would not hold
    are forgotten, so that the script's own of the same name are found, and `hidden` leaves the path. It does not
    return."""
    for name in sys.modules.keys() - pristine:
        del sys.modules[name]
    main = type(sys)("__main__")
    main.__dict__.update(__file__=path, __builtins__=builtins)
    sys.modules["__main__"] = main
    sys.argv = argv
    sys.path[:] = [os.path.dirname(os.path.realpath(path)), *(entry for entry in sys.path if entry != hidden)]
    code = 0
    try:
        with open(path, "rb") as file:
            program = compile(file.read(), path, "exec", dont_inherit=True)
        exec(program, main.__dict__)
    except SystemExit as leave:
        code = exit_code_of(leave.code)
    except BaseException as error:
        code = 1
        # Our own frame is not part of what happened.
        trace = error.__traceback__.tb_next if error.__traceback__ else None
        sys.excepthook(type(error), error.with_traceback(trace), trace)
    finish(code, pristine)


def exit_code_of(code: object) -> int:
    """The exit code that an interpreter gives to `SystemExit(code)`."""
    if code is None or isinstance(code, int):
        return (code or 0) & 0xFF
    sys.stderr.write(f"{code}\n")
    return 1


def finish(code: int, pristine: frozenset[str]) -> None:
    """End the process as an interpreter does: wait for threads, call what was registered, let go of the script's
    modules (so that open files are flushed), flush. Taking the interpreter itself apart would cost three times as much
    as all the rest of a small test. What is given up: `__del__` of objects in reference cycles."""
    import atexit

    if (threading := sys.modules.get("threading")) is not None:
        threading._shutdown()
    atexit._run_exitfuncs()
    for name in sys.modules.keys() - pristine | {"__main__"}:
        if getattr(sys.modules[name], "__file__", None) or name == "__main__":
            sys.modules[name].__dict__.clear()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)
