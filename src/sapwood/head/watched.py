"""Processes that a head has begun, or a former one: it hears of their end."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from sapwood.core.errors import ClosedError
from sapwood.session.loop_thread import LoopThread

KILL_TIMEOUT = 5.0
"""Seconds in which a process that is killed is gone, unless the kernel holds it."""


class WatchedProcess:
    """A process whose end is heard of, whether it is this one's child or not.

    Args:
        pid: The process.
        began: When it began, as the kernel counts: see :func:`started`.
        thread: Its loop watches.
        ended: Told, on the loop's thread, how it ended: what ``waitpid`` says, 0 if it is not this
            process's child.

    Attributes:
        is_child: Whether it is this process's child, once it has ended.

    Raises:
        ProcessLookupError: It has ended.
    """

    def __init__(
        self, pid: int, began: int, thread: LoopThread, ended: Callable[[int], None]
    ) -> None:
        self.pid = pid
        self.is_child = False
        self._thread = thread
        self._told = ended
        self._lock = threading.Lock()
        self.over = threading.Event()
        self._watch = os.pidfd_open(pid)
        if started(pid) not in {began, 0}:  # another one by now; one that has just ended is seen
            os.close(self._watch)
            raise ProcessLookupError(pid)
        thread.post(thread.loop.add_reader, self._watch, self._ended)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal; nothing happens where it has ended."""
        with self._lock:
            if self._watch >= 0:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._watch, number)

    def end(self, first: signal.Signals, patience: float) -> bool:
        """Stop it, by force if it does not end in time; return whether it ended without force."""
        return end_all([self], first, patience)

    def forget(self) -> None:
        """Hear no more of it."""
        with self._lock:
            watch, self._watch = self._watch, -1
        if watch < 0:
            return
        if self._thread.is_current:
            self._thread.loop.remove_reader(watch)
        else:
            with contextlib.suppress(ClosedError):
                self._thread.call(self._thread.loop.remove_reader, watch)
        os.close(watch)

    def _ended(self) -> None:
        try:
            status = os.waitpid(self.pid, os.WNOHANG)[1]
            self.is_child = True
        except OSError:
            status = 0
        self.forget()
        try:
            self._told(status)
        finally:
            self.over.set()


def end_all(processes: Sequence[WatchedProcess], first: signal.Signals, patience: float) -> bool:
    """End processes at the same time, by force those that are left when the time is over.

    Args:
        processes: The processes.
        first: The signal that asks them to end.
        patience: Seconds that they have, all of them together.

    Returns:
        Whether all of them ended without force.
    """
    for process in processes:
        process.send(first)
    left = _left(processes, patience)
    for process in left:
        process.send(signal.SIGKILL)
    _left(left, KILL_TIMEOUT)
    return not left


def _left(processes: Sequence[WatchedProcess], seconds: float) -> list[WatchedProcess]:
    """Wait for processes; return those that have not ended in time."""
    ends = time.monotonic() + seconds
    return [one for one in processes if not one.over.wait(max(0.0, ends - time.monotonic()))]


def started(pid: int) -> int:
    """Return when a process began, as the kernel counts; 0 if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    fields = text.rpartition(")")[2].split()
    return 0 if fields[0] == "Z" else int(fields[19])
