"""Values on their way to the children: to all of them, or those that lead to some ranks. No I/O.

A large value goes to a child that shares no memory with this place as an announcement
(``forwarding.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

import msgspec

from sapwood.comm import events as ev
from sapwood.comm import messages as msg
from sapwood.comm.payload import Payload
from sapwood.comm.peers import Effects, PeerTable
from sapwood.comm.routing import Router
from sapwood.comm.streams.shares import Shares
from sapwood.core.rankset import from_ranges, to_ranges

Announce = Callable[[Collection[int], msg.Down, Payload], Effects]
"""Tells children of a value whose bytes they are to draw."""


def split(router: Router, ranks: Iterable[int]) -> Iterator[tuple[int, set[int]]]:
    """Return the children that lead to ranks at present, each with those that it leads to."""
    found: dict[int, set[int]] = {}
    for rank in ranks:
        if router.is_below(rank):
            found.setdefault(router.next_hop(rank), set()).add(rank)
    yield from sorted(found.items())


def told(message: msg.Down, ranks: Iterable[int]) -> msg.Down:
    """Return a message that asks for some ranks."""
    return msgspec.structs.replace(message, ranks=to_ranges(ranks))


class Sending:
    """Sends waves to the children of one place.

    Args:
        near: The neighbours.
        announce: Tells children of a large value that they cannot map.
    """

    def __init__(self, near: PeerTable, announce: Announce) -> None:
        self._near = near
        self._announce = announce

    def ask_all(self, shares: Shares, message: msg.Down, payload: Payload | None) -> Effects:
        """Send a wave in its first attempt to all children that lead to members."""
        effects: Effects = []
        if shares.whole:
            effects += self.to(shares.whole, message, payload)
        for child in shares.partly:
            named = msgspec.structs.replace(message, ranks=shares.asks[child][0].ranges)
            effects += self.to((child,), named, payload)
        return effects

    def pass_on(
        self,
        shares: Shares,
        message: msg.Down,
        payload: Payload | None,
        *,
        whole: bool = False,
    ) -> Effects:
        """Send a value down that nobody gathers the answers to.

        Args:
            shares: Who is below.
            message: The wave.
            payload: Its arrays.
            whole: Whether they go in one message, as they are kept nowhere to be drawn.
        """
        if not message.ranks:
            return self.to(shares.concerned, message, payload, whole=whole)
        effects: Effects = []
        for child, ranks in split(self._near.router, from_ranges(message.ranks)):
            effects += self.to((child,), told(message, ranks), payload, whole=whole)
        return effects

    def to(
        self,
        children: Collection[int],
        message: msg.Down,
        payload: Payload | None,
        *,
        whole: bool = False,
    ) -> Effects:
        """Send a wave to some children, those of them that are there."""
        near = self._near
        if payload is not None and payload.nbytes > near.timing.piece and not whole:
            return self._large(children, message, payload)
        links = near.links_to(children)
        return [ev.Transmit(links, message, payload)] if links else []

    def _large(self, children: Collection[int], message: msg.Down, payload: Payload) -> Effects:
        """Send arrays to those that map them; tell the others of them."""
        neighbours = self._near.peers
        there = [child for child in children if child in neighbours]
        sharing = {child for child in there if payload.is_here and neighbours[child].same_machine}
        effects: Effects = []
        if sharing:
            links = self._near.links_to(sorted(sharing))
            effects.append(ev.Transmit(links, message, payload))
        others = [child for child in there if child not in sharing]
        return effects + self._announce(others, message, payload) if others else effects
