"""One wave at one place: who has contributed, who is still waited for.

A contribution is known by (stream, wave, attempt, child); what comes twice or from an older
attempt is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from sapwood.comm.messages import Up
from sapwood.comm.payload import Payload
from sapwood.core.rankset import Ranges, joined


class Gathering(Protocol):
    """Puts the contributions to one wave together; ``reduction.py`` has the one that is used."""

    def add(self, body: bytes, payload: Payload | None, rank: int, weight: float) -> None:
        """Take one more contribution; ``rank`` is the first one behind it.

        Raises:
            SapwoodError: It does not fit the others.
        """

    def partial(self) -> tuple[bytes, Payload | None]:
        """Return what a junction sends on, encoded."""

    def total(self) -> dict[str, Any]:
        """Return the result at the root.

        Raises:
            SapwoodError: The contributions do not fit together.
        """


NewGathering = Callable[[Mapping[str, str]], Gathering]
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
    """

    __slots__ = (
        "_ranks",
        "attempt",
        "body",
        "gathering",
        "number",
        "payload",
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
        self.weight = 0.0

    @property
    def ranks(self) -> Ranges:
        """Agents whose contributions are in."""
        return joined(self._ranks)

    def accepts(self, child: int, attempt: int) -> bool:
        """Whether a contribution of a child in an attempt is wanted."""
        return self.waiting.get(child) == attempt

    def add(self, child: int, message: Up, payload: Payload | None) -> bool:
        """Take a contribution in; return whether it was the last one that was missing."""
        self.gathering.add(message.body, payload, message.ranks[0][0], message.weight)
        del self.waiting[child]
        self._ranks += message.ranks
        self.weight += message.weight
        return not self.waiting

    def __repr__(self) -> str:
        return f"Wave({self.number}, attempt {self.attempt}, waits for {sorted(self.waiting)})"
