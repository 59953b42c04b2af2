"""Standard error of threads that must not wait for it.

A terminal may be paused, a pipe may have no reader, a disk may be full. Event loops and threads
that others wait for give their text to a thread that writes it. What it cannot write in time is
dropped, and how much was dropped is reported as soon as standard error takes text again.
"""

from __future__ import annotations

import atexit
import contextlib
import contextvars
import io
import os
import select
import sys
import threading
import time
from collections import deque
from functools import partial

from sapwood.core.failures import new_thread

MAX_QUEUED = 1 << 20
"""Characters that wait to be written; further text is dropped."""

FLUSH_TIMEOUT = 1.0
"""Seconds without progress after which :meth:`StandardErrorWriter.flush` gives up."""

MAX_FLUSH = 10.0
"""Seconds that it waits at most, for standard error that is slow but takes text."""

PIECE = 1 << 16
"""Bytes that are written at a time."""


class StandardErrorWriter:
    """Writes text to standard error on a separate thread, in order.

    The thread starts with the first text. It writes to what ``sys.stderr`` is then, in the
    context of the caller, by which notebooks find the cell.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._queue: deque[tuple[contextvars.Context, str]] = deque()
        self._queued = 0
        self._dropped = 0
        self._is_writing = False
        self._pieces = 0  # written so far: whether it is slow or takes nothing
        self._stuck_at = -1
        self._room: int | None = None
        self._thread: threading.Thread | None = None

    def write(self, text: str, context: contextvars.Context | None = None) -> None:
        """Have text written, soon; never wait, never raise.

        Args:
            text: Whole lines.
            context: Where it is written; by default a copy of the caller's.
        """
        with self._changed:
            if self._room is not None:
                if self._room <= 0:
                    return
                self._room -= len(text.encode("utf-8", "replace"))
                if self._room <= 0:
                    text += "sapwood: later output is not kept: the file has reached its bound\n"
            if self._queued + len(text) > MAX_QUEUED:
                self._dropped += text.count("\n")
                return
            self._queue.append((context or contextvars.copy_context(), text))
            self._queued += len(text)
            if self._thread is None:
                self._thread = new_thread("sapwood-stderr", self._run)
                self._thread.start()
            self._changed.notify_all()

    def limit(self, size: int) -> None:
        """Write no more than a number of bytes, and the text that reaches it, from now on.

        Args:
            size: Where standard error is a file, how long the file may become.
        """
        with contextlib.suppress(OSError, ValueError, AttributeError):  # not a file
            size -= os.fstat(sys.stderr.fileno()).st_size
        with self._changed:
            self._room = size

    def flush(self, seconds: float = FLUSH_TIMEOUT) -> bool:
        """Wait until all is written, as long as standard error takes text; return whether it is.

        A second call while standard error is still blocked returns immediately, unless it may
        wait longer than :data:`FLUSH_TIMEOUT`.

        Args:
            seconds: Longest wait for the next piece to be written.
        """
        end = time.monotonic() + max(seconds, MAX_FLUSH)
        with self._changed:
            while self._queue or self._is_writing:
                pieces = self._pieces
                if pieces == self._stuck_at and seconds <= FLUSH_TIMEOUT:
                    return False
                self._changed.wait_for(partial(self._has_advanced, pieces), seconds)
                if not self._has_advanced(pieces):
                    self._stuck_at = pieces
                    return False
                if time.monotonic() >= end:
                    return False
            return True

    def _has_advanced(self, pieces: int) -> bool:
        return self._pieces != pieces or not (self._queue or self._is_writing)

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
            (context or contextvars.copy_context()).copy().run(self._show, text)

    def _show(self, text: str) -> None:
        # Streams of users may raise anything. The text is lost then, and the thread continues.
        with contextlib.suppress(Exception):
            stream = sys.stderr
            if type(stream) is io.TextIOWrapper:
                self._write_through(stream, text)
            else:
                stream.write(text)
                stream.flush()
        self._count_piece()

    def _write_through(self, stream: io.TextIOWrapper, text: str) -> None:
        """Write to the descriptor of a stream.

        Python aborts at its end if a thread is blocked inside the buffer of standard error.
        """
        stream.flush()
        descriptor = stream.fileno()
        rest = memoryview(text.encode(stream.encoding, stream.errors or "strict"))
        while rest:
            try:
                rest = rest[os.write(descriptor, rest[:PIECE]) :]
            except BlockingIOError:  # it does not block, and is full
                select.select([], [descriptor], [])
            self._count_piece()

    def _count_piece(self) -> None:
        with self._changed:
            self._pieces += 1
            self._changed.notify_all()

    def forget(self) -> None:
        """Begin anew in a forked process, which has no such thread."""
        self.__init__()  # type: ignore[misc] # all state is new


IDLE = 0.05
"""Seconds without text after which the thread ends."""


stderr_writer = StandardErrorWriter()
"""The writer of this process."""

atexit.register(stderr_writer.flush)
os.register_at_fork(after_in_child=stderr_writer.forget)
