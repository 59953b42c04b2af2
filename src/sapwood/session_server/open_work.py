"""What clients have asked of agents that are to leave, until it is over. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import Future
from typing import Any

from sapwood.core.futures import CallerFuture
from sapwood.core.rankset import from_ranges
from sapwood.session_server.routes import EffectRoutes

FIRST_LOOK = 0.02
"""Seconds until the second look; the next ones take twice as long each, up to the longest."""

LONGEST_LOOK = 0.5
"""Seconds between two looks at most."""

LONGEST = 3600.0
"""Seconds after which waiting ends."""


class OpenWork:
    """Requests and waves of clients that some agents take part in; on the loop's thread.

    Args:
        routes: Whose each request and stream is.
        ranks: The agents.
        later: ``later(seconds, function)`` has a function called.

    Attributes:
        done: Ends when all that was open at first is over.
    """

    def __init__(
        self, routes: EffectRoutes, ranks: Collection[int], later: Callable[..., Any]
    ) -> None:
        several = set(ranks)
        self._routes = routes
        self._later = later
        self._wait = FIRST_LOOK
        self._waited = 0.0
        self._requests = {
            number for number, (_, _, rank) in routes.of_request.items() if rank in several
        }
        self._waves = {}
        for number, (hearer, mine) in routes.of_stream.items():
            stream = hearer.served(mine)
            if stream.spec.follows or not several.isdisjoint(from_ranges(stream.spec.members)):
                self._waves[number] = frozenset(stream.waiting)
        self.done: Future[None] = CallerFuture()
        self._look()

    def give_up(self) -> None:
        """Wait for nothing any more."""
        if not self.done.done():
            self.done.set_result(None)

    def _look(self) -> None:
        routes = self._routes
        self._requests &= routes.of_request.keys()
        left = {}
        for number, waves in self._waves.items():
            known = routes.of_stream.get(number)
            still = waves & known[0].served(known[1]).waiting if known is not None else frozenset()
            if still:
                left[number] = still
        self._waves = left
        if not (self._requests or left) or self._waited > LONGEST:
            self.give_up()
        if not self.done.done():
            self._later(self._wait, self._look)
            self._waited += self._wait
            self._wait = min(2 * self._wait, LONGEST_LOOK)
