"""Free-form Fortran as statements: comments away, continued lines joined, all in lower case."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Statement(NamedTuple):
    """A statement, the line where it begins, and the comment lines right above it."""

    text: str
    line: int
    comment: str


def statements(source: str) -> Iterator[Statement]:
    """Yield the statements of a source.

    Example:
        >>> [each.text for each in statements("REAL :: x, & ! two" + chr(10) + "  & y")]
        ['real :: x,  y']
    """
    pending, first, comment = "", 0, ""
    for number, raw in enumerate(source.splitlines(), start=1):
        code, _, remark = _without_comment(raw)
        text = code.strip()
        if not text:
            if not pending:
                comment = f"{comment}\n{remark.strip()}" if remark.strip() else ""
            continue
        if not pending:
            first = number
        text = text.removeprefix("&") if pending else text
        if text.endswith("&"):
            pending += text[:-1]
            continue
        for part in (pending + text).split(";"):
            yield Statement(part.strip().lower(), first, comment.strip())
        pending, comment = "", ""


def _without_comment(line: str) -> tuple[str, str, str]:
    quote = ""
    for position, letter in enumerate(line):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter == "!":
            return line[:position], "!", line[position + 1 :].lstrip("!<>")
    return line, "", ""


def split_list(text: str) -> list[str]:
    """Split at commas that are in no parentheses.

    Example:
        >>> split_list("x(n, m), y")
        ['x(n, m)', 'y']
    """
    parts, depth = [""], 0
    for letter in text:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]
