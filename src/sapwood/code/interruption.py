"""Compilers that run for a thread, and how another thread ends them."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
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
