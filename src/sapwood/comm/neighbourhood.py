"""The links of one place to its neighbours: handshake, membership, heartbeats. No I/O."""

from typing import Any

from sapwood.comm import events as ev
from sapwood.comm import messages as msg
from sapwood.comm.link import Identity, Link, LinkEvent, LinkState, LinkTiming
from sapwood.comm.payload import Payload
from sapwood.comm.routing import Router
from sapwood.core.errors import ProtocolError
from sapwood.core.rankset import Ranges, from_ranges, to_ranges
from sapwood.core.topology import ROOT, Tree

Effects = list[ev.Effect]


class Neighbourhood:
    """Which neighbours a place has, and what it hears of places further away.

    Args:
        identity: Who this place is.
        tree: The tree it is part of.
        timing: When links speak and worry.
    """

    def __init__(self, identity: Identity, tree: Tree, timing: LinkTiming) -> None:
        self.identity = identity
        self.rank = identity.rank
        self.router = Router(tree, identity.rank)
        self.timing = timing
        self.links: dict[int, Link] = {}
        self.neighbours: dict[int, Link] = {}
        self._last_tick: float | None = None
        self._early: list[msg.AnyMessage] = []

    def link_opened(self, now: float, event: ev.LinkOpened) -> Effects:
        """A transport has a new connection."""
        link = self.links[event.link] = Link(event.link, initiator=event.initiator, now=now)
        link.advance(LinkEvent.OPENED)
        if event.initiator:
            hello = self.identity.hello(self.timing.window, link.number)
            return [ev.Transmit((link.number,), hello)]
        return []

    def greeting(self, link: Link, message: msg.AnyMessage) -> Effects:
        """Take a message in before the handshake is complete."""
        if link.initiator and isinstance(message, msg.Welcome):
            link.greet(message, self.identity)
            if link.rank != self.router.parent:
                raise ProtocolError(f"expected rank {self.router.parent}, met {link.rank}")
            self.neighbours[link.rank] = link
            early, self._early = self._early, []
            effects: Effects = [ev.ParentUp()]
            return effects + [ev.Transmit((link.number,), told) for told in early]
        if link.initiator and isinstance(message, msg.Refused):
            return [ev.Disconnect(link.number, message.reason), ev.ParentLost(message.reason)]
        if not link.initiator and isinstance(message, msg.Hello):
            return self._admit(link, message)
        raise ProtocolError(f"unexpected {type(message).__name__} before the handshake")

    def _admit(self, link: Link, hello: msg.Hello) -> Effects:
        reason = self._refusal(hello)
        if not reason:
            try:
                link.greet(hello, self.identity)
            except ProtocolError as error:
                reason = str(error)
        if reason:
            return [
                ev.Transmit((link.number,), msg.Refused(reason)),
                ev.Disconnect(link.number, reason),
            ]
        self.neighbours[link.rank] = link
        effects: Effects = [ev.Transmit((link.number,), self.identity.welcome(self.timing.window))]
        return effects + self._joined(msg.Joined(link.rank, link.incarnation, link.pid))

    def _refusal(self, hello: msg.Hello) -> str:
        if hello.rank not in self.router.children:
            return f"rank {hello.rank} is no child of rank {self.rank}"
        if hello.credential != self.identity.credential:
            return "wrong credential"
        present = self.neighbours.get(hello.rank)
        if present is not None and present.incarnation >= hello.incarnation:
            return f"rank {hello.rank} is taken by a newer process"
        return ""

    def link_closed(self, _now: float, event: ev.LinkClosed) -> Effects:
        """A connection ended."""
        link = self.links.pop(event.link, None)
        if link is None:
            return []
        never_greeted = link.state is LinkState.GREETING
        link.advance(LinkEvent.CLOSED)
        if link.initiator and never_greeted:
            return [ev.ParentLost(event.reason)]
        if self.neighbours.get(link.rank) is not link:
            return []
        del self.neighbours[link.rank]
        if link.rank == self.router.parent:
            return [ev.ParentLost(event.reason)]
        ranks = to_ranges(self.router.covered(link.rank))
        return self._lost(msg.Lost(ranks, event.reason))

    def tick(self, now: float, _event: ev.Tick) -> Effects:
        """Time passed: show life, notice silence."""
        effects: Effects = []
        if self._last_tick is not None:
            # A process that was stopped must not blame its neighbours for the silence.
            late = now - self._last_tick - self.timing.heartbeat
            if late > self.timing.heartbeat:
                for link in self.links.values():
                    link.forgive(late)
        self._last_tick = now
        quiet: list[int] = []
        for link in self.links.values():
            if link.usable and now - link.last_sent >= self.timing.heartbeat / 2:
                link.last_sent = now
                quiet.append(link.number)
            silence = now - link.last_heard
            if silence <= self.timing.failure_after or link.state is LinkState.SUSPECT:
                continue
            if link.state is LinkState.GREETING:
                effects += self._never_greeted(link, silence)
            else:
                link.advance(LinkEvent.SILENT)
                effects.append(ev.PlaceSilent(link.rank, link.number, silence))
        if quiet:
            effects.append(ev.Transmit(tuple(quiet), msg.Heartbeat()))
        return effects

    def _never_greeted(self, link: Link, seconds: float) -> Effects:
        reason = f"no greeting for {seconds:.1f} s"
        effects: Effects = [ev.Disconnect(link.number, reason)]
        return [*effects, ev.ParentLost(reason)] if link.initiator else effects

    def leave(self, _now: float, event: ev.Leave) -> Effects:
        """Say goodbye on every link."""
        links = tuple(link.number for link in self.links.values() if link.usable)
        effects: Effects = [ev.Transmit(links, msg.Goodbye(event.reason))] if links else []
        return effects + [ev.Disconnect(number, event.reason) for number in self.links]

    def on_heartbeat(self, _link: Link, _message: msg.Heartbeat, _payload: Any) -> Effects:
        """The neighbour lives; receiving it said so."""
        return []

    def on_goodbye(self, link: Link, message: msg.Goodbye, _payload: Any) -> Effects:
        """The neighbour left."""
        return [ev.Disconnect(link.number, message.reason or "the other side left")]

    def _joined(self, message: msg.Joined) -> Effects:
        if self.rank == ROOT:
            return [ev.PlaceJoined(message.rank, message.incarnation, message.pid)]
        return self._tell_parent(message)

    def _lost(self, message: msg.Lost) -> Effects:
        if self.rank != ROOT:
            return self._tell_parent(message)
        return [ev.PlacesLost(message.ranks, message.reason)]

    def _tell_parent(self, message: msg.Joined | msg.Lost) -> Effects:
        """Tell the parent of places below; a child may be here before the parent is."""
        if self.router.parent not in self.neighbours:
            self._early.append(message)
        return self.to_parent(message)

    def on_joined(self, link: Link, message: msg.Joined, _payload: Any) -> Effects:
        """A place below is there."""
        self.must_be_below(link, message.rank)
        return self._joined(message)

    def on_lost(self, link: Link, message: msg.Lost, _payload: Any) -> Effects:
        """Places below are gone."""
        if not self.all_below(link, message.ranks):
            raise ProtocolError(f"rank {link.rank} reports the loss of what is not below it")
        return self._lost(message)

    def must_be_below(self, link: Link, rank: int) -> None:
        """Raise ProtocolError where a neighbour speaks of what is not below it."""
        if link.rank not in self.router.children or rank not in self.router.covered(link.rank):
            raise ProtocolError(f"rank {link.rank} speaks of rank {rank}, which is not below it")

    def all_below(self, link: Link, ranks: Ranges) -> bool:
        """Whether there are ranks and all of them are at or below a child."""
        if link.rank not in self.router.children:
            return False
        covered = self.router.covered(link.rank)
        # The bounds come from a peer: they are looked at before they are counted out.
        inside = all(0 <= start < stop <= self.router.size for start, stop in ranks)
        return bool(ranks) and inside and from_ranges(ranks) <= covered

    def to_parent(self, message: msg.AnyMessage, payload: Payload | None = None) -> Effects:
        """Send to the parent, if it is there."""
        parent = self.neighbours.get(self.router.parent)
        return [ev.Transmit((parent.number,), message, payload)] if parent is not None else []

    def links_to(self, ranks: tuple[int, ...]) -> tuple[int, ...]:
        """Return the links to those of these neighbours that are there."""
        neighbours = self.neighbours
        return tuple(neighbours[rank].number for rank in ranks if rank in neighbours)

    def must_be_parent(self, link: Link) -> None:
        """Raise ProtocolError where a neighbour that is not the parent acts as if it were."""
        if link.rank != self.router.parent:
            raise ProtocolError(f"rank {link.rank} is not the parent of rank {self.rank}")
