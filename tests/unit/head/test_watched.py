"""A process whose end is heard of, by whoever waits too."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sapwood.head.watched import WatchedProcess, started
from sapwood.session.loop_thread import LoopThread

TIMEOUT = 30.0


def test_who_waits_hears_of_the_end_though_what_is_told_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(_status: int) -> None:
        raise OSError("the store is full")

    thread = LoopThread("test")
    thread.start()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        watched = WatchedProcess(child.pid, started(child.pid), thread, fail)
        child.communicate(b"\n", TIMEOUT)
        assert watched.over.wait(TIMEOUT)
    finally:
        child.kill()
        child.wait()
        thread.stop()
    assert "OSError: the store is full" in caplog.text


def test_another_process_of_that_number_is_not_watched() -> None:
    thread = LoopThread("test")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        with pytest.raises(ProcessLookupError):
            WatchedProcess(child.pid, started(child.pid) - 1, thread, print)
        child.communicate(b"\n", TIMEOUT)
    thread.stop()
