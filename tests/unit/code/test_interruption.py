from __future__ import annotations

import subprocess
import threading

from sapwood.code.interruption import interrupt, interruptible
from sapwood.core.errors import CancelledError


def compile_for_ever(started: threading.Event, ends: list[BaseException]) -> None:
    try:
        with subprocess.Popen(
            ["sleep", "1000"], stdout=subprocess.PIPE, text=True, process_group=0
        ) as process:
            started.set()
            with interruptible(process):
                process.communicate()
    except CancelledError as error:
        ends.append(error)


def test_what_runs_for_another_thread_ends() -> None:
    started, ends = threading.Event(), list[BaseException]()
    thread = threading.Thread(target=compile_for_ever, args=(started, ends))
    thread.start()
    assert started.wait(30)
    interrupt(thread)
    thread.join(30)
    assert len(ends) == 1


def test_an_interrupted_thread_begins_nothing_any_more() -> None:
    ends: list[BaseException] = []
    other = threading.Thread(target=compile_for_ever, args=(threading.Event(), ends))
    interrupt(other)
    other.start()
    other.join(30)
    assert len(ends) == 1
    with subprocess.Popen(["true"], text=True, process_group=0) as process, interruptible(process):
        process.wait()
