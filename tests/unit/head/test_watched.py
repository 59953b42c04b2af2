"""A process whose end is heard of, by whoever waits too."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from sapwood.head.watched import WatchedProcess, end_all, started
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


STUBBORN = (
    "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); print('ready', flush=True); "
    "signal.pause()"
)


@pytest.mark.slow
def test_processes_end_at_the_same_time_within_one_deadline() -> None:
    thread = LoopThread("test")
    thread.start()
    children = [
        subprocess.Popen([sys.executable, "-S", "-c", STUBBORN], stdout=subprocess.PIPE)
        for _ in range(4)
    ]
    try:
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
        watched = [
            WatchedProcess(child.pid, started(child.pid), thread, lambda _status: None)
            for child in children
        ]
        began = time.monotonic()
        assert not end_all(watched, signal.SIGINT, 0.5)
        assert time.monotonic() - began < 4 * 0.5
        assert all(one.over.is_set() for one in watched)
    finally:
        for child in children:
            child.kill()
            child.communicate()
        thread.stop()
