"""Large arrays of streams at one place, in both directions: who takes which message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from sapwood.comm import messages as msg
from sapwood.comm.link import Link
from sapwood.comm.messages.pieces import Announced, Draw, Offer, Piece, Retracted
from sapwood.comm.payload import Payload
from sapwood.comm.peers import Effects, PeerTable
from sapwood.comm.streams.announcements import Announcements
from sapwood.comm.streams.draws import Draws, Flow
from sapwood.comm.streams.forwarding import Forwarding
from sapwood.comm.streams.offers import Host as OffersHost
from sapwood.comm.streams.offers import Offers
from sapwood.comm.streams.stream import Stream

OnMessage = Callable[[Link, Any, Payload | None], Effects]


class Host(OffersHost, Protocol):
    """What goes on with waves at this place."""

    def on_down(self, link: Link, message: msg.Down, payload: Payload | None) -> Effects:
        """Take a wave in whose value has been drawn, or is to pass by."""


class Pieces:
    """Large arrays at one place.

    Args:
        near: The neighbours.
        streams: The open streams.
        host: Goes on with waves.
        is_agent: Whether this place is a leaf.
    """

    def __init__(
        self, near: PeerTable, streams: dict[int, Stream], host: Host, *, is_agent: bool
    ) -> None:
        self._near = near
        self._open = streams
        draws = self._draws = Draws(near)
        self.forwarding = Forwarding(near, draws)
        self._announcements = Announcements(
            near, streams, draws, self.forwarding, host.on_down, is_agent=is_agent
        )
        self.offers = Offers(near, streams, draws, host)
        self.on_message: dict[type[Any], OnMessage] = {
            Offer: self.offers.on_offer,
            Retracted: self.offers.on_retracted,
            Announced: self._announcements.on_announced,
            Draw: self._on_draw,
            Piece: draws.on_piece,
        }

    def __len__(self) -> int:
        return len(self._draws) + len(self.forwarding) + len(self._announcements)

    def is_moving(self, stream: int) -> bool:
        """Whether arrays of a stream are on their way to this place."""
        return self._draws.has(stream)

    def flows(self) -> tuple[Flow, ...]:
        """Return what is being drawn."""
        return self._draws.flows()

    def _on_draw(self, link: Link, message: Draw, _payload: Any) -> Effects:
        """A neighbour draws: the parent a contribution, a child a value."""
        if link.rank == self._near.router.parent:
            return self.offers.drawn(link, message)
        return self._announcements.drawn(link, message)

    def child_left(self, child: int) -> Effects:
        """A child is attached here no more."""
        effects: Effects = []
        for stream in list(self._open.values()):
            effects += self.offers.child_left(stream, child)
        self._draws.end_of(child)
        return effects + self.forwarding.child_left(child)

    def parent_changed(self) -> None:
        """The former parent draws no more, and nothing more comes from it."""
        self._draws.end_values()
        for stream in self._open.values():
            self.offers.parent_changed(stream)

    def over(self, stream: int, is_over: Callable[[int], bool]) -> None:
        """Waves of a stream are over: nothing of them comes or goes any more."""
        if self._draws.touched:
            for part in (self._draws, self.forwarding, self._announcements):
                part.over(stream, is_over)
            self._draws.touched = len(self) > 0
