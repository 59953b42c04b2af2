"""How streams begin and end at one place, and how a place that is back comes into them."""

from typing import Any

from sapwood.comm import events as ev
from sapwood.comm import messages as msg
from sapwood.comm.link import Link
from sapwood.comm.neighbourhood import Effects, Neighbourhood
from sapwood.comm.streams.filtering import sent_to
from sapwood.comm.streams.life import StreamEvent
from sapwood.comm.streams.stream import Position, Stream
from sapwood.comm.streams.wave import NewGathering, Wave
from sapwood.core.errors import ProtocolError
from sapwood.core.topology import ROOT

MAX_STREAMS = 4096
"""Streams that are open at one place at a time."""


class Opening:
    """Opens and closes the streams of one place.

    Args:
        near: The neighbours.
        streams: The open streams.
        gather: Makes what puts contributions together.
        position: Where this place is.
        is_agent: Whether it is a leaf.
    """

    def __init__(
        self,
        near: Neighbourhood,
        streams: dict[int, Stream],
        gather: NewGathering,
        position: Position,
        *,
        is_agent: bool,
    ) -> None:
        self.open = streams
        self._near = near
        self._gather = gather
        self._position = position
        self._is_agent = is_agent

    def open_stream(self, _now: float, event: ev.OpenStream) -> Effects:
        """Root: open a stream to its members."""
        stream = self._new_stream(event.spec)
        return [ev.Transmit(self._near.links_to(stream.children), msg.Open(event.spec))]

    def _new_stream(self, spec: msg.StreamSpec) -> Stream:
        if len(self.open) >= MAX_STREAMS:
            raise ProtocolError(f"more than {MAX_STREAMS} streams are open")
        children = self._near.router.towards(spec.members)
        stream = Stream(spec, children, self._gather, self._position)
        if spec.on_loss != msg.REPLACE:
            here = self._near.neighbours
            stream.absent.update(child for child in children if child not in here)
        self.open[spec.stream] = stream
        return stream

    def close_stream(self, _now: float, event: ev.CloseStream) -> Effects:
        """Root: close a stream."""
        stream = self.open.pop(event.stream, None)
        if stream is None:
            return []
        effects: Effects = [
            ev.Transmit(self._near.links_to(stream.children), msg.Close(event.stream))
        ]
        return effects + self._left_over(stream)

    def _left_over(self, stream: Stream) -> Effects:
        """Give back what a stream that ends still holds at this place."""
        stream.advance(StreamEvent.CLOSE)
        payloads = [*stream.held.values(), *(payload for _, payload in stream.lent)]
        if self._near.rank == ROOT:
            payloads += [w.payload for w in stream.waves.values() if w.payload is not None]
        effects: Effects = [ev.Released(payload) for payload in payloads]
        if self._is_agent or stream.filters is not None:
            effects.append(ev.StreamClosed(stream.spec.stream))
        return effects

    def rejoin(self, _now: float, event: ev.Rejoin) -> Effects:
        """Bring a place that is back into a stream it is a member of."""
        child = self._near.router.next_hop(event.rank)
        stream = self.open.get(event.stream)
        if stream is None or child not in stream.children:
            return []
        if stream.quiet:
            stream.detained.append(event)
            return []
        links = self._near.links_to((child,))
        effects: Effects = [ev.Transmit(links, msg.Open(stream.spec, event.rank))]
        if not stream.waits:
            stream.absent -= self._near.router.covered(child)
        elif child == event.rank:
            stream.absent.discard(child)
        for wave in stream.waves.values():
            if self._misses(stream, wave, child):
                effects += self._repeat(stream, wave, child, event.rank, links)
        return effects

    def _misses(self, stream: Stream, wave: Wave, child: int) -> bool:
        if stream.waits:
            return child in wave.waiting
        return not self._near.router.covered(child).isdisjoint(wave.waiting)

    def _repeat(
        self, stream: Stream, wave: Wave, child: int, target: int, links: tuple[int, ...]
    ) -> Effects:
        wave.attempt += 1
        if child == target and stream.waits:
            wave.waiting[child] = wave.attempt
        sent = sent_to(stream, wave, child)
        if sent is None:
            return []  # it gets the value as soon as the filter has made it
        message = msg.Down(
            stream.spec.stream,
            wave.number,
            wave.attempt,
            sent[0],
            stream.confirmed(),
            target,
            wave.version,
        )
        return [ev.Transmit(links, message, sent[1])]

    def on_open(self, link: Link, message: msg.Open, _payload: Any) -> Effects:
        """A stream begins."""
        self._near.must_be_parent(link)
        effects: Effects = []
        if message.target == msg.WHOLE_STREAM or message.target == self._near.rank:  # noqa: PLR1714 - hot
            stream = self.open.get(message.spec.stream)
            if stream is None:
                stream = self._new_stream(message.spec)
                if self._is_agent:
                    effects.append(ev.StreamOpened(message.spec))
            links = self._near.links_to(stream.children)
            forward = msg.Open(message.spec)
        else:
            child = self._near.router.next_hop(message.target)
            links = self._near.links_to((child,))
            forward = message
            known = self.open.get(message.spec.stream)
            if known is not None and child == message.target:
                known.absent.discard(child)
        if links:
            effects.append(ev.Transmit(links, forward))
        return effects

    def on_close(self, link: Link, message: msg.Close, _payload: Any) -> Effects:
        """A stream ends."""
        self._near.must_be_parent(link)
        stream = self.open.pop(message.stream, None)
        if stream is None:
            return []
        effects = self._left_over(stream)
        links = self._near.links_to(stream.children)
        if links:
            effects.append(ev.Transmit(links, message))
        return effects
