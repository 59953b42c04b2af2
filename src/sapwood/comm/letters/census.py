"""Who is gone and who is back: told to all places by the front end, which decides it. No I/O."""

from __future__ import annotations

from typing import Any

from sapwood.comm import events as ev
from sapwood.comm.letters import events as le
from sapwood.comm.letters.letters import Letters
from sapwood.comm.letters.parcel import Absence
from sapwood.comm.link import Link
from sapwood.comm.messages import letters as msg
from sapwood.comm.neighbourhood import Effects, Neighbourhood


class Census:
    """What one place hears of the others, and what follows for its letters.

    Args:
        near: The neighbours.
        letters: Whose ends may be gone.
    """

    def __init__(self, near: Neighbourhood, letters: Letters) -> None:
        self._near = near
        self._letters = letters
        self._told = False
        self._ended: dict[int, int] = {}

    def announce(self, now: float, event: le.Announce) -> Effects:
        """Root: tell all places; those that are new hear of earlier losses as well."""
        known = self._letters.gone
        earlier = tuple(
            (rank, absence.incarnation)
            for rank, absence in known.items()
            if rank not in event.back and all(rank != other for other, _ in event.gone)
        )
        reason = event.reason or "its process has ended"
        return self._spread(now, msg.Census(event.gone + earlier, event.back, reason))

    def tell(self, rank: int) -> Effects:
        """Tell a place that was attached who is gone, and whose process was replaced.

        It may have been cut off when they ended: it would take new processes for those.
        """
        known = self._letters.gone
        links = self._near.links_to((rank,)) if known or self._ended else ()
        if not links:
            return []
        self._told = True
        gone = tuple((other, absence.incarnation) for other, absence in known.items())
        replaced = tuple(one for one in self._ended.items() if one[0] not in known)
        reasons = [absence.reason for absence in known.values()]
        reason = reasons[0] if reasons else "its process was replaced"
        back = tuple(other for other, _ in replaced)
        return [ev.Transmit(links, msg.Census(gone + replaced, back, reason))]

    def parent_changed(self) -> Effects:
        """The new parent tells who is gone: forget what the former one had told, here and below.

        Who came back while this place was cut off would be taken for gone ever after.
        """
        self._letters.gone.clear()
        if not self._told:
            return []
        self._told = False
        links = self._near.links_to(tuple(self._near.router.children))
        return [ev.Transmit(links, msg.Census((), anew=True))] if links else []

    def on_census(self, link: Link, census: msg.Census, _payload: Any) -> Effects:
        """Places are gone, or back."""
        self._near.must_be_parent(link)
        return self._spread(link.last_heard, census)

    def _spread(self, now: float, census: msg.Census) -> Effects:
        links = self._near.links_to(tuple(self._near.router.children))
        effects: Effects = [ev.Transmit(links, census)] if links else []
        self._told |= bool(links and census.gone)
        gone = self._letters.gone
        if census.anew:
            gone.clear()
        for rank in census.back:
            gone.pop(rank, None)
        for rank, incarnation in census.gone:
            self._ended[rank] = max(incarnation, self._ended.get(rank, 0))
            if rank == self._near.rank or rank in gone:
                continue
            if rank not in census.back:
                gone[rank] = Absence(incarnation, census.reason)
            elif self._letters.has_ended(rank, incarnation):
                continue
            effects += self._letters.lose(now, rank, incarnation, census.reason)
        return effects
