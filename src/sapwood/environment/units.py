"""Sizes and durations with units, as people write them in configuration and flags."""

from __future__ import annotations

import datetime as dt
import math
import re

from sapwood.core.shown import shown

SIZES = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
"""Bytes per unit of size, lower case."""

DURATIONS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
"""Seconds per unit of time."""

_NUMBER_AND_UNIT = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)\s*([A-Za-zµ]*)\s*")


def parse_size(text: str) -> int:
    """Return the bytes that a text such as ``"128 MiB"`` means; a bare number is bytes.

    Raises:
        ValueError: The text is not a size, or not a whole number of bytes.

    Example:
        >>> parse_size("128 MiB"), parse_size("1.5kB"), parse_size("17")
        (134217728, 1500, 17)
    """
    number, factor = _read(text, SIZES, "b", "a size such as 1024, '64 KiB' or '2 GB'")
    if math.isinf(float(number)):
        raise ValueError(f"{shown(text)} is too large")
    size = float(number) * factor if not number.isdigit() else int(number) * factor
    if size != int(size):
        raise ValueError(f"{shown(text)} is not a whole number of bytes")
    return int(size)


def parse_duration(text: str) -> float:
    """Return the seconds that a text such as ``"500 ms"`` means; a bare number is seconds.

    Raises:
        ValueError: The text is not a duration.

    Example:
        >>> parse_duration("500 ms"), parse_duration("2 min"), parse_duration("3")
        (0.5, 120.0, 3.0)
    """
    number, factor = _read(text, DURATIONS, "s", "a duration such as 2.5, '500 ms' or '10 s'")
    seconds = float(number) * factor
    if math.isinf(seconds):
        raise ValueError(f"{shown(text)} is too large")
    return seconds


def format_size(size: int) -> str:
    """Return a size exactly, in the largest binary unit that divides it.

    Example:
        >>> format_size(2**31), format_size(65536), format_size(1000), format_size(0)
        ('2 GiB', '64 KiB', '1000 B', '0 B')
    """
    for name, factor in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size and size % factor == 0:
            return f"{size // factor} {name}"
    return f"{size} B"


def format_duration(seconds: float) -> str:
    """Return a duration exactly, in the largest unit of which it is a whole number.

    Example:
        >>> format_duration(3600.0), format_duration(90.0), format_duration(0.25)
        ('1 h', '90 s', '250 ms')
        >>> format_duration(0.0), format_duration(0.1234)
        ('0 s', '0.1234 s')
    """
    for name, factor in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds and seconds % factor == 0:
            return f"{int(seconds // factor)} {name}"
    if seconds == int(seconds):
        return f"{int(seconds)} s"
    milliseconds = round(seconds * 1000)
    if milliseconds * 1e-3 == seconds:
        return f"{milliseconds} ms"
    return f"{seconds!r} s"


def format_time(seconds: float) -> str:
    """Return a time of seconds since 1970 as ISO 8601, in UTC.

    Example:
        >>> format_time(1769860800.7)
        '2026-01-31T12:00:00Z'
    """
    text = dt.datetime.fromtimestamp(seconds, dt.UTC).isoformat(timespec="seconds")
    return text.replace("+00:00", "Z")


def describe_size(size: float) -> str:
    """Return a size for people, with three digits.

    Example:
        >>> describe_size(25_275_580_416), describe_size(812)
        ('23.5 GiB', '812 B')
    """
    for name, factor in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= factor:
            return (
                f"{size / factor:.3g} {name}"
                if size < 1000 * factor
                else f"{size / factor:.0f} {name}"
            )
    return f"{size:.0f} B"


def _read(
    text: str, units: dict[str, int] | dict[str, float], bare: str, wanted: str
) -> tuple[str, float]:
    match = _NUMBER_AND_UNIT.fullmatch(text)
    if match is None:
        raise ValueError(f"{shown(text)} is not {wanted}")
    number, unit = match.groups()
    name = unit or bare
    # Units of size may be written in any case; those of time may not (M is not m).
    factor = units.get(name.lower() if units is SIZES else name)
    if factor is None:
        raise ValueError(f"{shown(unit)} is not a unit here; use {wanted}")
    return number, factor
