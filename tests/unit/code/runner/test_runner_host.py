from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from sapwood.code.runner import calls, runner_host
from sapwood.code.runner.leases import Lease
from sapwood.code.runner.runner_host import Preparation
from sapwood.comm import plain, values
from sapwood.comm.shared_memory import SharedRef
from sapwood.core.errors import (
    MAX_DETAILS,
    CancelledError,
    MemoryLimitError,
    ResourceError,
    RunnerCrashError,
    SapwoodError,
    TimeLimitError,
    UserCodeError,
)

if TYPE_CHECKING:
    from asyncio import Future

    from sapwood.code.runner.runner_host import JobOutcome
    from sapwood.contexts.orders import RunnerLost

MakeBench = Callable[..., Any]
LostRunners = Callable[[], list["RunnerLost"]]


def alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


# --- results -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_call_returns_its_result(bench: Any) -> None:
    assert bench.call(pow, 2, 10) == 1024
    assert bench.host.state is runner_host.RunnerState.IDLE


def test_calls_run_one_after_the_other_in_one_process(bench: Any) -> None:
    futures = [bench.submit(lambda number: [number, os.getpid()], number) for number in range(5)]
    results = [values.decode(bench.wait(future).body, b"") for future in futures]
    assert [number for number, _ in results] == [0, 1, 2, 3, 4]
    assert len({pid for _, pid in results}) == 1


@pytest.mark.parametrize("size", [10, calls.INLINE, calls.INLINE + 1, 2**20])
def test_values_of_any_size_go_there_and_back(bench: Any, size: int) -> None:
    text = "x" * size
    array = np.arange(size, dtype="u1")
    again_text, again_array = bench.call(lambda *args: list(args), text, array)
    assert again_text == text
    np.testing.assert_array_equal(again_array, array)


def inode_of(outcome: JobOutcome) -> int:
    assert outcome.payload is not None
    assert outcome.payload.ref is not None
    return outcome.payload.ref.inode


def test_large_results_are_not_copied_and_their_memory_is_used_again(bench: Any) -> None:
    def make(value: float) -> Any:
        return np.full(2**17, value)

    first = bench.wait(bench.submit(make, 1.0))
    second = bench.wait(bench.submit(make, 2.0))
    assert inode_of(first) != inode_of(second)  # the first is still being read
    assert values.decode(first.body, first.payload.view)[0] == 1.0
    bench.host.give_back(first.payload.owner)
    third = bench.wait(bench.submit(make, 3.0))
    assert inode_of(third) == inode_of(first)
    assert values.decode(second.body, second.payload.view)[0] == 2.0


@pytest.mark.slow
def test_a_result_that_somebody_reads_outlives_its_runner(bench: Any) -> None:
    outcome = bench.wait(bench.submit(lambda: np.full(2**17, 7.0)))
    bench.error(os.abort)
    lease = outcome.payload.owner
    assert isinstance(lease, Lease)
    assert os.fstat(lease.fd).st_ino == lease.inode
    assert values.decode(outcome.body, outcome.payload.view)[0] == 7.0
    bench.host.give_back(lease)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(lease.fd)


@pytest.mark.parametrize(
    "value",
    [object, lambda: None, {1: object()}, 2**70],
    ids=["class", "function", "inside", "number"],
)
def test_a_result_that_cannot_travel_is_a_clear_error(bench: Any, value: Any) -> None:
    error = bench.error(lambda: value)
    assert error.code == "SW133"
    assert "cannot travel" in error.what
    assert bench.call(pow, 2, 2) == 4


# --- errors --------------------------------------------------------------------------------------


def test_an_exception_keeps_its_type_message_and_traceback(bench: Any) -> None:
    def divide(by: int) -> float:
        print("about to divide")  # noqa: T201 - printing is what is tested
        return 1 / by

    error = bench.error(divide, 0)
    assert isinstance(error, UserCodeError)
    assert isinstance(error, ZeroDivisionError)
    assert error.what == "ZeroDivisionError: division by zero"
    assert "return 1 / by" in error.details["traceback"]
    assert "child.py" not in error.details["traceback"]
    assert error.details["output"] == "about to divide\n"


