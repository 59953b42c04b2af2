"""Reading log files: the lines of several processes and machines in the order of their times."""

from __future__ import annotations

import datetime as dt
import heapq
import os
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from sapwood.core import typed
from sapwood.core.errors import ConfigurationError
from sapwood.environment.logs import LEVELS

KNOWN = ("timestamp", "level", "component", "event", "node", "pid", "exception")
"""Keys of a line that are not fields of its event."""


class LogLine(msgspec.Struct, frozen=True):
    """One line of a log file.

    Attributes:
        timestamp: Time in ISO 8601 and UTC; for a line that cannot be read, the previous line's.
        level: How grave it is; empty for a line that cannot be read.
        component: Whose it is.
        event: What happened.
        node: On which machine.
        pid: In which process.
        exception: A traceback, or nothing.
        fields: What else is known of it.
        raw: The line as it stands in the file.
    """

    timestamp: str
    level: str = ""
    component: str = ""
    event: str = ""
    node: str = ""
    pid: int = 0
    exception: str = ""
    fields: dict[str, Any] = {}
    raw: bytes = b""


class Wanted(msgspec.Struct, frozen=True):
    """A filter of lines; empty fields match all.

    Attributes:
        components: Names; ``comm`` also stands for ``comm.link``.
        level: The least grave.
        nodes: Names of machines.
        after: Seconds since 1970.

    Example:
        >>> line = LogLine("2026-11-22T09:45:35Z", "info", "comm.link", "opened")
        >>> Wanted(("comm",), "info").has(line), Wanted(("session",)).has(line)
        (True, False)
    """

    components: Sequence[str] = ()
    level: str = ""
    nodes: Sequence[str] = ()
    after: float = 0.0

    def has(self, line: LogLine) -> bool:
        """Whether a line is wanted."""
        if self.components and not any(
            line.component == name or line.component.startswith(f"{name}.")
            for name in self.components
        ):
            return False
        if self.level and LEVELS.get(line.level, 0) < LEVELS[self.level]:
            return False
        if self.after and seconds_of(line.timestamp) < self.after:
            return False
        return not self.nodes or line.node in self.nodes


class LogFile:
    """A log file that may still grow.

    Args:
        path: The file.

    Raises:
        ConfigurationError: It cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = self._opened()
        self._rest = b""
        self._last = ""

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def lines(self) -> Iterator[LogLine]:
        """Yield the lines that are there and were not read; one without its end is left for later.

        A file that was replaced, or cut off, is read from its beginning.
        """
        if self._is_another():
            self._file.close()
            self._file, self._rest = self._opened(), b""
        for part in self._file:
            self._rest += part
            if part.endswith(b"\n"):
                raw, self._rest = self._rest.rstrip(b"\r\n"), b""
                if raw:
                    yield self._read(raw)

    def _opened(self) -> BinaryIO:
        try:
            return self._path.open("rb")
        except OSError as error:
            raise ConfigurationError(
                f"the log file cannot be read: {error.strerror}",
                where=str(self._path),
                hint="name files that log.file has named",
            ) from error

    def _is_another(self) -> bool:
        try:
            named, held = self._path.stat(), os.fstat(self._file.fileno())
        except FileNotFoundError:
            return False  # it is gone, and a new one may come
        return named.st_ino != held.st_ino or named.st_size < self._file.tell()

    def _read(self, raw: bytes) -> LogLine:
        line = parsed(raw, self._last)
        self._last = line.timestamp
        return line


def seconds_of(timestamp: str) -> float:
    """Return the time of a line, seconds since 1970; 0 if it has none.

    Example:
        >>> seconds_of("1970-01-01T00:01:00.5Z"), seconds_of("yesterday")
        (60.5, 0.0)
    """
    try:
        moment = dt.datetime.fromisoformat(timestamp)
    except ValueError:
        return 0.0
    return (moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).timestamp()


def parsed(raw: bytes, otherwise: str = "") -> LogLine:
    """Return the line of some bytes.

    Args:
        raw: The bytes, without the end of the line.
        otherwise: The time of a line that cannot be read.
    """
    try:
        found = typed.json_reader(dict[str, Any])(raw)
        timestamp, pid = str(found["timestamp"]), int(found.get("pid", 0))
    except (msgspec.DecodeError, KeyError, TypeError, ValueError):
        return LogLine(otherwise, event=raw.decode(errors="replace"), raw=raw)
    level, component, event, node, exception = (
        str(found.get(key, "")) for key in ("level", "component", "event", "node", "exception")
    )
    fields = {key: value for key, value in found.items() if key not in KNOWN}
    return LogLine(timestamp, level, component, event, node, pid, exception, fields, raw)


def merged(files: Iterable[LogFile], wanted: Wanted) -> Iterator[LogLine]:
    """Yield the wanted lines of all files, by time; of one file in its order.

    Example:
        ::

            for line in merged([LogFile(Path("a.log")), LogFile(Path("b.log"))], Wanted()):
                print(line.timestamp, line.event)
    """
    ordered = heapq.merge(*(file.lines() for file in files), key=attrgetter("timestamp"))
    return filter(wanted.has, ordered)
