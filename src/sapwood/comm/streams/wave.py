"""One wave at one place: who has contributed, who is still waited for.

A contribution is known by (stream, wave, attempt, child); what comes twice or from an older
attempt is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from sapwood.comm.messages import Up
from sapwood.comm.payload import Payload
from sapwood.core.rankset import Ranges, from_ranges, joined, to_ranges


class Gathering(Protocol):
    """Puts the contributions to one wave together; ``reduction.py`` has the one that is used."""

    def add(self, body: bytes, payload: Payload | None, rank: int, weight: float) -> None:
        """Take one more contribution; ``rank`` is the first one behind it.

        Raises:
            SapwoodError: It does not fit the others.
        """

    def partial(self) -> tuple[bytes, Payload | None]:
        """Return what a junction sends on, encoded."""

    def total(self) -> Any:
        """Return the result at the root.

        Raises:
            SapwoodError: The contributions do not fit together.
        """


class Summary(Gathering, Protocol):
    """A gathering whose result can be sent down again."""

    def outcome(self) -> tuple[bytes, Payload | None]:
        """Return the result, encoded, to be sent down.

        Raises:
            SapwoodError: The contributions do not fit together.
        """


NewGathering = Callable[[Mapping[str, str]], Summary]
"""Makes the gathering of a wave from the reductions of its stream."""


class Wave:
    """A wave that waits for contributions.

    Args:
        number: Counts the waves of its stream from 1.
        attempt: Attempt in which this place was asked.
        body: The value that went down.
        payload: Its arrays.
        waiting: Attempt that is expected of each child that has not contributed.
        gathering: What came so far.

    Attributes:
        version: Of the parameters of own filters.
        filtering: Whether it is full and in the hands of an own filter.
        sent: What a filter made of the value, by child, or by -1 for all of them.
        values: Contributions with something to add.
    """

    __slots__ = (
        "_late",
        "_ranks",
        "attempt",
        "body",
        "filtering",
        "gathering",
        "number",
        "payload",
        "sent",
        "values",
        "version",
        "waiting",
        "weight",
    )

    def __init__(
        self,
        number: int,
        attempt: int,
        body: bytes,
        payload: Payload | None,
        waiting: dict[int, int],
        gathering: Gathering,
    ) -> None:
        self.number = number
        self.attempt = attempt
        self.body = body
        self.payload = payload
        self.waiting = waiting
        self.gathering = gathering
        self._ranks: list[tuple[int, int]] = []
        self._late: list[tuple[int, int]] = []
        self.weight = 0.0
        self.values = 0
        self.version = 0
        self.filtering = False
        self.sent: dict[int, tuple[bytes, Payload | None]] = {}

    @property
    def ranks(self) -> Ranges:
        """Agents whose contributions are in."""
        return joined(self._ranks)

    @property
    def late(self) -> Ranges:
        """Agents whose contributions to earlier waves are in."""
        return to_ranges(from_ranges(self._late))

    def accepts(self, child: int, attempt: int) -> bool:
        """Whether a contribution of a child in an attempt is wanted."""
        return self.waiting.get(child) == attempt

    def add(self, child: int, message: Up, payload: Payload | None) -> bool:
        """Take a contribution in; return whether it was the last one that was missing."""
        if message.body:
            self.values += 1
            first = (message.ranks or message.late)[0][0]
            self.gathering.add(message.body, payload, first, message.weight)
        del self.waiting[child]
        self._ranks += message.ranks
        if message.late:
            self._late += message.late
        self.weight += message.weight
        return not self.waiting

    def add_rank(self, message: Up) -> None:
        """Note that a contribution is in that was passed on by itself."""
        self._ranks += message.ranks
        self.weight += message.weight

    def add_late(self, message: Up, payload: Payload | None) -> None:
        """Take a contribution to an earlier wave in."""
        if message.body:
            self.values += 1
            first = (message.ranks or message.late)[0][0]
            self.gathering.add(message.body, payload, first, message.weight)
        self._late += message.ranks + message.late
        self.weight += message.weight

    def __repr__(self) -> str:
        return f"Wave({self.number}, attempt {self.attempt}, waits for {sorted(self.waiting)})"