def test_errors_of_sapwood_stay_what_they_are(bench: Any) -> None:
    def refuse() -> None:
        raise ResourceError("no", where="here", hint="later")

    error = bench.error(refuse)
    assert type(error) is ResourceError
    assert (error.what, error.where, error.hint) == ("no", "here", "later")


class Rude(Exception):  # noqa: N818 - a user may call it what they like
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    "problem",
    [
        ValueError("x" * 10**6),
        ValueError("\N{SNOWMAN}" * 10**6),
        ResourceError("x" * 10**6, details={str(i): "y" * 10**5 for i in range(50)}),
        ResourceError("x", details={str(i): "y" for i in range(100_000)}),
    ],
    ids=["long", "wide", "many", "very many"],
)
def test_an_error_of_any_size_arrives(bench: Any, problem: Exception) -> None:
    def fail() -> None:
        raise problem

    error = bench.error(fail)
    assert isinstance(error, type(problem))
    assert "characters left out" in str(error) or len(getattr(error, "details", {})) == MAX_DETAILS
    assert bench.call(pow, 2, 2) == 4


def test_an_exception_without_a_text_is_reported_by_name(bench: Any) -> None:
    def fail() -> None:
        raise Rude

    assert bench.error(fail).what == "Rude"


@pytest.mark.parametrize("code", [None, 0, 3, "text"])
def test_sys_exit_is_an_error_and_not_an_end(bench: Any, code: Any) -> None:
    error = bench.error(sys.exit, code)
    assert "sys.exit" in error.what
    assert bench.host.crashes == 0
    assert bench.call(pow, 2, 2) == 4


def crash(how: str) -> None:
    print(f"crashing by {how}", flush=True)  # noqa: T201 - printing is what is tested
    if how == "SIGSEGV":
        import ctypes  # noqa: PLC0415 - in the runner

        ctypes.string_at(8)
    elif how == "SIGABRT":
        os.abort()
    elif how == "SIGKILL":
        os.kill(os.getpid(), signal.SIGKILL)
    else:
        os._exit(int(how.removeprefix("status ")))


@pytest.mark.parametrize("how", ["SIGSEGV", "SIGABRT", "SIGKILL", "status 3", "status 0"])
@pytest.mark.slow
def test_a_crash_is_an_error_and_the_next_call_gets_a_new_runner(bench: Any, how: str) -> None:
    before = bench.call(os.getpid)
    error = bench.error(crash, how)
    assert isinstance(error, RunnerCrashError)
    assert error.what == (
        f"the function ended its process with {how}"
        if how.startswith("status")
        else f"the runner was killed by {how} in the function"
    )
    assert error.hint
    assert error.details["output"] == f"crashing by {how}\n"
    assert ("crash" in error.details.get("backtrace", "")) == (how in {"SIGSEGV", "SIGABRT"})
    assert bench.host.crashes == 1
    assert bench.call(os.getpid) != before
    assert not alive(before)


def test_a_result_whose_runner_is_gone_already_is_a_crash(bench: Any) -> None:
    future = bench.submit(spin)
    gone = SharedRef(pid=2**22, fd=3, inode=1, capacity=4096, offset=0, nbytes=10)
    nothing = calls.Bulk()
    bench.host._finished(calls.Result(bench.host.number, nothing, calls.Bulk(b"", gone), 0.0))
    bench.until(future.done)
    assert isinstance(future.exception(), RunnerCrashError)


def test_an_idle_runner_that_is_killed_is_replaced(bench: Any) -> None:
    pid = bench.call(os.getpid)
    os.kill(pid, signal.SIGKILL)
    bench.until(lambda: bench.host.state is runner_host.RunnerState.NONE)
    assert bench.call(os.getpid) != pid


# --- runners that other processes kill -----------------------------------------------------------


def begin(folder: str) -> int:
    """Say in a folder who has begun, and wait until ``go`` is there."""
    import time  # noqa: PLC0415 - in the runner

    Path(folder, f"begun-{os.getpid()}").touch()
    while not Path(folder, "go").exists():
        time.sleep(0.002)
    return os.getpid()


def begun(folder: Path) -> set[int]:
    return {int(path.name.partition("-")[2]) for path in folder.glob("begun-*")}


def next_one(bench: Any, folder: Path, known: set[int]) -> int:
    """Wait for a runner that has begun the call and is none of those known; note it."""
    bench.until(lambda: begun(folder) - known)
    (pid,) = begun(folder) - known
    known.add(pid)
    return int(pid)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.slow
