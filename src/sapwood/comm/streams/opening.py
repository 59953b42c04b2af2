"""How streams begin and end at one place, and how a place that is attached hears of them."""

from typing import Any

from sapwood.comm import events as ev
from sapwood.comm import messages as msg
from sapwood.comm.link import Link
from sapwood.comm.peers import Effects, PeerTable
from sapwood.comm.streams.control import ControlOperations
from sapwood.comm.streams.engine import WaveEngine
from sapwood.comm.streams.filters import Position
from sapwood.comm.streams.push import PushContributions
from sapwood.comm.streams.stream import NodeStream, StreamEvent, StreamState
from sapwood.comm.streams.wave import NewGathering
from sapwood.core.errors import REPORT_HINT, InternalError, ProtocolError
from sapwood.core.topology import ROOT

MAX_STREAMS = 4096
"""Streams that are open at one place at a time."""


class Opening:
    """Opens and closes the streams of one place.

    The root numbers streams in the order in which it opens them, and every place hears of them in
    that order. So the highest number that a place has heard says how far its news go: a stream
    with a lower number that it does not have is over, and one with a higher number is yet to come.
    A place may know a stream before its new parent does, as they hear of it by different ways.

    Args:
        near: The neighbours.
        streams: The open streams.
        gather: Makes what puts contributions together.
        position: Where this place is.
        control: Has a stream be quiet, or be quiet no more.
        push: Sends what the root has not confirmed to a parent that has the stream.
        engine: Chooses the policy of a stream; forgets the large arrays of one that ends.
    """

    def __init__(
        self,
        near: PeerTable,
        streams: dict[int, NodeStream],
        gather: NewGathering,
        position: Position,
        control: ControlOperations,
        push: PushContributions,
        engine: WaveEngine,
    ) -> None:
        self.open = streams
        self._near = near
        self._gather = gather
        self._control = control
        self._push = push
        self._engine = engine
        self._position = position
        self._is_agent = near.router.tree.is_agent(near.rank)
        self._knows = near.rank == ROOT
        self._newest = 0

    def open_stream(self, _now: float, event: ev.OpenStream) -> Effects:
        """Root: open a stream to its members."""
        if event.spec.stream <= self._newest:
            what = f"stream {event.spec.stream} is opened after {self._newest}"
            raise InternalError(what, hint=REPORT_HINT)
        stream = self._new_stream(event.spec)
        stream.arrivals.paced, stream.partial = event.paced, event.partial
        stream.roster.tree_changed()  # members may have left before who opens it has heard of that
        return self._pass_on(stream, msg.Open(event.spec))

    def _new_stream(self, spec: msg.StreamSpec) -> NodeStream:
        if len(self.open) >= MAX_STREAMS:
            raise ProtocolError(f"more than {MAX_STREAMS} streams are open")
        stream = NodeStream(spec, self._near.router, self._gather, self._position)
        stream.policy = self._engine.policy_of(stream)
        if spec.on_loss != msg.REPLACE and self._near.rank == ROOT:
            stream.roster.absent.update(stream.roster.shares().missing)
        self.open[spec.stream] = stream
        self._newest = max(self._newest, spec.stream)
        return stream

    def close_stream(self, _now: float, event: ev.CloseStream) -> Effects:
        """Root: close a stream."""
        stream = self.open.pop(event.stream, None)
        if stream is None:
            return []
        return self._pass_on(stream, msg.Close(event.stream)) + self._left_over(stream)

    def _pass_on(self, stream: NodeStream, message: msg.Open | msg.Close) -> Effects:
        links = self._near.links_to(stream.roster.children)
        return [ev.Transmit(links, message)] if links else []

    def _left_over(self, stream: NodeStream) -> Effects:
        """Give back what a stream that ends still holds at this place."""
        stream.advance(StreamEvent.CLOSE)
        self._engine.bulk.over(stream.spec.stream, lambda _wave: True)
        payloads = [*stream.held(), *(payload for _, payload in stream.loaned)]
        if self._near.rank == ROOT:
            payloads += stream.values()
        effects: Effects = [ev.Released(payload) for payload in payloads]
        if self._is_agent or stream.filters.newest is not None:
            effects.append(ev.StreamClosed(stream.spec.stream))
        return effects

    def child_came(self, rank: int, *, fresh: bool) -> Effects:
        """Send an attached place the streams that concern it."""
        links = self._near.links_to((rank,))
        streams = [self.open[number] for number in sorted(self.open)]
        streams = [stream for stream in streams if stream.roster.concerns(rank)]
        effects: Effects = [ev.Transmit(links, msg.Open(stream.spec)) for stream in streams]
        quiet = tuple(stream.spec.stream for stream in streams if stream.quiet)
        if fresh and not quiet and self._near.router.tree.is_agent(rank):
            return effects  # it has none that could have ended, and sends no notices
        if not self._knows:
            return effects  # all children hear the rest when this place does
        numbers = tuple(stream.spec.stream for stream in streams)
        # Last: a place that has heard it tells others, and must have all streams by then.
        return [*effects, ev.Transmit(links, msg.OpenStreams(numbers, quiet, self._newest))]

    def on_open_streams(self, link: Link, message: msg.OpenStreams, _payload: Any) -> Effects:
        """The parent, or one above it, is new and says which streams are open.

        Of the others those are over that are not newer than all it has heard of.
        """
        self._near.must_be_parent(link)
        self._knows = True
        self._newest = max(self._newest, message.newest)
        links = self._near.links_to(self._near.router.children)
        effects: Effects = [ev.Transmit(links, message)] if links else []
        for number in sorted(self.open.keys() - set(message.streams)):
            if number <= message.newest:
                effects += self._close(number)
        for number in message.streams:
            stream = self.open.get(number)
            if stream is None:
                continue  # it does not concern this place
            if stream.quiet != (number in message.quiet):  # a sweep has passed by the former parent
                effects += self._control.follow(link.last_heard, stream)
            elif stream.state is StreamState.DRAINING:  # what it waits for came by elsewhere
                stream.settle()
        return effects

    def parent_changed(self) -> None:
        """Until the new parent has said which streams are open, it is not known here."""
        self._knows = False

    def on_open(self, link: Link, message: msg.Open, _payload: Any) -> Effects:
        """A stream begins."""
        self._near.must_be_parent(link)
        known = self.open.get(message.spec.stream)
        if known is not None:
            news = not self._is_agent and known.take_versions(message.spec)
            if not known.waits:
                return self._push.again(known) + self._pass_on(known, message)
            # Those below may lack what this place did.
            return self._pass_on(known, msg.Open(known.spec)) if news else []
        stream = self._new_stream(message.spec)
        effects: Effects = [ev.StreamOpened(message.spec)] if self._is_agent else []
        return effects + self._pass_on(stream, message)

    def on_close(self, link: Link, message: msg.Close, _payload: Any) -> Effects:
        """A stream ends."""
        self._near.must_be_parent(link)
        return self._close(message.stream)

    def _close(self, number: int) -> Effects:
        stream = self.open.pop(number, None)
        if stream is None:
            return []
        return self._left_over(stream) + self._pass_on(stream, msg.Close(number))
