"""Membership notices: the client decides who is gone or back, and tells all places. No I/O."""

from __future__ import annotations

from typing import Any

from sapwood.comm import events as ev
from sapwood.comm.link import Link
from sapwood.comm.messages import messaging as msg
from sapwood.comm.messaging import events as mev
from sapwood.comm.messaging.delivery import LostProcess, ReliableDelivery
from sapwood.comm.peers import Effects, PeerTable


class MembershipNotices:
    """What one place hears of the others, and what follows for its messages.

    Args:
        near: The neighbours.
        delivery: Ends what is under way with a process that is gone.
    """

    def __init__(self, near: PeerTable, delivery: ReliableDelivery) -> None:
        self._near = near
        self._delivery = delivery
        self._told = False
        self._ended: dict[int, int] = {}

    def announce(self, now: float, event: mev.AnnounceMembership) -> Effects:
        """Root: tell all places; those that are new hear of earlier losses as well."""
        known = self._delivery.gone
        earlier = tuple(
            (rank, absence.incarnation)
            for rank, absence in known.items()
            if rank not in event.back and all(rank != other for other, _ in event.gone)
        )
        reason = event.reason or "its process has ended"
        return self._spread(now, msg.MembershipNotice(event.gone + earlier, event.back, reason))

    def tell(self, rank: int) -> Effects:
        """Tell a place that was attached who is gone, and whose process was replaced.

        It may have been cut off when they ended: it would take new processes for those.
        """
        known = self._delivery.gone
        links = self._near.links_to((rank,)) if known or self._ended else ()
        if not links:
            return []
        self._told = True
        gone = tuple((other, absence.incarnation) for other, absence in known.items())
        replaced = tuple(one for one in self._ended.items() if one[0] not in known)
        reasons = [absence.reason for absence in known.values()]
        reason = reasons[0] if reasons else "its process was replaced"
        back = tuple(other for other, _ in replaced)
        return [ev.Transmit(links, msg.MembershipNotice(gone + replaced, back, reason))]

    def parent_changed(self) -> Effects:
        """The new parent tells who is gone: forget what the former one had told, here and below.

        A process that came back while this one was cut off would otherwise count as gone for good.
        """
        self._delivery.gone.clear()
        if not self._told:
            return []
        self._told = False
        links = self._near.links_to(tuple(self._near.router.children))
        return [ev.Transmit(links, msg.MembershipNotice((), anew=True))] if links else []

    def on_notice(self, link: Link, notice: msg.MembershipNotice, _payload: Any) -> Effects:
        """Places are gone, or back."""
        self._near.must_be_parent(link)
        return self._spread(link.last_heard, notice)

    def _spread(self, now: float, notice: msg.MembershipNotice) -> Effects:
        links = self._near.links_to(tuple(self._near.router.children))
        effects: Effects = [ev.Transmit(links, notice)] if links else []
        self._told |= bool(links and notice.gone)
        gone = self._delivery.gone
        if notice.anew:
            gone.clear()
        for rank in notice.back:
            gone.pop(rank, None)
        for rank, incarnation in notice.gone:
            self._ended[rank] = max(incarnation, self._ended.get(rank, 0))
            if rank == self._near.rank or rank in gone:
                continue
            if rank not in notice.back:
                gone[rank] = LostProcess(incarnation, notice.reason)
            elif self._delivery.has_ended(rank, incarnation):
                continue
            effects += self._delivery.lose(now, rank, incarnation, notice.reason)
        return effects
