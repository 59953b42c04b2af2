"""Changing a text at many places while its lines stay where they are."""

from __future__ import annotations

import re
from typing import Final

_BREAK: Final = re.compile(rb"\\?\r?\n")
"""The end of a line, also of a line of a macro that continues in the next."""


class Edits:
    r"""Replacements and insertions in one text.

    Whatever is replaced leaves its line breaks behind, so every line keeps its number.

    Example:
        >>> edits = Edits(b"a\nb c")
        >>> edits.replace(0, 3, "x")
        >>> edits.insert(5, "!")
        >>> edits.apply()
        b'x\n c!'
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._edits: list[tuple[int, int, int, bytes]] = []
        self._serial = 0

    def replace(self, start: int, end: int, text: str) -> None:
        """Replace a part; parts must not overlap."""
        breaks = b"".join(_BREAK.findall(self._data[start:end]))
        self._edits.append((start, end, self._count(), text.encode() + breaks))

    def override(self, start: int, end: int, text: str) -> None:
        """Replace a part in which there may be edits already; they are dropped."""
        self._edits = [e for e in self._edits if e[1] <= start or e[0] >= end]
        self.replace(start, end, text)

    def insert(self, position: int, text: str) -> None:
        """Insert text; insertions at one position stay in order."""
        self._edits.append((position, position, self._count(), text.encode()))

    def prepend(self, position: int, text: str) -> None:
        """Insert text before all that was inserted at that place, and before what is there."""
        self._edits.append((position, position, -self._count(), text.encode()))

    def __bool__(self) -> bool:
        """Whether anything changes."""
        return bool(self._edits)

    def _count(self) -> int:
        self._serial += 1
        return self._serial

    def extend(self, other: Edits) -> None:
        """Take over the edits of another object for the same text."""
        for start, end, _, text in sorted(other._edits):
            self._edits.append((start, end, self._count(), text))

    def apply(self, start: int = 0, end: int | None = None) -> bytes:
        """Return the changed text, or the part of it between two old positions."""
        stop = len(self._data) if end is None else end
        pieces = []
        position = start
        for first, last, _, text in sorted(self._edits):
            if first < start or last > stop:
                continue
            pieces += [self._data[position:first], text]
            position = max(position, last)
        return b"".join([*pieces, self._data[position:stop]])
