"""The peer table of one place: handshake, heartbeat time-out, who hangs where. No I/O.

:meth:`PeerTable.tick` sends heartbeats and detects failures: a peer from which nothing is heard
for ``LinkTiming.failure_after`` seconds has missed the heartbeat time-out. A child that does so is
condemned and its link is closed; while a parent is silent, this place asks one further up.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import msgspec

from sapwood.comm import events as ev
from sapwood.comm import messages as msg
from sapwood.comm.attachment import Attachment, Effects
from sapwood.comm.link import Identity, Link, LinkEvent, LinkState, LinkTiming
from sapwood.comm.payload import Payload
from sapwood.comm.routing import FENCED, Router
from sapwood.core.errors import ProtocolError
from sapwood.core.rankset import Ranges, from_ranges, to_ranges
from sapwood.core.topology import ROOT, Tree

__all__ = ["Effects", "PeerListener", "PeerTable"]

MEASURE_AFTER = 2
"""A link between machines that is never quiet has a heartbeat after so many times
``LinkTiming.heartbeat``, so that its round trip is measured all the same."""


class PeerListener(Protocol):
    """The layer above, told of changes around a place."""

    def child_came(self, rank: int, *, fresh: bool) -> Effects:
        """A place was attached to this one; a fresh process knows of nothing yet."""

    def child_left(self, rank: int, *, lost: bool) -> Effects:
        """A place is attached to this one no more, and will not answer; or it is elsewhere."""

    def places_came(self, ranks: Sequence[int]) -> Effects:
        """Places can be reached below this one."""

    def places_left(self, ranks: Sequence[int], reason: str, top: int) -> Effects:
        """Places cannot be reached below this one any more; the link of ``top`` is gone."""

    def places_moved(self, ranks: Sequence[int]) -> Effects:
        """Places are reached by another child than before."""

    def parent_changed(self, reason: str) -> Effects:
        """What the former parent asked for is not to be answered any more."""


class PeerTable:
    """The peers of a place, parent and children, and what they tell of places further away.

    Args:
        identity: Who this place is.
        tree: The tree as it was planned.
        timing: When links speak and worry.
    """

    listener: PeerListener

    def __init__(self, identity: Identity, tree: Tree, timing: LinkTiming) -> None:
        self.identity = identity
        self.rank = identity.rank
        self.router = Router(tree, identity.rank)
        self.attachment = Attachment(self.router.ancestors, timing)
        self.timing = timing
        self.links: dict[int, Link] = {}
        self.peers: dict[int, Link] = {}
        self._last_tick: float | None = None

    # --- links -------------------------------------------------------------------------------

    def unreachable(self, now: float, event: ev.Unreachable) -> Effects:
        """No process accepts connections at a place."""
        return self.attachment.unreachable(now, event.rank, self.router.parent, absent=event.absent)

    def try_again(self, _now: float, event: ev.TryAgain) -> Effects:
        """A place nearer home may be reached now."""
        return self.attachment.called(event.rank, self.router.parent)

    def link_opened(self, now: float, event: ev.LinkOpened) -> Effects:
        """A transport has a new connection."""
        link = self.links[event.link] = Link(event.link, initiator=event.initiator, now=now)
        link.advance(LinkEvent.OPENED)
        if event.initiator and self.attachment.sought == msg.NOBODY:
            return [ev.Disconnect(link.number, "no longer wanted")]
        if not event.initiator:
            return []
        epoch = self.router.tree.epoch
        attachment = self.attachment
        attachment.asked(link.number, epoch)
        hello = self.identity.hello(
            self.timing.window, link.number, attachment.number, attachment.sought
        )
        if epoch:
            hello = msgspec.structs.replace(hello, epoch=epoch)
        return [ev.Transmit((link.number,), hello)]

    def greeting(self, link: Link, message: msg.AnyMessage) -> Effects:
        """Take a message in before the handshake is complete."""
        if link.initiator and isinstance(message, msg.Welcome):
            return self._welcomed(link, message)
        if link.initiator and isinstance(message, msg.Refused):
            refused: Effects = [ev.Disconnect(link.number, message.reason)]
            return refused + self.attachment.refused(message.reason)
        if not link.initiator and isinstance(message, msg.Hello):
            return self._admit(link, message)
        raise ProtocolError(f"unexpected {type(message).__name__} before the handshake")

    def _welcomed(self, link: Link, message: msg.Welcome) -> Effects:
        if link.number != self.attachment.link:
            return [ev.Disconnect(link.number, "no longer wanted")]
        epoch = self.router.tree.epoch
        if epoch > self.attachment.epoch:  # the former parent told it meanwhile: ask again
            return [ev.Disconnect(link.number, f"epoch {epoch} has come since it was asked")]
        link.greet(message, self.identity)
        if link.rank != self.attachment.sought or link.rank not in self.router.ancestors:
            raise ProtocolError(f"expected rank {self.attachment.sought}, met {link.rank}")
        self.attachment.welcomed()
        effects: Effects = []
        former = self.peers.pop(self.router.parent, None)
        if former is not None:
            effects.append(ev.Disconnect(former.number, f"moved to rank {link.rank}"))
        self.router.parent = link.rank
        self.peers[link.rank] = link
        effects.append(ev.ParentUp())
        below = self.router.everybody()
        if below:
            effects.append(ev.Transmit((link.number,), msg.Attached(below)))
        return effects + self.listener.parent_changed(f"it moved to rank {link.rank}")

    def _admit(self, link: Link, hello: msg.Hello) -> Effects:
        newer = hello.rank >= self.router.size or hello.epoch > self.router.tree.epoch
        if newer and self.identity.accepts(hello.rank, hello.credential):
            # This place will hear of that epoch: the peer must ask again, here or further up. So no
            # process attaches to a place that knows an older tree.
            return [ev.Disconnect(link.number, f"epoch {hello.epoch} has not come here yet")]
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
        effects: Effects = [ev.Transmit((link.number,), self.identity.welcome(self.timing.window))]
        former = self.peers.pop(link.rank, None)
        if former is not None:
            effects.append(ev.Disconnect(former.number, "replaced by a newer link"))
            gone = self.router.detach(former.rank, former.incarnation, former.attachment)
            effects += self._unreachable(gone, "replaced by a newer link")
            effects += self.listener.child_left(
                link.rank, lost=former.incarnation != link.incarnation
            )
        placed = msg.Placed(link.rank, link.incarnation, link.attachment, link.pid, self.rank)
        self.peers[link.rank] = link
        effects += self._told(msg.Attached((placed,), link.rank))
        effects += self.listener.child_came(link.rank, fresh=link.attachment == 1)
        effects += self.listener.places_came((link.rank,))
        return effects if link.same_machine else effects + self._send_home(link)

    def _send_home(self, link: Link) -> Effects:
        """Tell a child that was long on its way here that a place nearer its home is there again.

        On one machine that place takes longer to begin than the child to come.
        """
        for above in self.router.tree.ancestors(link.rank):
            if above == self.rank:
                break
            if self.router.placed(above) is not None:
                return [ev.Transmit((link.number,), msg.Return(above))]
        return []

    def _refusal(self, hello: msg.Hello) -> str:
        if not self.router.is_home(hello.rank):
            return f"rank {hello.rank} has no home below rank {self.rank}"
        if not self.identity.accepts(hello.rank, hello.credential):
            return "wrong credential"
        if self.router.knows(hello.rank, hello.incarnation, hello.attachment):
            return f"rank {hello.rank} is stale: a newer process has its place, or it was given up"
        return ""

    def link_closed(self, now: float, event: ev.LinkClosed) -> Effects:
        """A connection ended."""
        link = self.links.pop(event.link, None)
        if link is None:
            return []
        link.advance(LinkEvent.CLOSED)
        if link.number == self.attachment.link:
            sought, parent = self.attachment.sought, self.router.parent
            return self.attachment.unreachable(now, sought, parent)
        if self.peers.get(link.rank) is not link:
            return []
        del self.peers[link.rank]
        if link.rank == self.router.parent:
            self.router.parent = msg.NOBODY
            return self.listener.parent_changed(event.reason) + self.attachment.lost(now)
        return self._child_lost(link, event.reason, condemned=False)

    def leave(self, _now: float, event: ev.Leave) -> Effects:
        """Say goodbye on every link."""
        links = tuple(link.number for link in self.links.values() if link.usable)
        goodbye = msg.Goodbye(event.reason, all_end=True)
        effects: Effects = [ev.Transmit(links, goodbye)] if links else []
        return effects + [ev.Disconnect(number, event.reason) for number in self.links]

    def on_goodbye(self, link: Link, message: msg.Goodbye, _payload: Any) -> Effects:
        """The neighbour ends the link; where the tree ends, so does this place."""
        reason = message.reason or "the other side left"
        above = link.rank == self.router.parent
        if not above or not (link.rank == ROOT or message.all_end):
            return [ev.Disconnect(link.number, reason)]
        del self.peers[link.rank]
        return self.leave(0.0, ev.Leave(reason)) + self.attachment.refused(reason)

    # --- time --------------------------------------------------------------------------------

    def tick(self, now: float, _event: ev.Tick) -> Effects:
        """Send heartbeats where nothing else was sent; find peers past the heartbeat time-out."""
        effects: Effects = []
        if self._last_tick is not None:
            # A process that was stopped must not blame its neighbours for the silence.
            late = now - self._last_tick - self.timing.heartbeat
            if late > self.timing.heartbeat:
                for link in self.links.values():
                    link.forgive(late)
        self._last_tick = now
        alive: Effects = []
        for link in tuple(self.links.values()):
            if link.usable and self._beats(link, now):
                alive.append(ev.Transmit((link.number,), link.beat(now)))
            if now - link.last_heard > self.timing.failure_after:
                effects += self._silent(link, now - link.last_heard)
        return alive + effects

    def _beats(self, link: Link, now: float) -> bool:
        """Whether a link needs a heartbeat: to say that this place lives, or to measure it."""
        heartbeat = self.timing.heartbeat
        if now - link.last_sent >= heartbeat / 2:
            return True
        return not link.same_machine and now - link.last_beat >= MEASURE_AFTER * heartbeat

    def _silent(self, link: Link, seconds: float) -> Effects:
        """Act on a heartbeat time-out."""
        reason = f"nothing heard for {seconds:.1f} s"
        if link.state is LinkState.GREETING:
            return [ev.Disconnect(link.number, f"no greeting for {seconds:.1f} s")]
        if self.peers.get(link.rank) is not link:
            return []
        if link.rank == self.router.parent:
            return self._parent_silent(link, seconds)
        link.advance(LinkEvent.SILENT)
        del self.peers[link.rank]
        effects: Effects = [ev.PlaceSilent(link.rank, link.number, seconds)]
        effects += self._child_lost(link, reason, condemned=True)
        return [*effects, ev.Disconnect(link.number, reason)]

    def _parent_silent(self, link: Link, seconds: float) -> Effects:
        effects: Effects = []
        if link.state is not LinkState.SUSPECT:
            link.advance(LinkEvent.SILENT)
            effects.append(ev.PlaceSilent(link.rank, link.number, seconds))
        return effects + self.attachment.silent(link.rank)

    def on_heartbeat(self, link: Link, message: msg.Heartbeat, _payload: Any) -> Effects:
        """The neighbour lives; receiving it said so."""
        link.beaten(message)
        return []

    # --- who hangs where -----------------------------------------------------------------------

    def on_attached(self, link: Link, message: msg.Attached, _payload: Any) -> Effects:
        """Places below a child are there."""
        if message.anew != msg.NOBODY:
            self.must_be_below(link, message.anew)
        for placed in message.places:
            self.must_be_below(link, placed.rank)
            if not self.router.may_tell(link.rank, placed):
                raise ProtocolError(
                    f"rank {link.rank} attaches rank {placed.rank} to rank {placed.parent}"
                )
        came = [placed.rank for placed in message.places]
        stale: Effects = [
            ev.Transmit((link.number,), msg.Release(placed.rank, *self.router.newest(placed.rank)))
            for placed in message.places
            if self.router.is_stale(placed.rank, placed.incarnation, placed.attachment)
        ]
        return stale + self._told(message) + self.listener.places_came(came)

    def _told(self, message: msg.Attached) -> Effects:
        """Take in where places are, and tell those above and those who had them before."""
        effects: Effects = []
        router = self.router
        news, gone = list[msg.Placed](), list[int]()
        for placed in message.places:
            before, former = router.next_hop(placed.rank), router.placed(placed.rank)
            if not router.attach(placed):
                continue
            news.append(placed)
            if former is not None and former.incarnation != placed.incarnation:
                gone += router.clear_below(placed.rank)  # they were below another process
            if before not in (router.parent, router.next_hop(placed.rank)):
                effects += self._let_go(before, placed)
                effects += self.listener.places_moved(router.subtree(placed.rank))
        if not news:
            return effects
        # Processes below a place that attaches again send their own notices if they still live.
        anew = message.anew if message.anew == news[0].rank else msg.NOBODY
        gone += router.clear_below(anew) if anew != msg.NOBODY else []
        effects += self.to_parent(msg.Attached(tuple(news), anew))
        gone = [rank for rank in gone if router.placed(rank) is None]
        effects += self._unreachable(gone, f"rank {news[0].rank} was attached anew")
        if self.rank == ROOT:
            effects += [ev.PlaceJoined(one.rank, one.incarnation, one.pid) for one in news]
        return effects + [effect for one in news for effect in self._call_home(one.rank)]

    def _let_go(self, before: int, placed: msg.Placed) -> Effects:
        """Make former holders of a place drop it, and forget their part of the tree."""
        former = self.peers.get(before)
        if former is None:
            return []
        if before != placed.rank:
            release = msg.Release(placed.rank, placed.incarnation, placed.attachment)
            return [ev.Transmit((former.number,), release)]
        del self.peers[before]  # it was here and is at one of our children now
        reason = f"moved to rank {placed.parent}"
        return [ev.Disconnect(former.number, reason), *self.listener.child_left(before, lost=False)]

    def _call_home(self, rank: int) -> Effects:
        """Tell places that were taken over that one nearer to their home is there again."""
        tree = self.router.tree
        spare = tree.spare_beside(rank)  # it may have some of them, and tells them
        links = [
            link.number
            for child, link in self.peers.items()
            if child not in (self.router.parent, rank)
            and (child == spare or tree.parents[child] != self.rank)
            and (child == spare or self.router.is_home(child, rank))
        ]
        return [ev.Transmit(tuple(links), msg.Return(rank))] if links else []

    def on_return(self, link: Link, message: msg.Return, _payload: Any) -> Effects:
        """A place nearer home is there again."""
        self.must_be_parent(link)
        called = self.attachment.called(message.parent, link.rank)
        is_spare = self.rank in self.router.tree.spares
        return called + self._call_home(message.parent) if is_spare else called

    def on_release(self, link: Link, message: msg.Release, _payload: Any) -> Effects:
        """A place that was below is attached elsewhere."""
        self.must_be_parent(link)
        router = self.router
        if router.is_stale(message.rank, message.incarnation, message.attachment):
            return []
        hop = router.next_hop(message.rank)
        former = self.peers.get(hop) if hop != router.parent else None
        gone = router.detach(message.rank, message.incarnation, message.attachment - 1)
        router.note(message.rank, message.incarnation, message.attachment)
        left = self.listener.places_left(gone, "attached elsewhere", msg.NOBODY) if gone else []
        if former is None:
            return left
        if hop != message.rank:
            return [ev.Transmit((former.number,), message), *left]
        if not gone:
            return []  # it is this attachment that is meant
        del self.peers[hop]
        effects: Effects = [ev.Disconnect(former.number, "attached elsewhere"), *left]
        return effects + self.listener.child_left(hop, lost=False)

    def _child_lost(self, link: Link, reason: str, *, condemned: bool) -> Effects:
        if condemned:
            self.router.note(link.rank, link.incarnation, FENCED)
        told = msg.Detached(link.rank, link.incarnation, link.attachment, reason, condemned)
        return self._detach(told) + self.listener.child_left(link.rank, lost=True)

    def on_detached(self, link: Link, message: msg.Detached, _payload: Any) -> Effects:
        """A place below has lost a child."""
        self.must_be_below(link, message.rank)
        return self._detach(message)

    def _detach(self, message: msg.Detached) -> Effects:
        gone = self.router.detach(message.rank, message.incarnation, message.attachment)
        if not gone:
            return []
        if message.condemned:
            self.router.note(message.rank, message.incarnation, FENCED)
        return self.to_parent(message) + self._unreachable(
            gone, message.reason, message.rank, condemned=message.condemned
        )

    def _unreachable(
        self, gone: list[int], reason: str, top: int = msg.NOBODY, *, condemned: bool = False
    ) -> Effects:
        if not gone:
            return []
        effects: Effects = []
        if self.rank == ROOT:
            effects.append(ev.PlacesLost(to_ranges(gone), reason, top, condemned))
        return effects + self.listener.places_left(gone, reason, top)

    def dismiss(self, rank: int, incarnation: int) -> Effects:
        """Disconnect a process whose place was removed, and refuse it from now on."""
        gone = self.router.detach(rank, incarnation, FENCED)
        effects = self._unreachable(gone, "it was removed")
        link = self.peers.get(rank)
        if link is None or rank == self.router.parent:
            return effects
        del self.peers[rank]
        reason = "this place was removed"
        goodbye = ev.Transmit((link.number,), msg.Goodbye(reason, all_end=True))
        effects += [goodbye, ev.Disconnect(link.number, reason)]
        return effects + self.listener.child_left(rank, lost=True)

    # --- for the layers above --------------------------------------------------------------------

    def must_be_below(self, link: Link, rank: int) -> None:
        """Raise ProtocolError where a neighbour speaks of what cannot be below it."""
        if link.rank == self.router.parent or not self.router.may_speak_for(link.rank, rank):
            raise ProtocolError(f"rank {link.rank} speaks of rank {rank}, which is not below it")

    def must_be_parent(self, link: Link) -> None:
        """Raise ProtocolError where a neighbour that is not the parent acts as if it were."""
        if link.rank != self.router.parent:
            raise ProtocolError(f"rank {link.rank} is not the parent of rank {self.rank}")

    def all_below(self, link: Link, ranks: Ranges) -> bool:
        """Whether there are ranks and all of them can be at or below a child."""
        if link.rank == self.router.parent or not ranks:
            return False
        # The bounds come from a peer: they are looked at before they are counted out.
        inside = all(0 <= start < stop <= self.router.size for start, stop in ranks)
        return inside and all(
            self.router.may_speak_for(link.rank, rank) for rank in from_ranges(ranks)
        )

    @property
    def shares_with_parent(self) -> bool:
        """Whether the parent can map this place's memory."""
        parent = self.peers.get(self.router.parent)
        return parent is not None and parent.same_machine

    def to_parent(self, message: msg.AnyMessage, payload: Payload | None = None) -> Effects:
        """Send to the parent, if it is there."""
        parent = self.peers.get(self.router.parent)
        return [ev.Transmit((parent.number,), message, payload)] if parent is not None else []

    def links_to(self, ranks: Iterable[int]) -> tuple[int, ...]:
        """Return the links to those of these neighbours that are there."""
        return tuple(self.peers[rank].number for rank in ranks if rank in self.peers)
