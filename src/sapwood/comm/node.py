"""The protocol core of one place: ``step(now, event) -> effects``. No I/O.

Client, junctions and agents run the same core; what they do follows from their rank in
the tree. It puts the layers together: links and membership (``link.py``, ``peers.py``),
next hops (``routing.py``), streams (``streams/``, ``reduction.py``), groups (``groups/``) and
messages from place to place (``messaging/``): requests and tagged messages.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sapwood.comm import events as ev
from sapwood.comm import messages as msg
from sapwood.comm.epochs import Epochs
from sapwood.comm.groups.groups import Groups
from sapwood.comm.link import Identity, Link, LinkTiming
from sapwood.comm.messages import messaging
from sapwood.comm.messaging import events
from sapwood.comm.messaging.active import ActiveMessages
from sapwood.comm.messaging.delivery import ReliableDelivery
from sapwood.comm.messaging.membership import MembershipNotices
from sapwood.comm.messaging.point_to_point import PointToPoint
from sapwood.comm.messaging.rendezvous import RendezvousTransfers
from sapwood.comm.payload import Payload
from sapwood.comm.peers import Effects, PeerTable
from sapwood.comm.streams.streams import Streams
from sapwood.comm.streams.wave import NewGathering, Summary
from sapwood.core.errors import InternalError, ProtocolError
from sapwood.core.topology import ROOT, Tree


def _nothing_to_gather(_reduce: Mapping[str, str]) -> Summary:
    raise InternalError("this process does not reduce")


class Node:
    """State of one place.

    Args:
        identity: Who this place is.
        tree: The tree it is part of.
        timing: When links speak and worry.
        gather: Makes what puts contributions together; agents, which only contribute, need none.
    """

    def __init__(
        self,
        identity: Identity,
        tree: Tree,
        timing: LinkTiming | None = None,
        gather: NewGathering = _nothing_to_gather,
    ) -> None:
        self.rank = identity.rank
        self.timing = timing or LinkTiming()
        near = self._near = PeerTable(identity, tree, self.timing)
        self.router = near.router
        self.links = near.links
        depth = sum(1 for _ in tree.ancestors(self.rank))
        streams = Streams(near, gather, is_agent=tree.is_agent(self.rank), depth=depth)
        self._streams = streams
        self.streams = streams.open
        self.large = streams.bulk
        groups = self.groups = Groups(near, gather, is_agent=tree.is_agent(self.rank))
        delivery = self.delivery = ReliableDelivery(near)
        self._membership = MembershipNotices(near, delivery)
        epochs = self._epochs = Epochs(near, streams.tree_changed)
        near.listener = self
        self.transfers = RendezvousTransfers(delivery)
        requests = self.requests = ActiveMessages(delivery, self.transfers)
        tagged = self.point_to_point = PointToPoint(delivery, self.transfers)
        self._on_event: dict[type[ev.Event], Callable[[float, Any], Effects]] = {
            ev.Received: self._received,
            ev.LinkOpened: near.link_opened,
            ev.LinkClosed: near.link_closed,
            ev.Begin: near.attachment.begin,
            ev.Unreachable: near.unreachable,
            ev.TryAgain: near.try_again,
            ev.Tick: self._tick,
            ev.Leave: near.leave,
            ev.ChangeTree: epochs.change,
            **streams.events(),
            **groups.on_event,
            ev.Ask: requests.ask,
            ev.Answer: requests.answer,
            events.CancelRequest: requests.cancel,
            events.SendTagged: tagged.send,
            events.CancelSend: tagged.cancel_send,
            events.PostReceive: tagged.receive,
            events.AnnounceMembership: self._announce,
        }
        self._on_message: dict[type[Any], Callable[[Link, Any, Payload | None], Effects]] = {
            msg.Heartbeat: near.on_heartbeat,
            msg.Goodbye: near.on_goodbye,
            msg.Attached: near.on_attached,
            msg.Detached: near.on_detached,
            msg.Release: near.on_release,
            msg.Return: near.on_return,
            msg.TreeChanged: epochs.on_change,
            **streams.messages(),
            **groups.on_message,
            messaging.RoutedMessage: delivery.on_message,
            messaging.Acknowledgement: delivery.on_acknowledgement,
            messaging.Multicast: delivery.on_multicast,
            messaging.MembershipNotice: self._on_notice,
        }

    @property
    def identity(self) -> Identity:
        """Who this place is."""
        return self._near.identity

    def step(self, now: float, event: ev.Event) -> Effects:
        """Take one event in and return what is to be done, in order.

        Raises:
            ProtocolError: A peer broke the protocol; the driver closes its link.
        """
        return self._on_event[type(event)](now, event)

    def _received(self, now: float, event: ev.Received) -> Effects:
        return self.receive(now, event.link, event.message, event.payload)

    def receive(
        self, now: float, number: int, message: msg.AnyMessage, payload: Payload | None
    ) -> Effects:
        """Take a message in: ``step`` of :class:`~events.Received`, without the event.

        Raises:
            ProtocolError: The peer broke the protocol; the driver closes its link.
        """
        link = self.links.get(number)
        if link is None:
            return []
        link.heard(now)
        if not link.usable:
            return self._near.greeting(link, message)
        handler = self._on_message.get(type(message))
        if handler is None:
            raise ProtocolError(f"unexpected {type(message).__name__} after the handshake")
        return handler(link, message, payload)

    # --- the tree changes --------------------------------------------------------------------

    def child_came(self, rank: int, *, fresh: bool) -> Effects:
        """A place was attached to this one; a fresh process knows of nothing yet."""
        told = self._epochs.tell(rank) + self._membership.tell(rank)
        return told + self._streams.child_came(rank, fresh=fresh)

    def child_left(self, rank: int, *, lost: bool) -> Effects:
        """A place is attached to this one no more, and will not answer; or it is elsewhere."""
        return self._streams.child_left(rank, lost=lost)

    def places_came(self, ranks: Sequence[int]) -> Effects:
        """Places can be reached below this one."""
        return self._streams.places_came(ranks) + self.groups.places_came()

    def places_left(self, ranks: Sequence[int], reason: str, top: int) -> Effects:
        """Places cannot be reached below this one any more; the link of ``top`` is gone."""
        effects = self.groups.places_left(ranks)
        if self.rank == ROOT and top != msg.NOBODY:
            effects += self._streams.agents_lost((top,), reason)
        return effects

    def places_moved(self, ranks: Sequence[int]) -> Effects:
        """Places are reached by another child than before."""
        return self.groups.places_moved(ranks)

    def parent_changed(self, _reason: str) -> Effects:
        """What the former parent asked for is not to be answered any more."""
        self._streams.parent_changed()
        return self._membership.parent_changed() + self.groups.parent_changed()

    def _announce(self, now: float, event: events.AnnounceMembership) -> Effects:
        """Root: say who is gone and who is back."""
        effects = self._membership.announce(now, event) + self.groups.gone(event.gone, event.reason)
        effects += self._epochs.dismiss(event.gone)
        ranks = [rank for rank, _ in event.gone]
        if not ranks:
            return effects
        return effects + self._streams.agents_lost(ranks, event.reason, told=True)

    def _on_notice(self, link: Link, message: messaging.MembershipNotice, payload: Any) -> Effects:
        """Places are gone, or back."""
        effects = self._membership.on_notice(link, message, payload)
        gone = [one for one in message.gone if one[0] not in message.back]
        effects += self.groups.gone(gone, message.reason)
        return effects + self._epochs.dismiss(gone)

    # --- messages --------------------------------------------------------------------------

    def _tick(self, now: float, event: ev.Tick) -> Effects:
        effects = self._near.tick(now, event) + self.delivery.tick(now, event)
        return effects + self._streams.tick()

    def forget(self) -> None:
        """Drop all messages: this place ends, and their memory is wanted back."""
        self.delivery.forget()
        self.transfers.forget_all()
        self.requests.forget()
        self.point_to_point.forget()
