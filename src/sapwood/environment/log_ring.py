"""The last log lines of this process, in memory: what others ask for who look at many processes."""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import os
import secrets
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

import msgspec

from sapwood.environment.logs import FIELDS, ROOT

RING_BYTES = 2**20
"""Bytes of lines that are kept."""

LINE_COST = 64
"""Bytes that a line costs beyond its own."""

MAX_LINE = 16 * 1024
"""Bytes of one line; a longer one loses its exception and its fields."""

PAGE_BYTES = 256 * 1024
"""Bytes of lines that are given out at once."""


class LogPage(msgspec.Struct, frozen=True, kw_only=True):
    """Lines out of a ring.

    Attributes:
        ring: Name of the ring: another process's has another name and its own numbers.
        lines: JSON of each, as in a log file.
        next: What to ask for next.
        dropped: Lines after the requested position that were overwritten.
        more: Whether there are more.
    """

    ring: str
    lines: list[bytes]
    next: int
    dropped: int = 0
    more: bool = False


class LogRing:
    """The last lines; from any thread.

    Args:
        capacity: Bytes that are kept.

    Example:
        >>> ring = LogRing(3 * (LINE_COST + 3))
        >>> for text in (b"one", b"two", b"six", b"ten"):
        ...     ring.append(text, logging.INFO)
        >>> page = ring.read()
        >>> page.lines, page.next, page.dropped
        ([b'two', b'six', b'ten'], 4, 1)
        >>> ring.read(page.next).lines
        []
    """

    def __init__(self, capacity: int = RING_BYTES) -> None:
        self.name = secrets.token_hex(4)
        self._capacity = capacity
        self._lines: deque[tuple[int, bytes]] = deque()
        self._held = 0
        self._count = 0
        self._lock = threading.Lock()

    def append(self, line: bytes, level: int) -> None:
        """Add a line; the oldest make room for it."""
        with self._lock:
            self._lines.append((level, line))
            self._held += len(line) + LINE_COST
            self._count += 1
            while self._held > self._capacity:
                self._held -= len(self._lines.popleft()[1]) + LINE_COST

    def read(self, after: int = 0, level: int = 0, limit: int = PAGE_BYTES) -> LogPage:
        """Return lines in their order.

        Args:
            after: How many to leave out, counted from the first that there ever was.
            level: The least grave.
            limit: Bytes after which the page ends.
        """
        with self._lock:
            lines, count = list(self._lines), self._count
        first = count - len(lines)
        start = min(max(after, first), count)
        found: list[bytes] = []
        size, at = 0, start
        while at < count and size < limit:
            grave, line = lines[at - first]
            at += 1
            if grave >= level:
                found.append(line)
                size += len(line)
        return LogPage(
            ring=self.name,
            lines=found,
            next=at,
            dropped=max(0, first - max(after, 0)),
            more=at < count,
        )


class _RingHandler(logging.Handler):
    """Writes lines into a ring, as a log file has them; without structlog: daemons are small."""

    def __init__(self, ring: LogRing, level: int) -> None:
        super().__init__(level)
        self._ring = ring

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._ring.append(_rendered(record), record.levelno)
        except Exception:  # noqa: BLE001 - what logging does with a failure
            self.handleError(record)


_plain_formatter = logging.Formatter()


def _rendered(record: logging.LogRecord) -> bytes:
    """Return the line of a record."""
    moment = dt.datetime.fromtimestamp(record.created, dt.UTC)
    known: dict[str, Any] = {
        "event": record.getMessage(),
        "level": record.levelname.lower(),
        "component": record.name.removeprefix(f"{ROOT}."),
        "timestamp": moment.isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "pid": os.getpid(),
        "node": os.uname().nodename,
    }
    line = {**getattr(record, FIELDS, {}), **known}
    if record.exc_info:
        line["exception"] = _plain_formatter.formatException(record.exc_info)
    text = msgspec.json.encode(line, enc_hook=repr)
    if len(text) <= MAX_LINE:
        return text
    return msgspec.json.encode({**known, "event": f"{known['event'][:1000]} … (too long)"})


@contextlib.contextmanager
def kept_lines(ring: LogRing, level: int = logging.INFO) -> Iterator[None]:
    """Keep what this process logs meanwhile, whatever else becomes of it."""
    root = logging.getLogger(ROOT)
    handlers: list[logging.Handler] = [_RingHandler(ring, level)]
    if not root.hasHandlers() and logging.lastResort is not None:
        handlers.append(logging.lastResort)  # else warnings would not be shown any more
    before = root.level
    root.setLevel(min(root.getEffectiveLevel(), level))
    for handler in handlers:
        root.addHandler(handler)
    try:
        yield
    finally:
        for handler in handlers:
            root.removeHandler(handler)
        root.setLevel(before)
