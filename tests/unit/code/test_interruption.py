from __future__ import annotations

import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from sapwood.code.interruption import held_back_signals, interrupt, interruptible, run_to_end
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


def test_a_signal_that_comes_while_a_process_is_started_is_raised_afterwards() -> None:
    passed: list[str] = []
    with pytest.raises(KeyboardInterrupt), held_back_signals() as let_through:  # noqa: PT012 - order
        signal.raise_signal(signal.SIGINT)
        passed.append("held back")
        let_through()
        passed.append("let through")
    assert passed == ["held back"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_other_threads_start_is_started_as_ever() -> None:
    done: list[object] = []

    def start() -> None:
        before = signal.getsignal(signal.SIGINT)
        with held_back_signals():
            done.append(signal.getsignal(signal.SIGINT) is before)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join(30)
    assert done == [True]


def test_a_tool_ends_with_what_it_wrote_or_in_time(tmp_path: Path) -> None:
    script = "echo out; echo error >&2; pwd; exit 3"
    status, said = run_to_end(["sh", "-c", script], tmp_path, os.environ, 60.0)
    assert (status, said) == (3, f"out\nerror\n{tmp_path}\n")
    with pytest.raises(subprocess.TimeoutExpired):
        run_to_end(["sleep", "1000"], tmp_path, os.environ, 0.01)


def test_a_compiler_that_is_interrupted_as_soon_as_it_runs_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal comes while ``Popen`` still waits: from the child, before its program runs."""
    start = subprocess.Popen._execute_child  # type: ignore[attr-defined]  # its heart
    pids: list[int] = []

    def interrupted(self: subprocess.Popen[str], *args: object) -> None:
        start(self, *args)
        pids.append(self.pid)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(subprocess.Popen, "_execute_child", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_to_end(["sleep", "1000"], tmp_path, os.environ, 60.0)
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)
