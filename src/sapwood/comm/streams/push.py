"""Push contributions: what agents send without a wave arrives once and in order. No I/O.

An agent numbers what it sends in a stream, from 1 on in each process, and keeps it until the root
has said that it has it. The root takes number after number and drops all others. Whatever is lost
with a place, the next parent says ``Open`` to those below, and it goes down to the agents: they
send again what they keep. An agent that keeps a window of them is to send no more meanwhile (flow
control). Where the stream is paced, the root confirms only values that were read, so that a slow
reader stops the agents (back-pressure).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sapwood.comm import events as ev
from sapwood.comm import messages as msg
from sapwood.comm.link import Link
from sapwood.comm.messages.push import Taken
from sapwood.comm.peers import Effects, PeerTable
from sapwood.comm.streams.contributors import PushReceived, PushSent
from sapwood.comm.streams.stream import WINDOW, NodeStream, StreamState
from sapwood.core.errors import ResourceError
from sapwood.core.topology import ROOT

TELL_AFTER = WINDOW // 4
"""Contributions of an agent after which the root says at once that it has them; else at a tick."""

MAX_WAITING = 10_000
"""Contributions of one agent that wait: for the end of a quiet time, or to be confirmed."""


class PushContributions:
    """The push contributions at one place.

    Args:
        near: The neighbours.
        streams: The open streams.
        arrived: Told up to which number what this agent has sent in a stream has arrived.
    """

    def __init__(
        self,
        near: PeerTable,
        streams: dict[int, NodeStream],
        arrived: Callable[[NodeStream, int], Effects],
    ) -> None:
        self.open = streams
        self.arrived = arrived
        self._near = near

    # --- at the agent ---------------------------------------------------------------------------

    def emit(self, _now: float, event: ev.Emit) -> Effects:
        """Send a contribution without having been asked, and keep it.

        Raises:
            ResourceError: Too much waits for the end of a quiet time, or to be confirmed.
        """
        stream = self.open.get(event.stream)
        if stream is None:
            return []
        sent = stream.agent.pushed
        waiting = len(stream.quiet_time.deferred) + (len(sent.kept) if sent is not None else 0)
        if waiting >= MAX_WAITING:
            raise ResourceError(f"more than {MAX_WAITING} contributions wait on a stream")
        if stream.quiet:
            stream.quiet_time.deferred.append(event)
            return []
        stream.counters.up(event.body, event.payload)
        if sent is None:
            sent = stream.agent.pushed = PushSent(self._near.identity.incarnation)
        sent.last += 1
        rank = self._near.rank
        ranks = ((rank, rank + 1),)
        message = msg.Up(event.stream, 0, sent.last, ranks, event.weight, event.body)
        sent.kept.append((message, event.payload))
        return self._near.to_parent(message, event.payload) if sent.may_send else []

    def parent_changed(self, stream: NodeStream) -> None:
        """Nothing is sent until the parent is known to have the stream."""
        if stream.agent.pushed is not None:
            stream.agent.pushed.may_send = False

    def again(self, stream: NodeStream) -> Effects:
        """Send again what is not confirmed: the parent has the stream, or has it again."""
        sent = stream.agent.pushed
        if sent is None:
            return []
        sent.may_send = stream.state is not StreamState.QUIET
        effects: Effects = []
        for message, payload in sent.kept if sent.may_send else ():
            effects += self._near.to_parent(message, payload)
        return effects

    def moves_again(self, stream: NodeStream) -> Effects:
        """A quiet time is over: send again what the root did not take in it."""
        return self.again(stream)

    def on_taken(self, link: Link, message: Taken, _payload: Any) -> Effects:
        """The root has contributions."""
        self._near.must_be_parent(link)
        stream = self.open.get(message.stream)
        if stream is None:
            return []
        effects: Effects = []
        below: dict[int, list[tuple[int, int]]] = {}
        for rank, number in message.upto:
            if rank == self._near.rank:
                effects += self._confirmed(stream, number)
            elif self._near.router.is_below(rank):
                hop = self._near.router.next_hop(rank)
                below.setdefault(hop, []).append((rank, number))
        return effects + self._tell(stream, below)

    def _confirmed(self, stream: NodeStream, number: int) -> Effects:
        sent = stream.agent.pushed
        if sent is None:
            return []  # it is the process before this one that had sent it
        while sent.kept and sent.kept[0][0].attempt <= number:
            sent.kept.popleft()
        effects = self.arrived(stream, sent.kept[0][0].attempt - 1 if sent.kept else sent.last)
        if sent.waited_for and len(sent.kept) <= WINDOW // 2:
            sent.waited_for = False
            effects.append(ev.StreamResumed(stream.spec.stream))
        return effects

    # --- at the root ----------------------------------------------------------------------------

    def is_next(self, stream: NodeStream, message: msg.Up) -> bool:
        """Whether a contribution is the next one of its agent; then it counts as taken."""
        rank = message.ranks[0][0]
        heard = stream.arrivals.pushed.get(rank)
        if heard is None:
            heard = stream.arrivals.pushed[rank] = PushReceived()
        if heard.takes(message.attempt):
            return True
        stream.counters.came_twice()
        if message.attempt <= heard.last:
            heard.told = 0  # it is not known there: say it again
        return False

    def told_at_once(self, stream: NodeStream, rank: int) -> Effects:
        """Confirm the values of an agent, if they are many or the agent waits."""
        heard = stream.arrivals.pushed[rank]
        if stream.sweeps or _done(stream, heard) - heard.told >= TELL_AFTER:
            return self._told(stream, [rank])
        return []

    def read(self, _now: float, event: ev.Read) -> Effects:
        """Record that values of an agent were read, so that it may send more."""
        stream = self.open.get(event.stream)
        heard = stream.arrivals.pushed.get(event.rank) if stream is not None else None
        if stream is None or heard is None:
            return []
        heard.unread = max(0, heard.unread - event.count)
        return self.told_at_once(stream, event.rank)

    def tick(self) -> Effects:
        """Confirm what is not confirmed yet."""
        if self._near.rank != ROOT:
            return []
        effects: Effects = []
        for stream in self.open.values():
            if stream.arrivals.pushed:
                effects += self.tell(stream)
        return effects

    def tell(self, stream: NodeStream) -> Effects:
        """Confirm all that has come in a stream."""
        return self._told(
            stream,
            [
                rank
                for rank, heard in stream.arrivals.pushed.items()
                if heard.told < _done(stream, heard)
            ],
        )

    def _told(self, stream: NodeStream, ranks: list[int]) -> Effects:
        below: dict[int, list[tuple[int, int]]] = {}
        for rank in ranks:
            if self._near.router.is_below(rank):
                heard = stream.arrivals.pushed[rank]
                heard.told = _done(stream, heard)
                hop = self._near.router.next_hop(rank)
                below.setdefault(hop, []).append((rank, heard.told))
        return self._tell(stream, below)

    def _tell(self, stream: NodeStream, below: dict[int, list[tuple[int, int]]]) -> Effects:
        number = stream.spec.stream
        return [
            ev.Transmit(self._near.links_to((hop,)), Taken(number, tuple(upto)))
            for hop, upto in sorted(below.items())
        ]


def _done(stream: NodeStream, heard: PushReceived) -> int:
    """Return up to which number an agent is to forget what it has sent.

    A sweep waits for values that have arrived, whether they are read or not.
    """
    return heard.last if stream.sweeps else heard.last - heard.unread


def is_full(stream: NodeStream) -> bool:
    """Whether an agent is to send nothing of itself at present, and hears when it may.

    Example:
        >>> from sapwood.comm.messages import StreamSpec
        >>> from sapwood.comm.routing import Router
        >>> from sapwood.core.topology import kary
        >>> spec = StreamSpec(1, "echo", ((1, 3),))
        >>> is_full(NodeStream(spec, Router(kary(2, 2), 1), None))
        False
    """
    if stream.quiet:
        return True
    sent = stream.agent.pushed
    if sent is None or len(sent.kept) < WINDOW:
        return False
    sent.waited_for = True
    return True
