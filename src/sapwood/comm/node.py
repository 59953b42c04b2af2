"""The protocol core of one place: ``step(now, event) -> effects``. No I/O.

Front end, junctions and agents run the same core; what they do follows from their rank in
the tree. It puts the layers together: links and membership (``link.py``, ``neighbourhood.py``),
next hops (``routing.py``), streams (``streams/``, ``reduction.py``), groups
(``groups/``) and requests (``requests.py``).
"""

from collections.abc import Callable, Mapping
from typing import Any

from sapwood.comm import events as ev
from sapwood.comm import messages as msg
from sapwood.comm.groups.groups import Groups
from sapwood.comm.link import Identity, Link, LinkTiming
from sapwood.comm.neighbourhood import Effects, Neighbourhood
from sapwood.comm.payload import Payload
from sapwood.comm.requests import Requests, unreachable
from sapwood.comm.streams.losses import lost_ranks
from sapwood.comm.streams.streams import Streams
from sapwood.comm.streams.wave import NewGathering, Summary
from sapwood.core.errors import ProtocolError
from sapwood.core.rankset import from_ranges
from sapwood.core.topology import Tree


def _nothing_to_gather(_reduce: Mapping[str, str]) -> Summary:
    raise ProtocolError("this place does not reduce")


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
        self.identity = identity
        self.rank = identity.rank
        self.timing = timing or LinkTiming()
        self.requests = Requests()
        near = self._near = Neighbourhood(identity, tree, self.timing, self.requests)
        self.router = near.router
        self.links = near.links
        depth = sum(1 for _ in tree.ancestors(self.rank))
        streams = Streams(near, gather, is_agent=tree.is_agent(self.rank), depth=depth)
        self._streams = streams
        self.streams = streams.open
        groups = self.groups = Groups(near, gather, is_agent=tree.is_agent(self.rank))
        self._on_event: dict[type[ev.Event], Callable[[float, Any], Effects]] = {
            ev.Received: self._received,
            ev.LinkOpened: near.link_opened,
            ev.LinkClosed: self._link_closed,
            ev.Tick: near.tick,
            ev.Leave: near.leave,
            **streams.events(),
            ev.Ask: self._ask,
            ev.Answer: self._answer,
            **groups.on_event,
        }
        self._on_message: dict[type[Any], Callable[[Link, Any, Payload | None], Effects]] = {
            msg.Heartbeat: near.on_heartbeat,
            msg.Goodbye: near.on_goodbye,
            msg.Lost: self._on_lost,
            msg.Joined: near.on_joined,
            **streams.messages(),
            msg.Request: self._on_request,
            msg.Reply: self._on_reply,
            **groups.on_message,
        }

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

    # --- losses ----------------------------------------------------------------------------

    def _link_closed(self, now: float, event: ev.LinkClosed) -> Effects:
        link = self.links.get(event.link)
        mine = link is not None and self._near.neighbours.get(link.rank) is link
        effects = self._near.link_closed(now, event)
        if link is None or not mine:
            return self._with_losses(effects)
        if link.rank in self.router.children:
            effects += self._streams.child_lost(link.rank, event.reason)
            effects += self.groups.lost(self.router.covered(link.rank), event.reason)
        else:
            effects += self.groups.parent_lost(event.reason)
        return self._with_losses(effects)

    def _on_lost(self, link: Link, message: msg.Lost, payload: Payload | None) -> Effects:
        effects = self._with_losses(self._near.on_lost(link, message, payload))
        return effects + self.groups.lost(from_ranges(message.ranks), message.reason)

    def _with_losses(self, effects: Effects) -> Effects:
        """Root: tell the streams of agents that are gone."""
        for reason, ranks in lost_ranks(effects).items():
            effects += self._streams.agents_lost(ranks, reason)
        return effects

    # --- requests --------------------------------------------------------------------------

    def _ask(self, _now: float, event: ev.Ask) -> Effects:
        self.requests.asked(event.number, event.destination)
        message = msg.Request(self.rank, event.destination, event.handler, event.number, event.body)
        return self._forward(message, event.payload)

    def _answer(self, _now: float, event: ev.Answer) -> Effects:
        message = msg.Reply(self.rank, event.destination, event.number, event.body, event.error)
        return self._forward(message, event.payload)

    def _forward(self, message: msg.Request | msg.Reply, payload: Payload | None) -> Effects:
        hop = self._near.neighbours.get(self._near.router.next_hop(message.destination))
        if hop is not None:
            return [ev.Transmit((hop.number,), message, payload)]
        if isinstance(message, msg.Reply):
            return []
        return self._on_reply(None, unreachable(message, self.rank), None)

    def _must_come_from(self, link: Link, source: int) -> None:
        if self.router.next_hop(source) != link.rank:
            raise ProtocolError(f"rank {link.rank} speaks for rank {source}, which is elsewhere")

    def _on_request(self, link: Link, message: msg.Request, payload: Payload | None) -> Effects:
        self._must_come_from(link, message.source)
        if message.destination != self.rank:
            return self._forward(message, payload)
        return [ev.Asked(message.source, message.handler, message.number, message.body, payload)]

    def _on_reply(self, link: Link | None, message: msg.Reply, payload: Payload | None) -> Effects:
        if link is not None:
            self._must_come_from(link, message.source)
        if message.destination != self.rank:
            return self._forward(message, payload)
        if not self.requests.answered(message.number):
            return []
        return [ev.Answered(message.number, message.body, payload, message.error)]
