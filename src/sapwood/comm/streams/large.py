"""Large arrays of streams at one place, in both directions: who takes which message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sapwood.comm.link import Link
from sapwood.comm.messages.pieces import Announced, Draw, Offer, Retracted
from sapwood.comm.neighbourhood import Effects, Neighbourhood
from sapwood.comm.payload import Payload
from sapwood.comm.streams.announcements import Announcements
from sapwood.comm.streams.draws import Draws, Flow
from sapwood.comm.streams.offers import Offers
from sapwood.comm.streams.sending import Sending
from sapwood.comm.streams.stream import Stream

OnMessage = Callable[[Link, Any, Payload | None], Effects]


class Large:
    """Large arrays at one place.

    Args:
        near: The neighbours.
        draws: What this place draws.
        sending: Sends values down.
        announcements: Values that come.
        offers: Contributions.
    """

    def __init__(
        self,
        near: Neighbourhood,
        draws: Draws,
        sending: Sending,
        announcements: Announcements,
        offers: Offers,
    ) -> None:
        self._near = near
        self._draws = draws
        self._sending = sending
        self._announcements = announcements
        self.offers = offers
        self.on_piece = draws.on_piece

    def __len__(self) -> int:
        return len(self._draws) + len(self._sending) + len(self._announcements)

    def is_moving(self, stream: int) -> bool:
        """Whether arrays of a stream are on their way to this place."""
        return self._draws.has(stream)

    def flows(self) -> tuple[Flow, ...]:
        """Return what is being drawn."""
        return self._draws.flows()

    def messages(self) -> dict[type[Any], OnMessage]:
        """Return who takes which message."""
        return {
            Offer: self.offers.on_offer,
            Retracted: self.offers.on_retracted,
            Announced: self._announcements.on_announced,
            Draw: self._on_draw,
        }

    def _on_draw(self, link: Link, message: Draw, _payload: Any) -> Effects:
        """A neighbour draws: the parent a contribution, a child a value."""
        if link.rank == self._near.router.parent:
            return self.offers.drawn(link, message)
        return self._announcements.drawn(link, message)

    def child_left(self, child: int) -> Effects:
        """A child is attached here no more."""
        self._draws.end_of(child)
        return self._sending.child_left(child)

    def parent_changed(self, streams: dict[int, Stream]) -> None:
        """The former parent draws no more, and nothing more comes from it."""
        self._draws.end_values()
        for stream in streams.values():
            self.offers.parent_changed(stream)

    def over(self, stream: int, is_over: Callable[[int], bool]) -> None:
        """Waves of a stream are over: nothing of them comes or goes any more."""
        if self._draws.touched:
            for part in (self._draws, self._sending, self._announcements):
                part.over(stream, is_over)
            self._draws.touched = len(self) > 0
