"""Is it said plainly why sandboxes do not work?"""

import errno
import os
import struct
import tempfile
from pathlib import Path

import pytest

from ostinato.envs import bubblewrap, explain, probe_isolation, seccomp
from ostinato.envs.probe import namespace_hint


async def test_probe_runs_a_sandbox() -> None:
    """On this machine isolation works, and the probe leaves nothing behind."""
    found = await probe_isolation()
    assert (found.works, found.problem) == (True, "")


def test_without_bubblewrap_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """No bwrap on the path: the message names it and how to install it."""
    monkeypatch.setenv("PATH", "/nowhere")
    assert explain() == (
        "bubblewrap (bwrap) is not installed, and no sandbox starts without it. "
        "Install it with `apt-get install bubblewrap`."
    )


def test_a_bubblewrap_that_fails_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    """What bwrap says when it cannot start reaches the reader."""
    # Not tmp_path: its parents are closed to the user that sandboxes run as.
    with tempfile.TemporaryDirectory() as folder:
        fake = Path(folder, "bwrap")
        fake.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
        fake.chmod(0o755)
        Path(folder).chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        assert "bwrap: No permissions to create new namespace" in explain()


def test_forbidden_namespaces_name_the_switch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A kernel setting that forbids user namespaces is named with the command that allows them."""
    switch = tmp_path / "apparmor_restrict_unprivileged_userns"
    switch.write_text("1\n")
    monkeypatch.setattr("ostinato.envs.probe._SWITCHES", ((str(switch), "1", "sysctl -w it=0"),))
    assert f"{switch} forbids user namespaces" in namespace_hint(errno.EPERM)
    assert "sysctl -w it=0" in namespace_hint(errno.EPERM)
    switch.write_text("0\n")
    assert "Docker" in namespace_hint(errno.EPERM)
    assert "max_user_namespaces" in namespace_hint(errno.ENOSPC)


def judge(code: bytes, arch: int, number: int) -> int:
    """Run a filter as the kernel would; the value that it returns."""
    lines = list(struct.iter_unpack("=HBBI", code))
    at, held = 0, 0
    while True:
        kind, yes, no, value = lines[at]
        at += 1
        if kind == 0x06:
            return int(value)
        if kind == 0x20:
            held = {0: number, 4: arch}[value]
        else:
            at += yes if (held == value if kind == 0x15 else held >= value) else no


@pytest.mark.parametrize(("machine", "arch", "column"), [("x86_64", 0xC000003E, 0), ("aarch64", 0xC00000B7, 1)])
def test_the_filter_refuses_its_list_and_nothing_else(machine: str, arch: int, column: int) -> None:
    """Every listed call fails with EPERM, every other passes, and other architectures' calls all fail."""
    code = seccomp.program(machine)
    listed = {numbers[column] for numbers in seccomp._NUMBERS.values()}
    for number in range(500):
        assert judge(code, arch, number) == (0x00050001 if number in listed else 0x7FFF0000)
    assert judge(code, arch, 0x40000000 + 1) == 0x00050001
    assert judge(code, 0x40000003, 1) == 0x00050001


def test_unknown_machines_have_no_filter() -> None:
    """A machine without known numbers is said so, not given another's."""
    with pytest.raises(KeyError):
        seccomp.program("riscv64")


def test_the_stage_is_the_spawners() -> None:
    """The two files that name the folder, one of which cannot import the other, agree."""
    spawner = Path(bubblewrap.__file__).with_name("spawner.py").read_text()
    assert f'STAGE = "{bubblewrap.STAGE}"' in spawner