def test_a_call_whose_runner_somebody_kills_begins_again_in_a_new_one(
    bench: Any, tmp_path: Path, number: signal.Signals
) -> None:
    known: set[int] = set()
    future = bench.submit(begin, str(tmp_path), attempts=2)
    behind = bench.submit(pow, 2, 3)
    victim = next_one(bench, tmp_path, known)
    os.kill(victim, number)
    second = next_one(bench, tmp_path, known)
    (tmp_path / "go").touch()
    assert values.decode(bench.wait(future).body, b"") == second
    assert values.decode(bench.wait(behind).body, b"") == 8
    assert bench.host.crashes == 0
    assert not alive(victim)


@pytest.mark.slow
def test_a_call_whose_runners_are_killed_each_time_fails_and_says_so(
    bench: Any, tmp_path: Path
) -> None:
    known: set[int] = set()
    future = bench.submit(begin, str(tmp_path), attempts=3)
    for _ in range(3):
        os.kill(next_one(bench, tmp_path, known), signal.SIGKILL)
    with pytest.raises(RunnerCrashError, match="was killed by SIGKILL in the function, 3 times"):
        bench.wait(future)
    assert len(begun(tmp_path)) == 3
    assert bench.call(pow, 2, 2) == 4


@pytest.mark.slow
def test_a_call_that_kills_itself_fails_after_its_attempts(bench: Any) -> None:
    error = bench.error(crash, "SIGKILL", attempts=3)
    assert isinstance(error, RunnerCrashError)
    assert "3 times in a row" in error.what
    assert error.details["output"] == "crashing by SIGKILL\n"


@pytest.mark.parametrize("how", ["SIGSEGV", "SIGABRT", "status 3"])
@pytest.mark.slow
def test_a_call_that_crashes_by_itself_does_not_begin_again(
    bench: Any, tmp_path: Path, how: str
) -> None:
    def note_and_crash(folder: str) -> None:
        Path(folder, f"begun-{os.getpid()}").touch()
        crash(how)

    error = bench.error(note_and_crash, str(tmp_path), attempts=3)
    assert isinstance(error, RunnerCrashError)
    assert "in a row" not in error.what
    assert len(begun(tmp_path)) == 1


@pytest.mark.slow
def test_a_call_that_may_begin_once_fails_when_its_runner_is_killed(
    bench: Any, tmp_path: Path
) -> None:
    future = bench.submit(begin, str(tmp_path))
    os.kill(next_one(bench, tmp_path, set()), signal.SIGKILL)
    with pytest.raises(RunnerCrashError, match=r"was killed by SIGKILL in the function\."):
        bench.wait(future)


@pytest.mark.slow
def test_a_preparation_whose_runner_is_killed_happens_again(
    bench: Any, tmp_path: Path, preparation_of: Callable[..., Any]
) -> None:
    known: set[int] = set()
    bench.host.prepare("a run", preparation_of(begin, str(tmp_path)))
    future = bench.submit(pow, 2, 5, needs="a run", attempts=2)
    os.kill(next_one(bench, tmp_path, known), signal.SIGKILL)
    next_one(bench, tmp_path, known)
    (tmp_path / "go").touch()
    assert values.decode(bench.wait(future).body, b"") == 32


@pytest.mark.slow
def test_a_preparation_whose_runners_are_killed_each_time_fails_its_call(
    bench: Any, tmp_path: Path, preparation_of: Callable[..., Any]
) -> None:
    known: set[int] = set()
    bench.host.prepare("a run", preparation_of(begin, str(tmp_path)))
    future = bench.submit(pow, 2, 5, needs="a run", attempts=2)
    for _ in range(2):
        os.kill(next_one(bench, tmp_path, known), signal.SIGKILL)
    with pytest.raises(RunnerCrashError, match="in the preparation, 2 times in a row"):
        bench.wait(future)


