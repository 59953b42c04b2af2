"""The stack of a runner, whatever it does: it waits, computes, hangs in C, or is stopped."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from sapwood.code.runner.stack_reader import STACK, STACK_SIGNAL, StackText, signals_of
from sapwood.code.stacks import from_faulthandler


def endless(path: str) -> None:
    Path(path).touch()
    while True:
        pass


def deadlocked(path: str) -> None:
    lock = threading.Lock()
    with lock:
        threading.Thread(target=lock.acquire, name="other", daemon=True).start()
        Path(path).touch()
        lock.acquire()


def in_c_with_the_interpreter_held(path: str) -> None:
    reading, _writing = os.pipe()
    Path(path).touch()
    ctypes.PyDLL(None).read(reading, ctypes.create_string_buffer(1), 1)


def in_c(path: str) -> None:
    reading, _writing = os.pipe()
    Path(path).touch()
    ctypes.CDLL(None).read(reading, ctypes.create_string_buffer(1), 1)


def blocks_all_signals(path: str) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    Path(path).touch()
    threading.Event().wait()


def without_handler(path: str) -> None:
    signal.signal(STACK_SIGNAL, signal.SIG_DFL)
    Path(path).touch()
    threading.Event().wait()


def stack_of(bench: Any) -> StackText:
    found: list[StackText] = []
    bench.host.read_stack(found.append)
    bench.until(lambda: bool(found))
    return found[0]


def functions(found: StackText) -> list[str]:
    """Return the functions of the main thread."""
    return [
        frame.function
        for thread in from_faulthandler(found.text)
        if thread.main
        for frame in thread.frames
    ]


@pytest.mark.parametrize("function", [endless, deadlocked, in_c, in_c_with_the_interpreter_held])
@pytest.mark.slow
def test_whatever_hangs_says_where(bench: Any, tmp_path: Path, function: Any) -> None:
    bench.submit(function, str(tmp_path / "there"))
    bench.until((tmp_path / "there").exists)
    bench.until(lambda: functions(stack_of(bench)) == [function.__name__])
    found = stack_of(bench)
    assert (found.problem, found.state) == ("", "")


def test_other_threads_are_shown_after_that_of_the_call(bench: Any, tmp_path: Path) -> None:
    def other() -> None:
        threading.Event().wait()

    def call(path: str) -> None:
        threading.Thread(target=other, daemon=True).start()
        Path(path).touch()
        threading.Event().wait()

    bench.submit(call, str(tmp_path / "there"))
    bench.until((tmp_path / "there").exists)
    bench.until(lambda: functions(stack_of(bench))[-1:] == ["call"])
    main, beside = from_faulthandler(stack_of(bench).text)
    assert (main.main, beside.main) == (True, False)
    assert "other" in [frame.function for frame in beside.frames]
    assert not any("bootstrap" in frame.function for frame in beside.frames)


def test_a_runner_without_work_has_no_frames_and_works_on(bench: Any) -> None:
    assert stack_of(bench) == StackText("")  # no runner was needed
    assert bench.call(pow, 2, 3) == 8
    found = stack_of(bench)
    assert found.text
    assert from_faulthandler(found.text) == ()
    assert bench.call(pow, 2, 4) == 16


def test_a_stopped_runner_is_called_stopped_and_works_on(bench: Any, tmp_path: Path) -> None:
    pid = bench.call(os.getpid)
    os.kill(pid, signal.SIGSTOP)
    bench.until(lambda: (found := signals_of(pid)) is not None and found.state == "T")
    assert stack_of(bench).state == "stopped"
    os.kill(pid, signal.SIGCONT)
    assert bench.call(pow, 2, 3) == 8
    assert stack_of(bench).state == ""


@pytest.mark.slow
def test_blocked_signals_are_silence(bench: Any, tmp_path: Path) -> None:
    bench.submit(blocks_all_signals, str(tmp_path / "there"))
    bench.until((tmp_path / "there").exists)
    found = stack_of(bench)
    assert found.state == "silent"
    assert "did not write its stack within 1 s" in found.problem


@pytest.mark.slow
def test_no_signal_is_sent_to_a_runner_that_would_die_of_it(bench: Any, tmp_path: Path) -> None:
    future = bench.submit(without_handler, str(tmp_path / "there"))
    bench.until((tmp_path / "there").exists)
    found = stack_of(bench)
    assert "user code has replaced the handler" in found.problem
    assert not future.done()


def test_several_who_ask_at_once_get_the_same_stack(bench: Any) -> None:
    bench.call(pow, 2, 3)
    found: list[StackText] = []
    for _ in range(3):
        bench.host.read_stack(found.append)
    bench.until(lambda: len(found) == 3)
    assert len(set(found)) == 1


def test_a_runner_that_ends_meanwhile_is_an_answer(bench: Any) -> None:
    pid = bench.call(os.getpid)
    found: list[StackText] = []
    bench.host.read_stack(found.append)
    os.kill(pid, signal.SIGKILL)
    bench.until(lambda: bool(found))
    assert found[0].problem in {"", "its runner has ended"}


def test_a_stack_is_no_part_of_a_later_crash(bench: Any) -> None:
    bench.call(pow, 2, 3)
    assert stack_of(bench).text
    error = bench.error(os.abort)
    assert error.details["backtrace"].count("most recent call first") == 1


@pytest.mark.slow
def test_a_call_that_is_killed_for_its_time_says_where_it_was(bench: Any) -> None:
    def inner() -> None:
        threading.Event().wait()

    def outer() -> None:
        inner()

    bench.call(pow, 2, 3)
    error = bench.error(outer, time_limit=0.3)
    lines = error.details[STACK].splitlines()
    assert [line.partition(" ")[0] for line in lines][-2:] == ["inner", "outer"]
    assert __file__ in lines[-1]


@pytest.mark.slow
def test_a_stopped_call_is_killed_for_its_time_too(bench: Any) -> None:
    def stop() -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    bench.call(pow, 2, 3)
    error = bench.error(stop, time_limit=0.3)
    assert "is stopped" in error.details[STACK]
    assert bench.call(pow, 2, 3) == 8


@pytest.mark.slow
def test_what_returns_only_when_its_stack_is_read_is_still_too_late(bench: Any) -> None:
    bench.call(pow, 2, 3)
    error = bench.error(signal.pause, time_limit=0.3)
    assert "ran longer than 0.3 s" in error.what
    assert bench.call(pow, 2, 3) == 8


def test_a_sample_has_the_main_thread_only_and_disturbs_no_stack(
    bench: Any, tmp_path: Path
) -> None:
    bench.submit(deadlocked, str(tmp_path / "there"))
    bench.until((tmp_path / "there").exists)
    bench.until(lambda: functions(stack_of(bench)) == ["deadlocked"])
    samples: list[StackText] = []
    stacks: list[StackText] = []
    bench.host.sample_stack(samples.append)
    bench.host.sample_stack(samples.append)  # one at a time
    bench.host.read_stack(stacks.append)
    bench.until(lambda: bool(stacks))
    assert [functions(one) for one in samples] == [["deadlocked"]]
    assert len(from_faulthandler(samples[0].text)) == 1
    assert len(from_faulthandler(stacks[0].text)) == 2


def test_a_crash_while_samples_are_taken_shows_the_crash_alone(bench: Any, tmp_path: Path) -> None:
    def crash(path: str) -> None:
        Path(path).touch()
        while True:
            if not Path(path).exists():
                os.abort()

    there = tmp_path / "there"
    call = bench.submit(crash, str(there))
    bench.until(there.exists)
    samples: list[StackText] = []
    bench.host.sample_stack(samples.append)
    there.unlink()
    bench.until(call.done)
    backtrace = call.exception().details["backtrace"]
    assert "Aborted" in backtrace
    assert backtrace.count("in crash") == 1
