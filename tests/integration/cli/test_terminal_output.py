"""What a command writes on a node, on a terminal: escape sequences only with --raw."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys

import pytest

SEQUENCE = b"\x1b]0;owned\x07"


def on_terminal(*options: str) -> bytes:
    """Return what a terminal receives of a command that writes an escape sequence."""
    master, slave = pty.openpty()
    command = ["sh", "-c", r"printf 'a\033]0;owned\007b\n'"]
    words = [sys.executable, "-m", "sapwood", "exec", *options, "--", *command]
    try:
        with subprocess.Popen(words, stdout=slave, stderr=subprocess.PIPE) as process:
            os.close(slave)
            found = b""
            with contextlib.suppress(OSError):  # the terminal has no other side any more
                while data := os.read(master, 4096):
                    found += data
            assert process.wait(60) == 0
    finally:
        os.close(master)
    return found


@pytest.mark.parametrize("label", ["--label", "--no-label"])
def test_escape_sequences_do_not_reach_a_terminal(label: str) -> None:
    found = on_terminal(label)
    assert b"a^[]0;owned^Gb" in found
    assert b"\x1b" not in found


def test_raw_output_is_not_changed() -> None:
    assert b"a" + SEQUENCE + b"b" in on_terminal("--raw")
