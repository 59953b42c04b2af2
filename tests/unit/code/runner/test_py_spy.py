"""py-spy as a command: its answer, and whatever keeps it from giving one."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from sapwood.code.runner import py_spy


def answer(command: Path) -> tuple[bytes, str]:
    """Return what one dump by a command has come to."""
    loop = asyncio.new_event_loop()
    found: asyncio.Future[tuple[bytes, str]] = loop.create_future()
    try:
        loop.call_soon(
            lambda: py_spy.PySpy(str(command), 7, loop, lambda *got: found.set_result(got))
        )
        return loop.run_until_complete(asyncio.wait_for(found, 30.0))
    finally:
        loop.close()


@pytest.fixture
def command(tmp_path: Path) -> Path:
    """A file that may be executed."""
    made = tmp_path / "py-spy"
    made.touch()
    made.chmod(0o700)
    return made


def test_the_answer_is_what_it_prints(command: Path) -> None:
    command.write_text('#!/bin/sh\necho "$@"\n')
    assert answer(command) == (b"dump --native --json --pid 7\n", "")


def test_an_error_is_its_first_line(command: Path) -> None:
    command.write_text("#!/bin/sh\necho 'Error: no Python' >&2\necho more >&2\nexit 1\n")
    assert answer(command) == (b"", "py-spy failed: no Python")
    command.write_text("#!/bin/sh\necho 'Error: no name\n0: Permission denied' >&2\nexit 1\n")
    assert answer(command) == (b"", "py-spy may not read the process (ptrace is not permitted)")
    command.write_text("#!/bin/sh\nexit 3\n")
    assert answer(command) == (b"", "py-spy failed: it ended with status 3")


def test_it_may_not_take_for_ever(command: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(py_spy, "PATIENCE", 0.1)
    command.write_text("#!/bin/sh\nexec sleep 1000\n")
    assert answer(command) == (b"", "py-spy took longer than 0.1 s")


def test_a_command_that_cannot_be_started_is_an_answer(tmp_path: Path) -> None:
    data, problem = answer(tmp_path / "none")
    assert data == b""
    assert "cannot be started: No such file" in problem


def test_it_is_found_beside_the_interpreter_or_on_the_path(
    command: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "other"))
    assert py_spy.installed() == ""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert py_spy.installed() == str(command)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert py_spy.installed() == str(command)
