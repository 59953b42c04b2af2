"""One wave as messages to the children: all of them, or those that lead to some ranks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from sapwood.comm import events as ev
from sapwood.comm import messages as msg
from sapwood.comm.neighbourhood import Effects, Neighbourhood
from sapwood.comm.payload import Payload
from sapwood.comm.routing import Router
from sapwood.comm.streams.shares import Shares
from sapwood.core.rankset import from_ranges, to_ranges


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


def ask_all(
    near: Neighbourhood, shares: Shares, message: msg.Down, payload: Payload | None
) -> Effects:
    """Send a wave in its first attempt to all children that lead to members."""
    effects: Effects = []
    if shares.whole:
        effects.append(ev.Transmit(near.links_to(shares.whole), message, payload))
    for child in shares.partly:
        named = msgspec.structs.replace(message, ranks=shares.asks[child][0].ranges)
        effects.append(ev.Transmit(near.links_to((child,)), named, payload))
    return effects


def pass_on(
    near: Neighbourhood, shares: Shares, message: msg.Down, payload: Payload | None
) -> Effects:
    """Send a value down that nobody gathers the answers to."""
    if not message.ranks:
        links = near.links_to(shares.concerned)
        return [ev.Transmit(links, message, payload)] if links else []
    return [
        ev.Transmit(near.links_to((child,)), told(message, ranks), payload)
        for child, ranks in split(near.router, from_ranges(message.ranks))
    ]
