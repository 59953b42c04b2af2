"""How a log line is shown to people."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec

from sapwood.core.terminal_text import printable
from sapwood.environment.log_files import LogLine


def described(line: LogLine) -> str:
    """Return a line for people: its time is from this machine's clock.

    Example:
        >>> described(LogLine("", event="not a log line"))
        '?  not a log line'
    """
    if not line.level:
        return printable(f"?  {line.event}")
    process = f"[{line.pid}]" if line.pid else ""
    where = f"{line.node}{process}"
    fields = "".join(f"  {key}={_text(value)}" for key, value in line.fields.items())
    head = f"{_local(line.timestamp)} {where} {line.level:<8} {line.component}: {line.event}"
    return printable(f"{head}{fields}" + (f"\n{line.exception}" if line.exception else ""))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _local(timestamp: str) -> str:
    try:
        moment = dt.datetime.fromisoformat(timestamp).astimezone()
    except ValueError:
        return timestamp
    return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03}"
