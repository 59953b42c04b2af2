"""Time as something that is given to whoever needs it, so that tests and simulations decide it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time in seconds since some fixed moment; it never goes backwards."""

    def now(self) -> float:
        """Return the time, seconds."""


class MonotonicClock:
    """The machine's own clock, which setting the date does not move."""

    __slots__ = ()

    def now(self) -> float:
        """Return the time, seconds."""
        return time.monotonic()


class VirtualClock:
    """A clock that only moves when told to, for tests and simulations.

    Example:
        >>> clock = VirtualClock()
        >>> clock.advance(1.5)
        >>> clock.now()
        1.5
    """

    __slots__ = ("_now",)

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        """Return the time, seconds."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass.

        Raises:
            ValueError: ``seconds`` is negative.
        """
        if seconds < 0:
            raise ValueError("time does not go backwards")
        self._now += seconds
