"""One line on stderr about the work before a command can show progress.

Importing what runs programs takes half a second, more on a busy machine. So this is said before
anything large is imported, and this module imports nothing large itself.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final

SILENCING: Final = {"--quiet", "-q", "--json", "--help", "-h", "--dry-run"}
"""Options of commands that show no progress."""

WAIT_SHOWN = 2.0
"""Seconds after which a wait is shown."""

_LINE, _TERMINAL = "lines", "terminal"


class _Line:
    """The text that is shown now."""

    def __init__(self) -> None:
        self.mode = ""
        self.shown = False
        self.quiet = False
        self.waits_for = ""


_line: Final = _Line()


def begin(arguments: Sequence[str]) -> None:
    """Say that the command starts, if it is one that runs a program and shows how that goes.

    Args:
        arguments: Of the command line, without the program's own name.
    """
    runs = list(arguments[:1]) in (["run"], ["exec"]) or (
        list(arguments[:2]) in (["lizard", "run"], ["stage", "environment"])
    )
    _line.mode, _line.waits_for = "", ""
    _line.quiet = bool({"--quiet", "-q"} & set(arguments))
    if not runs or SILENCING & set(arguments):
        return
    if {"--verbose", "-v"} & set(arguments):
        _line.mode = _LINE
    elif sys.stderr.isatty():
        _line.mode = _TERMINAL
    say("starting")


def say(what: str) -> None:
    """Show the present work: on a terminal in place of the former text, else as a line."""
    if _line.mode == _LINE:
        sys.stderr.write(f"sapwood: {what}\n")
    elif _line.mode == _TERMINAL:
        text = f"sapwood: {what} …"
        sys.stderr.write(f"\r\x1b[K{text[: _columns() - 1]}")
        _line.shown = True
    sys.stderr.flush()


def wait(what: str, seconds: float) -> None:
    """Show what is awaited, from two seconds on; once without a terminal."""
    if seconds < WAIT_SHOWN or _line.quiet:
        return
    if _line.mode == _TERMINAL:
        say(f"{what} ({seconds:.0f} s)")
    elif what != _line.waits_for:
        sys.stderr.write(f"sapwood: {what}\n")
        sys.stderr.flush()
    _line.waits_for = what


def clear() -> None:
    """Remove the line, before anything else is written."""
    if _line.shown:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
        _line.shown = False


def _columns() -> int:
    try:
        return max(2, os.get_terminal_size(sys.stderr.fileno()).columns)
    except (OSError, ValueError):
        return 80
