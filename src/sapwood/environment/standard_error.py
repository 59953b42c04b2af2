"""Standard error of threads that must not wait for it.

A terminal may be paused, a pipe may have no reader, a disk may be full. Event loops and threads
that others wait for give their text to a thread that writes it. What it cannot write in time is
dropped, and how much was dropped is reported as soon as standard error takes text again.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import sys
import threading
from collections import deque

from sapwood.core.failures import new_thread

MAX_QUEUED = 1 << 20
"""Characters that wait to be written; what comes on top is dropped."""

FLUSH_TIMEOUT = 1.0
"""Seconds that :meth:`StandardErrorWriter.flush` waits at most."""


class StandardErrorWriter:
    """Writes text to standard error on a thread of its own, in order.

    The thread starts with the first text. It writes to what ``sys.stderr`` is then, in the
    context of the caller, by which notebooks find the cell.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._queue: deque[tuple[contextvars.Context, str]] = deque()
        self._queued = 0
        self._dropped = 0
        self._is_writing = False
        self._thread: threading.Thread | None = None

    def write(self, text: str, context: contextvars.Context | None = None) -> None:
        """Have text written, soon; never wait, never raise.

        Args:
            text: Whole lines.
            context: Where it is written; by default a copy of the caller's.
        """
        with self._changed:
            if self._queued + len(text) > MAX_QUEUED:
                self._dropped += text.count("\n")
                return
            self._queue.append((context or contextvars.copy_context(), text))
            self._queued += len(text)
            if self._thread is None:
                self._thread = new_thread("sapwood-stderr", self._run)
                self._thread.start()
            self._changed.notify_all()

    def flush(self, seconds: float = FLUSH_TIMEOUT) -> bool:
        """Wait until all is written; return whether it is.

        Args:
            seconds: How long to wait at most: standard error may take nothing.
        """
        with self._changed:
            return self._changed.wait_for(lambda: not self._queue and not self._is_writing, seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._is_writing = False
                self._changed.notify_all()
                if not self._changed.wait_for(lambda: self._queue or self._dropped, IDLE):
                    self._thread = None  # the next text starts another one
                    return
                self._is_writing = True
                context, text = self._queue.popleft() if self._queue else (None, "")
                self._queued -= len(text)
                dropped, self._dropped = self._dropped, 0
                if dropped and self._queue:
                    self._dropped, dropped = dropped, 0  # in order: behind what was queued before
            if dropped:
                text += f"sapwood: {dropped} lines were not shown: standard error took no more\n"
            (context or contextvars.copy_context()).copy().run(_show, text)

    def forget(self) -> None:
        """Begin anew in a forked process, which has no such thread."""
        self.__init__()  # type: ignore[misc] # all state is new


IDLE = 0.05
"""Seconds without text after which the thread ends."""


def _show(text: str) -> None:
    # What cannot be written is lost, and nothing else is: streams of users may raise anything.
    with contextlib.suppress(Exception):
        sys.stderr.write(text)
        sys.stderr.flush()


stderr_writer = StandardErrorWriter()
"""The writer of this process."""

os.register_at_fork(after_in_child=stderr_writer.forget)
