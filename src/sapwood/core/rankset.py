"""Sets of ranks as text and as ranges, for people and for the wire."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from sapwood.core.errors import ProtocolError

Ranges = tuple[tuple[int, int], ...]
"""Sorted, disjoint half-open ranges ``(start, stop)``."""


def to_ranges(ranks: Iterable[int]) -> Ranges:
    """Return the ranks as sorted half-open ranges.

    Example:
        >>> to_ranges([3, 1, 2, 7])
        ((1, 4), (7, 8))
    """
    ranges: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if ranges and ranges[-1][1] == rank:
            ranges[-1][1] = rank + 1
        else:
            ranges.append([rank, rank + 1])
    return tuple((start, stop) for start, stop in ranges)


MAX_RANKS = 2**20
"""Ranks that ranges may cover in all: what a peer writes in a few bytes costs no more memory."""


def from_ranges(ranges: Iterable[tuple[int, int]]) -> set[int]:
    """Return the set that the ranges cover.

    Raises:
        ProtocolError: They cover more than :data:`MAX_RANKS`.

    Example:
        >>> sorted(from_ranges([(1, 3), (7, 8)]))
        [1, 2, 7]
    """
    ranges = tuple(ranges)
    check_ranges(ranges)
    return {rank for start, stop in ranges for rank in range(start, stop)}


def check_ranges(ranges: Iterable[tuple[int, int]]) -> None:
    """Check ranges of a peer that are expanded later, when the peer cannot be cut off for them.

    Raises:
        ProtocolError: They cover more than :data:`MAX_RANKS`.
    """
    if sum(stop - start for start, stop in ranges if stop > start) > MAX_RANKS:
        raise ProtocolError(f"ranges of more than {MAX_RANKS} ranks")


def contains(ranges: Ranges, rank: int) -> bool:
    """Whether a rank is in sorted, disjoint ranges.

    Example:
        >>> contains(((1, 4), (7, 8)), 7), contains(((1, 4), (7, 8)), 4)
        (True, False)
    """
    after = bisect_right(ranges, rank, key=_start)
    return after > 0 and rank < ranges[after - 1][1]


def count(ranges: Iterable[tuple[int, int]]) -> int:
    """Return how many ranks disjoint ranges hold."""
    return sum(stop - start for start, stop in ranges)


def joined(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return disjoint ranges in order, neighbours put together.

    Example:
        >>> joined([(3, 5), (1, 3)])
        ((1, 5),)
    """
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        if merged and merged[-1][1] == start:
            merged[-1] = (merged[-1][0], stop)
        else:
            merged.append((start, stop))
    return tuple(merged)


def fold(name: str, ranks: Iterable[int]) -> str:
    """Return a set of places as people write it.

    Example:
        >>> fold("agent", [1, 2, 3, 7])
        'agent[1-3,7]'
        >>> fold("agent", [4])
        'agent 4'
    """
    ranges = to_ranges(ranks)
    if len(ranges) == 1 and ranges[0][1] - ranges[0][0] == 1:
        return f"{name} {ranges[0][0]}"
    parts = [f"{a}" if b - a == 1 else f"{a}-{b - 1}" for a, b in ranges]
    return f"{name}[{','.join(parts)}]"


def parse_ranks(text: str) -> set[int]:
    """Return the ranks that people write as numbers and ranges; nothing for what is neither.

    Example:
        >>> sorted(parse_ranks("1-3, 7"))
        [1, 2, 3, 7]
        >>> parse_ranks("3-")
        set()
    """
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not (first.isdecimal() and (last.isdecimal() if dash else not last)):
            return set()
        start, stop = int(first), int(last or first)
        if stop - start > MAX_RANKS:
            return set()
        found.update(range(start, stop + 1))
    return found


def _start(one: tuple[int, int]) -> int:
    return one[0]
