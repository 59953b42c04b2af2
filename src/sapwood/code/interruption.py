"""Tools of builds that run for a thread, and how another thread, or a signal, ends them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from weakref import WeakSet

from sapwood.core.errors import CancelledError

_lock = threading.Lock()
_interrupted: WeakSet[threading.Thread] = WeakSet()
_running: dict[threading.Thread, subprocess.Popen[str]] = {}


def interrupt(thread: threading.Thread) -> None:
    """End the compiler that runs for a thread; it is to begin no other."""
    with _lock:
        _interrupted.add(thread)
        process = _running.get(thread)
        if process is not None and process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def interruptible(process: subprocess.Popen[str]) -> Iterator[None]:
    """Let :func:`interrupt` end a process, the leader of its group, while the block waits for it.

    Raises:
        CancelledError: The thread was interrupted, before or meanwhile.
    """
    thread = threading.current_thread()
    with _lock:
        _running[thread] = process
        if thread in _interrupted:
            os.killpg(process.pid, signal.SIGKILL)
    try:
        yield
    finally:
        with _lock:
            del _running[thread]
    if thread in _interrupted:
        raise CancelledError("the build was interrupted")


@contextmanager
def held_back_signals() -> Iterator[Callable[[], None]]:
    """Hold Ctrl-C and SIGTERM back while a process is started.

    A ``KeyboardInterrupt`` in the middle of ``Popen`` would leave a process without an owner.
    Only the main thread is interrupted by signals; in others nothing is held back.

    Yields:
        A function that lets them through from now on, those that came meanwhile at once.
    """
    came: list[int] = []
    before: dict[int, Callable[[int, FrameType | None], object]] = {}

    def hold_back(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    def let_through() -> None:
        while before:
            signal.signal(*before.popitem())
        while came:
            signal.raise_signal(came.pop())

    try:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                handler = signal.getsignal(number)
                if callable(handler):  # else nothing is thrown
                    before[number] = handler
                    signal.signal(number, hold_back)
        yield let_through
    finally:
        let_through()


def run_to_end(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], time_limit: float
) -> tuple[int, str]:
    """Run a tool in a separate process group, so that none of it outlives an interruption.

    Args:
        command: Its words.
        folder: Where it starts.
        environment: All its variables.
        time_limit: Seconds that it may take.

    Returns:
        Its exit code, and all that it wrote.

    Raises:
        CancelledError: The thread was interrupted.
        subprocess.TimeoutExpired: It took longer.
    """
    with (
        held_back_signals() as let_through,
        subprocess.Popen(
            list(command),
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            process_group=0,
        ) as process,
    ):
        try:
            let_through()
            with interruptible(process):
                output, _ = process.communicate(timeout=time_limit)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):  # it has ended already
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, output
