"""Processes in the background: what the command that starts them hears while it waits."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from sapwood.contexts import background
from sapwood.core.errors import ResourceError

SLOW = """
import os, sys
with open(sys.argv[1], "rb") as fifo:
    fifo.read()
os.write(int(sys.argv[-1]), b'{"pid": %d}\\n' % os.getpid())
"""
"""Is ready when the test has written to a named pipe."""


def test_who_waits_for_it_is_told_for_how_long(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    waited: list[float] = []

    def waiting(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 2:
            fifo.write_bytes(b"")  # now it is ready

    words = [sys.executable, "-S", "-c", SLOW, str(fifo)]
    said = background.start(words, tmp_path / "log", b"", 60.0, waiting)
    os.waitpid(json.loads(said)["pid"], 0)
    assert waited == sorted(waited)
    assert waited[0] >= background.LOOK


def test_one_that_is_not_ready_in_time_is_killed(tmp_path: Path) -> None:
    words = [sys.executable, "-S", "-c", "import signal; signal.pause()"]
    with pytest.raises(ResourceError, match=r"was not ready within 0\.1 s"):
        background.start(words, tmp_path / "log", b"", 0.1)