@pytest.mark.slow
def test_a_call_that_no_runner_got_is_given_to_a_new_one(bench: Any, tmp_path: Path) -> None:
    """The last result of a runner and its end are there together, and another call waits."""
    known: set[int] = set()
    first = bench.submit(begin, str(tmp_path))
    behind = bench.submit(os.getpid)
    runner = next_one(bench, tmp_path, known)
    (tmp_path / "go").touch()
    select.select([bench.host._connection], [], [])  # the loop does not run meanwhile
    os.kill(runner, signal.SIGKILL)
    select.select([bench.channel], [], [])
    assert values.decode(bench.wait(first).body, b"") == runner
    assert values.decode(bench.wait(behind).body, b"") != runner


# --- limits --------------------------------------------------------------------------------------


def spin() -> None:
    while True:
        pass


def test_an_endless_loop_ends_at_its_time_limit(bench: Any) -> None:
    error = bench.error(spin, time_limit=0.05)
    assert isinstance(error, TimeLimitError)
    assert "the function ran longer than 0.05 s" in error.what
    assert bench.call(pow, 2, 2, time_limit=10.0) == 4


@pytest.mark.parametrize("end", ["time limit", "cancelled", "closed"])
@pytest.mark.slow
def test_a_runner_that_its_host_ends_is_not_reported_as_lost(
    make_bench: MakeBench, reports: LostRunners, end: str
) -> None:
    bench, other = make_bench(), make_bench()
    assert other.call(pow, 2, 2) == 4
    if end == "time limit":
        assert isinstance(bench.error(spin, time_limit=0.05), TimeLimitError)
    elif end == "cancelled":
        call = bench.submit(spin)
        bench.until(lambda: bench.host.pid)
        bench.host.cancel("test")
        with pytest.raises(CancelledError):
            bench.wait(call)
    else:
        assert bench.call(pow, 2, 2) == 4
        pid = bench.host.pid
        bench.host.close()
        other.until(lambda: not alive(pid))
    lost = other.host.pid  # its end is reported after the other
    os.kill(lost, signal.SIGKILL)
    other.until(lambda: other.host.pid != lost)
    assert [(one.pid, one.status) for one in reports()] == [(lost, -signal.SIGKILL)]


@pytest.mark.parametrize(
    ("how", "status"), [("SIGSEGV", -signal.SIGSEGV), ("status 3", 3), ("status 0", 0)]
)
@pytest.mark.slow
def test_a_runner_that_ends_unexpectedly_is_reported_with_its_status(
    bench: Any, reports: LostRunners, how: str, status: int
) -> None:
    pid = bench.call(os.getpid)
    bench.error(crash, how)
    assert [(one.pid, one.status) for one in reports()] == [(pid, status)]


def test_a_call_that_ignores_signals_ends_at_its_time_limit(bench: Any) -> None:
    def stubborn() -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
            signal.signal(number, signal.SIG_IGN)
        spin()

    assert isinstance(bench.error(stubborn, time_limit=0.1), TimeLimitError)


def test_memory_is_limited(make_bench: MakeBench) -> None:
    bench = make_bench(memory=512 * 2**20)
    error = bench.error(lambda: len(bytearray(2**30)))
    assert isinstance(error, MemoryLimitError)
    assert "limits.memory" in error.hint
    assert bench.call(lambda: len(bytearray(2**20))) == 2**20


@pytest.mark.slow
def test_a_kill_under_a_memory_limit_is_taken_for_one(make_bench: MakeBench) -> None:
    bench = make_bench(memory=2**30)
    assert isinstance(bench.error(crash, "SIGKILL"), MemoryLimitError)


def test_waiting_calls_are_bounded(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_host, "MAX_WAITING", 2)
    futures = [bench.submit(pow, 2, number) for number in range(4)]
    bench.until(lambda: all(future.done() for future in futures))
    assert [type(future.exception()) for future in futures] == [
        type(None),
        type(None),
        type(None),
        ResourceError,
    ]


# --- output --------------------------------------------------------------------------------------


def test_output_is_passed_on_and_forgotten_with_the_next_call(bench: Any) -> None:
    def speak(text: str, *, fail: bool = False) -> None:
        print(text)  # noqa: T201 - printing is what is tested
        os.write(2, b"raw\n")
        if fail:
            raise ValueError(text)

    bench.call(speak, "first")
    error = bench.error(lambda: speak("second", fail=True))
    assert error.details["output"] == "second\nraw\n"
    assert bytes(bench.printed) == b"first\nraw\nsecond\nraw\n"


