"""All launchers against the conformance suite, and the suite against bad ones."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from sapwood.contexts.launchers.base import Launcher
from sapwood.contexts.launchers.local import LocalLauncher
from sapwood.contexts.launchers.ssh import SshLauncher
from sapwood.testing.launchers import (
    CHECKS,
    Check,
    connects_standard_input,
    explains_an_end,
    is_deaf_to_the_terminal,
    keeps_output_and_errors_apart,
    names_machines_once,
    returns_the_exit_code,
    runs_a_command_of_the_shell,
)

FAKE_SSH = """#!/bin/sh
# What sshd does with a command, without a network: the user's shell runs it.
while [ "$1" != "--" ]; do shift; done
shift 2
exec /bin/sh -c "$*"
"""


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Launcher]:
    def launcher(kind: str) -> Launcher:
        if kind == "local":
            return LocalLauncher(3)
        program = tmp_path / "ssh"
        program.write_text(FAKE_SSH)
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        return SshLauncher(["n[1-2]", "user@n3"])

    return launcher


@pytest.mark.row("D-5")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("kind", ["local", "ssh"])
def test_conformance(check: Check, kind: str, make: Callable[[str], Launcher]) -> None:
    with closing(make(kind)) as launcher:
        check(launcher)


class Mixing(LocalLauncher):
    """Mixes errors with output."""

    def start(self, host: str, command: str) -> subprocess.Popen[bytes]:
        return super().start(host, f"{{ {command}; }} 2>&1")


class Expanding(LocalLauncher):
    """Lets one more shell read the command."""

    def start(self, host: str, command: str) -> subprocess.Popen[bytes]:
        return super().start(host, f'eval "{command}"')


class Deaf(LocalLauncher):
    """Connects no input."""

    def start(self, host: str, command: str) -> subprocess.Popen[bytes]:
        return super().start(host, f"({command}) </dev/null")


class Silent(LocalLauncher):
    """Knows no cause, and no exit code."""

    def start(self, host: str, command: str) -> subprocess.Popen[bytes]:
        return super().start(host, f"({command}); exit 0")

    def explain(self, host: str, status: int, said: str) -> str:
        del host, status
        return said


class Twice(LocalLauncher):
    """Names a machine twice."""

    def __init__(self) -> None:
        super().__init__(1)
        self.hosts = ("n1", "n1")


class Near(LocalLauncher):
    """Starts what gets the signals of the terminal."""

    def start(self, host: str, command: str) -> subprocess.Popen[bytes]:
        del host
        pipe = subprocess.PIPE
        return subprocess.Popen(["/bin/sh", "-c", command], stdin=pipe, stdout=pipe, stderr=pipe)


@pytest.mark.parametrize(
    ("launcher", "check"),
    [
        (Mixing(1), keeps_output_and_errors_apart),
        (Expanding(1), runs_a_command_of_the_shell),
        (Deaf(1), connects_standard_input),
        (Silent(1), returns_the_exit_code),
        (Silent(1), explains_an_end),
        (Twice(), names_machines_once),
        (Near(1), is_deaf_to_the_terminal),
    ],
    ids=lambda one: getattr(one, "__name__", type(one).__name__),
)
def test_the_checks_find_bad_launchers(launcher: Launcher, check: Check) -> None:
    with pytest.raises(AssertionError):
        check(launcher)
