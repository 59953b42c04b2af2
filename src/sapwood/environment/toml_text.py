"""Two things that the standard library's TOML reader lacks: line numbers, and writing."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Mapping
from typing import Any

Key = tuple[str, ...]

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_KEY = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_DOTTED = rf"{_KEY}(?:\s*\.\s*{_KEY})*"
_TABLE = re.compile(rf"\s*\[\[?\s*({_DOTTED})\s*\]\]?\s*(?:#.*)?")
_ASSIGNMENT = re.compile(rf"\s*({_DOTTED})\s*=(.*)", re.DOTALL)


def key_lines(text: str) -> dict[Key, int]:
    r"""Return the line, counted from 1, on which each table and key of a valid document begins.

    Keys inside inline tables are not listed; they stand where their table does.

    Example:
        >>> key_lines('[log]\nconsole = "debug"\n')
        {('log',): 1, ('log', 'console'): 2}
    """
    found: dict[Key, int] = {}
    table: Key = ()
    lines = text.splitlines()
    index = 0
    while index < len(lines):
        line, number = lines[index], index + 1
        index += 1
        if header := _TABLE.fullmatch(line):
            table = _parts(header[1])
            found.setdefault(table, number)
        elif assignment := _ASSIGNMENT.fullmatch(line):
            found.setdefault((*table, *_parts(assignment[1])), number)
            value = assignment[2]
            # A value may span several lines: it ends where it can be parsed.
            while not _complete(value) and index < len(lines):
                value += "\n" + lines[index]
                index += 1
    return found


def line_of(key: Key, lines: Mapping[Key, int]) -> int:
    """Return the line of a key, or of the nearest table around it; 0 if there is none."""
    for length in range(len(key), 0, -1):
        if key[:length] in lines:
            return lines[key[:length]]
    return 0


def format_key(key: Key) -> str:
    """Return a dotted key, its parts quoted where TOML wants it."""
    return ".".join(part if _BARE.fullmatch(part) else format_value(part) for part in key)


def format_value(value: Any) -> str:
    r"""Return a value as TOML.

    Raises:
        TypeError: The value is not a text, number, boolean or list of these.

    Example:
        >>> print(format_value(["a\n", 1, True]))
        ["a\n", 1, true]
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(format_value, value))}]"
    raise TypeError(f"TOML has no {type(value).__name__}")


def _complete(value: str) -> bool:
    try:
        tomllib.loads(f"value = {value}")
    except tomllib.TOMLDecodeError:
        return False
    return True


def _parts(dotted: str) -> Key:
    parts: list[str] = []
    node: Any = tomllib.loads(f"{dotted} = 0")
    while isinstance(node, dict):
        ((name, node),) = node.items()
        parts.append(name)
    return tuple(parts)