def test_output_of_c_code_is_captured(bench: Any) -> None:
    def speak() -> None:
        import ctypes  # noqa: PLC0415 - in the runner

        ctypes.CDLL(None).printf(b"from C\n")
        raise ValueError

    assert bench.error(speak).details["output"] == "from C\n"


def test_endless_output_neither_stops_the_call_nor_fills_memory(make_bench: MakeBench) -> None:
    bench = make_bench(output=1000)
    bench.host._on_output = lambda data: None

    def talk() -> None:
        line = b"x" * 2**20
        for _ in range(200):
            os.write(1, line)
        os.write(1, b"the end")
        raise ValueError

    text = bench.error(talk).details["output"]
    assert text.endswith("the end")
    assert "bytes left out" in text
    assert len(text) < 1100


def test_standard_input_is_empty(bench: Any) -> None:
    assert bench.call(lambda: list(sys.stdin)) == []


# --- what user code starts -----------------------------------------------------------------------


def start_child(*, own_group: bool = False) -> int:
    pid = os.fork()
    if pid == 0:
        if own_group:
            os.setsid()
        signal.pause()
    return pid


@pytest.mark.slow
def test_children_of_user_code_end_with_their_runner(bench: Any) -> None:
    child = bench.call(start_child)
    assert alive(child)
    bench.error(crash, "SIGKILL")
    bench.until(lambda: not alive(child))


def test_a_fork_that_returns_does_not_answer_even_if_it_can_print_no_more(bench: Any) -> None:
    def fork_and_return() -> int:
        pid = os.fork()
        if pid == 0:
            sys.stdout.close()
            return -1
        return os.waitpid(pid, 0)[1]

    assert bench.call(fork_and_return) == 0
    assert bench.call(pow, 2, 2) == 4


@pytest.mark.parametrize("instead", [None, {}.pop])
def test_user_code_may_put_anything_in_place_of_its_output(bench: Any, instead: Any) -> None:
    def put() -> int:
        sys.stdout = None if instead is None else SimpleNamespace(flush=instead)
        return 1

    assert bench.call(put) == 1
    assert bench.call(pow, 2, 2) == 4


@pytest.mark.slow
def test_a_child_that_holds_the_connection_does_not_keep_a_dead_runner(bench: Any) -> None:
    def fork_and_die() -> None:
        start_child()
        os._exit(3)

    assert isinstance(bench.error(fork_and_die), RunnerCrashError)
    assert bench.call(pow, 2, 2) == 4


def test_what_a_call_returned_does_not_outlive_it(bench: Any) -> None:
    def kept() -> Any:
        import builtins  # noqa: PLC0415 - runs in the runner
        import weakref  # noqa: PLC0415 - as above

        array = np.zeros(3)
        builtins.kept = weakref.ref(array)  # type: ignore[attr-defined]  # the next call looks
        return array

    def found() -> bool:
        import builtins  # noqa: PLC0415 - runs in the runner

        return builtins.kept() is not None  # type: ignore[attr-defined]  # set above

    bench.call(kept)
    assert not bench.call(found)


# --- user code that writes to what is not its own ------------------------------------------------


def sockets() -> list[int]:
    """Return the sockets that this process has open."""
    folder = Path("/proc/self/fd")
    return [
        int(each.name)
        for each in folder.iterdir()
        if each.is_symlink() and str(each.readlink()).startswith("socket:")
    ]


def write_to_sockets(data: bytes) -> str:
    for fd in sockets():
        os.write(fd, data)
    return "written"


NOT_RESULTS = {
    "text": b"hello",
    "number": b"\x07",
    "no message": b"\xc1\xc1\xc1",
    "wrong types": b"\x96" + b"\xa1x" * 6,
    "too short": b"\x91\x01",
    "zeros": bytes(1000),
}


@pytest.mark.parametrize("data", NOT_RESULTS.values(), ids=NOT_RESULTS)
@pytest.mark.slow
def test_user_code_that_writes_to_its_runners_connection_ends_only_the_runner(
    bench: Any, data: bytes
) -> None:
    pid = bench.call(os.getpid)
    error = bench.error(write_to_sockets, data)
    assert isinstance(error, RunnerCrashError)
    assert error.what == (
        "the function wrote to the connection between its runner and its agent, "
        "and the runner was ended"
    )
    assert "files and sockets that your code has opened" in error.hint
    assert bench.call(os.getpid) != pid
    assert not alive(pid)


