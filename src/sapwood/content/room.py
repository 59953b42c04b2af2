"""Which content may go when room is needed: decisions without I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

PINNED: Final = 600.0
"""Seconds for which content stays after :meth:`Pins.pin`."""

MAX_PINNED: Final = 100_000
"""Pieces of content that are pinned at a time; beyond it the oldest pins end early."""

DIGITS: Final = 64
"""Characters of a SHA-256 in hexadecimal, with which each file's name begins."""


class ContentFile(msgspec.Struct, frozen=True):
    """A file of a content folder.

    Attributes:
        used: When it was used last, seconds since 1970.
        nbytes: Its size.
        name: Its name, which begins with the SHA-256 of its content.
        links: Hard links to it; more than one if a tree of files has it.
    """

    used: float
    nbytes: int
    name: str
    links: int = 1

    @property
    def sha256(self) -> str:
        """The SHA-256 of its content."""
        return self.name[:DIGITS]


class Pins:
    """Content that must stay for a while, because it may soon get a name.

    Args:
        clock: Returns the time, seconds.

    Example:
        >>> pins = Pins(lambda: 0.0)
        >>> pins.pin({"ab"})
        >>> "ab" in pins, "cd" in pins
        (True, False)
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._ends: dict[str, float] = {}

    def __contains__(self, sha256: str) -> bool:
        return self._ends.get(sha256, 0.0) > self._clock()

    def __len__(self) -> int:
        return len(self._ends)

    def pin(self, contents: Iterable[str]) -> None:
        """Have content stay for :data:`PINNED` seconds from now on."""
        now = self._clock()
        for sha256 in contents:
            self._ends.pop(sha256, None)
            self._ends[sha256] = now + PINNED  # the last one now
        for sha256, end in list(self._ends.items()):
            if end > now and len(self._ends) <= MAX_PINNED:
                break
            del self._ends[sha256]

    def unpin(self, contents: Iterable[str]) -> None:
        """End the pins of content."""
        for sha256 in contents:
            self._ends.pop(sha256, None)


def removable(files: Iterable[ContentFile], pins: Pins) -> Iterator[ContentFile]:
    """Return the files that may be removed, the least recently used first.

    Empty files stay: nothing is gained, and a process may have just created one. Files that another
    process has locked are in use, too; only an attempt to lock them shows that.

    Example:
        >>> files = [ContentFile(2.0, 5, "b" * 64), ContentFile(1.0, 5, "a" * 64, links=2)]
        >>> [file.nbytes for file in removable(files, Pins(lambda: 0.0))]
        [5]
    """
    for file in sorted(files, key=lambda one: (one.used, one.name)):
        if file.nbytes and file.links == 1 and file.sha256 not in pins:
            yield file
