"""``concat``, ``gather``, ``count``, ``union``, ``classes``: contributions collected."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from sapwood.comm import values
from sapwood.comm.reductions.partials import marked, partial_of
from sapwood.core.errors import ExecutionError
from sapwood.core.rankset import fold, from_ranges, to_ranges


class Concat:
    """Puts pieces one after the other, by rank."""

    __slots__ = ("pieces",)

    def __init__(self) -> None:
        self.pieces: list[tuple[int, Any]] = []

    def add(self, value: Any, rank: int, _weight: float) -> None:
        """Take one more contribution: a value, or the pieces of a subtree."""
        pieces = partial_of(value)
        if pieces is not None:
            self.pieces.extend((int(first), piece) for first, piece in pieces)
        elif isinstance(value, dict):
            raise ExecutionError("a dictionary cannot be put after another")
        else:
            self.pieces.append((rank, value))

    def partial(self) -> Any:
        """Return what travels on to the next vertex."""
        return marked(self.pieces)

    def total(self) -> Any:
        """Return the result."""
        ranks, pieces = zip(*sorted(self.pieces, key=_by_rank), strict=True)
        ordered = [np.atleast_1d(piece) for piece in pieces]
        for rank, piece in zip(ranks, ordered, strict=True):
            if piece.shape[1:] != ordered[0].shape[1:]:
                raise ExecutionError(
                    f"a piece of shape {piece.shape} does not fit after one of {ordered[0].shape}",
                    where=f"agent {rank}",
                )
        return np.concatenate(ordered)


class Gather:
    """Keeps all values, by rank."""

    __slots__ = ("values",)

    def __init__(self) -> None:
        self.values: list[tuple[int, Any]] = []

    def add(self, value: Any, rank: int, _weight: float) -> None:
        """Take one more contribution: a value, or the values of a subtree."""
        gathered = partial_of(value)
        if gathered is not None:
            self.values.extend((int(first), one) for first, one in gathered)
        else:
            self.values.append((rank, value))

    def partial(self) -> Any:
        """Return what travels on to the next vertex."""
        return marked([[rank, value] for rank, value in self.values])

    def total(self) -> Any:
        """Return the result; never a view of a contributor's memory."""
        return [owned(value) for _, value in sorted(self.values, key=_by_rank)]


class Count:
    """Counts contributions."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def add(self, value: Any, _rank: int, _weight: float) -> None:
        """Take one more contribution: a value, or the count of a subtree."""
        counted = partial_of(value)
        if counted is not None:
            self.value += int(counted)
        elif value is not None:
            self.value += 1

    def partial(self) -> Any:
        """Return what travels on to the next vertex."""
        return marked(self.value)

    def total(self) -> Any:
        """Return the result."""
        return self.value


class Union:
    """Puts sets together; a contribution is a set, list, tuple or array of values."""

    __slots__ = ("members",)

    def __init__(self) -> None:
        self.members: set[Hashable] = set()

    def add(self, value: Any, _rank: int, _weight: float) -> None:
        """Take one more contribution."""
        if isinstance(value, np.ndarray):
            value = list(value.ravel()) if value.dtype.kind in "mM" else value.ravel().tolist()
        if not isinstance(value, (set, list, tuple)):
            raise ExecutionError(f"{type(value).__name__} is not a set of values")
        try:
            self.members.update(value)
        except TypeError as error:
            raise ExecutionError(f"a member of a set is of a type that changes: {error}") from error

    def partial(self) -> Any:
        """Return what travels on to the next vertex."""
        return self.members

    def total(self) -> Any:
        """Return the result."""
        return set(self.members)


class Classes:
    """Groups agents by what they contributed: equal values, and who has them.

    The total is a list of ``{"value": …, "agents": [ranks], "places": "agent[1-4]"}``, the
    largest group first; of groups of one size, the one with the lowest rank.
    """

    __slots__ = ("groups",)

    def __init__(self) -> None:
        self.groups: dict[tuple[bytes, bytes], tuple[Any, set[int]]] = {}

    def add(self, value: Any, rank: int, _weight: float) -> None:
        """Take one more contribution: a value, or the groups of a subtree."""
        groups = partial_of(value)
        if groups is not None:
            for one, ranges in groups:
                self._join(one, from_ranges((int(a), int(b)) for a, b in ranges))
        else:
            self._join(value, {rank})

    def _join(self, value: Any, ranks: set[int]) -> None:
        encoded = values.encode(_native(value))
        key = (encoded.body, bytes(encoded.payload()))
        self.groups.setdefault(key, (value, set()))[1].update(ranks)

    def partial(self) -> Any:
        """Return what travels on to the next vertex."""
        return marked([[value, to_ranges(ranks)] for value, ranks in self.groups.values()])

    def total(self) -> Any:
        """Return the result; never a view of a contributor's memory."""
        found = [(owned(value), sorted(ranks)) for value, ranks in self.groups.values()]
        found.sort(key=lambda group: (-len(group[1]), group[1]))
        return [
            {"value": value, "agents": ranks, "places": fold("agent", ranks)}
            for value, ranks in found
        ]


def owned(value: Any) -> Any:
    """Return a value with its own arrays, because contributors reuse their memory.

    Example:
        >>> there = np.zeros(2)
        >>> mine = owned({"a": [there, 1]})
        >>> there[:] = 7
        >>> mine
        {'a': [array([0., 0.]), 1]}
    """
    if isinstance(value, np.ndarray):
        return np.array(value)
    if isinstance(value, dict):
        return {key: owned(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(owned, value))
    return value


def _by_rank(piece: tuple[int, Any]) -> int:
    return piece[0]


def _native(value: Any) -> Any:
    """Return a value with all its arrays in native byte order: so equal ones have equal bytes."""
    if isinstance(value, np.ndarray) and not value.dtype.isnative:
        return value.astype(value.dtype.newbyteorder("="))
    if isinstance(value, dict):
        return {key: _native(item) for key, item in value.items()}
    return type(value)(map(_native, value)) if type(value) in {list, tuple} else value