@pytest.mark.slow
def test_what_is_written_between_two_calls_ends_the_runner_before_the_next(bench: Any) -> None:
    def write_later() -> int:
        import threading  # noqa: PLC0415 - in the runner

        returned = threading.Timer(0.05, write_to_sockets, (b"hello",))
        returned.start()
        return os.getpid()

    pid = bench.call(write_later)
    bench.until(lambda: bench.host.state is runner_host.RunnerState.NONE)
    assert bench.call(os.getpid) != pid


def test_a_forged_result_is_taken_for_none(bench: Any) -> None:
    nowhere = calls.Bulk(shared=SharedRef(os.getpid(), 0, 1, 4096, 4000, 2**40))
    for number, body, payload in (
        (10**6, calls.Bulk(b"\x01"), calls.Bulk()),
        (1, nowhere, calls.Bulk()),
        (2, calls.Bulk(b"\x01"), nowhere),
    ):
        forged = calls.encode(calls.Result(number, body, payload, 0.0))
        try:
            assert bench.call(write_to_sockets, forged) == "written"
        except SapwoodError as error:
            assert error.code in {"SW202", "SW401"}  # noqa: PT017 - an error may come, or not
        assert bench.call(pow, 2, 2) == 4


def test_the_numbers_after_the_standard_ones_are_free_for_user_code(bench: Any) -> None:
    assert bench.call(lambda: min(sockets())) > 200
    opened = bench.call(lambda: os.open(os.devnull, os.O_RDONLY))
    assert opened < 20


def test_user_code_that_closes_what_is_not_its_own_is_told_so(bench: Any) -> None:
    error = bench.error(lambda: os.closerange(3, 1 << 16))
    assert isinstance(error, RunnerCrashError)
    assert "closed descriptors that it had not opened" in error.details["output"]
    assert "Traceback" not in error.details["output"]
    assert bench.call(pow, 2, 2) == 4


# --- preparations --------------------------------------------------------------------------------


def note(value: int) -> None:
    noted: list[int] = sys.__dict__.setdefault("_noted", [])
    noted.append(value)


def notes() -> list[int]:
    noted: list[int] = sys.__dict__.get("_noted", [])
    return noted


@pytest.mark.slow
def test_a_preparation_happens_once_in_each_runner(
    bench: Any, preparation_of: Callable[..., Preparation]
) -> None:
    bench.host.prepare("run", preparation_of(note, 5))
    assert bench.call(notes, needs="run") == [5]
    assert bench.call(notes, needs="run") == [5]
    bench.error(os.abort)
    assert bench.call(notes, needs="run") == [5]
    assert bench.call(notes) == [5]


def test_a_preparation_that_fails_fails_the_call_that_needs_it(
    bench: Any, preparation_of: Callable[..., Preparation]
) -> None:
    def fail() -> None:
        raise ValueError("not ready")

    bench.host.prepare("run", preparation_of(fail))
    for _ in range(2):
        assert bench.error(pow, 2, 2, needs="run").what == "ValueError: not ready"
    assert bench.call(pow, 2, 2) == 4


def test_a_preparation_that_crashes_fails_the_call_that_needs_it(
    bench: Any, preparation_of: Callable[..., Preparation]
) -> None:
    bench.host.prepare("run", preparation_of(os.abort))
    error = bench.error(pow, 2, 2, needs="run")
    assert isinstance(error, RunnerCrashError)
    assert "SIGABRT in the preparation" in error.what
    assert bench.call(pow, 2, 2) == 4


def test_what_was_forgotten_is_not_prepared(
    bench: Any, preparation_of: Callable[..., Preparation]
) -> None:
    bench.host.prepare("run", preparation_of(note, 5))
    bench.host.forget("run")
    assert isinstance(bench.error(pow, 2, 2, needs="run"), CancelledError)


def test_any_number_of_calls_may_wait_for_what_is_forgotten(bench: Any) -> None:
    first = bench.submit(pow, 2, 2)
    waiting = [bench.submit(pow, 2, 2, needs="run") for _ in range(2 * sys.getrecursionlimit())]
    bench.wait(first)
    assert set(codes(bench, waiting)) == {"SW205"}
    assert bench.call(pow, 2, 3) == 8


# --- cancellation --------------------------------------------------------------------------------


def codes(bench: Any, futures: list[Future[Any]]) -> list[str]:
    bench.until(lambda: all(future.done() for future in futures))
    errors = [future.exception() for future in futures]
    return [error.code if isinstance(error, SapwoodError) else "" for error in errors]


def test_cancelling_ends_what_runs_and_what_waits_and_nothing_else(bench: Any) -> None:
    bench.call(pow, 2, 2)
    futures = [
        bench.submit(spin, context="a"),
        bench.submit(pow, 2, 2, context="a"),
        bench.submit(pow, 2, 2, context="b"),
    ]
    bench.host.cancel("a")
    assert codes(bench, futures) == ["SW205", "SW205", ""]


def test_cancelling_a_context_that_only_waits_spares_what_runs(bench: Any) -> None:
    futures = [bench.submit(os.getpid, context="a"), bench.submit(pow, 2, 2, context="b")]
    bench.host.cancel("b")
    assert codes(bench, futures) == ["", "SW205"]
    assert bench.host.crashes == 0


def test_cancelling_before_the_runner_is_there_ends_it(bench: Any) -> None:
    future = bench.submit(spin, context="a")
    bench.host.cancel("a")
    assert codes(bench, [future]) == ["SW205"]
    assert bench.call(pow, 2, 2) == 4


def test_a_runner_that_is_not_needed_goes_away(make_bench: MakeBench) -> None:
    bench = make_bench(idle=0.05)
    first = int(bench.call(os.getpid))
    bench.until(lambda: bench.host.state.value == "none")
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)
    assert int(bench.call(os.getpid)) != first
    assert bench.host.crashes == 0


@pytest.mark.slow
def test_a_runner_that_holds_something_open_or_works_stays(make_bench: MakeBench) -> None:
    bench = make_bench(idle=0.02)
    bench.host.prepare("run", Preparation("ready", plain.encode(None), None))
    first = bench.call(os.getpid)
    assert bench.call(_sleep, 0.2) is None
    bench.loop.run_until_complete(asyncio.sleep(0.1))
    assert bench.call(os.getpid) == first
    bench.host.forget("run")
    bench.until(lambda: bench.host.state.value == "none")


def _sleep(seconds: float) -> None:
    import time  # noqa: PLC0415 - it runs in the runner

    time.sleep(seconds)


class Slotted(Exception):  # noqa: N818 - as users name theirs
    __slots__ = ("place",)

    def __init__(self, place: str) -> None:
        self.place = place

    def __str__(self) -> str:
        return f"at {self.place}"


class Hostile(Exception):  # noqa: N818 - as above
    """Fails in everything that can be asked of an exception."""

    def __getattr__(self, name: str) -> Any:
        raise KeyError(name)

    def __str__(self) -> str:
        raise SystemExit(name_of_the_exit)

    __repr__ = __str__

    def __reduce__(self) -> str:
        raise KeyboardInterrupt

    def __eq__(self, other: object) -> bool:
        raise RecursionError

    __hash__ = None  # type: ignore[assignment] # on purpose


name_of_the_exit = "never shown"


def in_a_circle() -> Exception:
    first, second = ValueError("first"), KeyError("second")
    first.__cause__, second.__cause__ = second, first
    return first


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: Slotted("here"), "Slotted: at here"),
        (lambda: Hostile("x"), "Hostile"),
        (in_a_circle, "ValueError: first"),
        (lambda: ExceptionGroup("several", [Hostile("x")]), "ExceptionGroup: several"),
        (
            lambda: BaseExceptionGroup("several", [KeyboardInterrupt()]),
            "BaseExceptionGroup: several",
        ),
        (lambda: GeneratorExit("out"), "GeneratorExit: out"),
    ],
    ids=["slots", "hostile", "circle", "group", "base group", "generator exit"],
)
@pytest.mark.slow
def test_any_exception_is_the_error_of_its_call(
    bench: Any, make: Callable[[], BaseException], what: str
) -> None:
    def fail() -> None:
        raise make()

    error = bench.error(fail)
    assert error.what.startswith(what)
    assert "fail" in error.details["traceback"]
    assert bench.host.crashes == 0
    assert bench.call(pow, 2, 2) == 4
