"""The streams of one place: what it does with waves, contributions and failures. No I/O."""

from typing import Any

from sapwood.comm import events as ev
from sapwood.comm import messages as msg
from sapwood.comm.link import Link
from sapwood.comm.neighbourhood import Effects, Neighbourhood
from sapwood.comm.payload import Payload
from sapwood.comm.streams.stream import Stream
from sapwood.comm.streams.wave import NewGathering, Wave
from sapwood.core.errors import ProtocolError, SapwoodError
from sapwood.core.topology import ROOT

MAX_STREAMS = 4096
"""Streams that are open at one place at a time."""


class Streams:
    """The open streams of one place.

    Args:
        near: The neighbours.
        gather: Makes what puts contributions together.
        is_agent: Whether this place is a leaf.
    """

    def __init__(self, near: Neighbourhood, gather: NewGathering, *, is_agent: bool) -> None:
        self.open: dict[int, Stream] = {}
        self._near = near
        self._gather = gather
        self._is_agent = is_agent

    def open_stream(self, _now: float, event: ev.OpenStream) -> Effects:
        """Root: open a stream to its members."""
        stream = self._new_stream(event.spec)
        return [ev.Transmit(self._near.links_to(stream.children), msg.Open(event.spec))]

    def _new_stream(self, spec: msg.StreamSpec) -> Stream:
        if len(self.open) >= MAX_STREAMS:
            raise ProtocolError(f"more than {MAX_STREAMS} streams are open")
        stream = Stream(spec, self._near.router.towards(spec.members), self._gather)
        self.open[spec.stream] = stream
        return stream

    def close_stream(self, _now: float, event: ev.CloseStream) -> Effects:
        """Root: close a stream."""
        stream = self.open.pop(event.stream, None)
        if stream is None:
            return []
        payloads = [wave.payload for wave in stream.waves.values()]
        effects: Effects = [
            ev.Transmit(self._near.links_to(stream.children), msg.Close(event.stream))
        ]
        return effects + [ev.Released(payload) for payload in payloads if payload is not None]

    def broadcast(self, _now: float, event: ev.Broadcast) -> Effects:
        """Root: begin the next wave of a stream."""
        stream = self.open[event.stream]
        confirmed = stream.confirmed()
        wave = stream.begin(stream.last_wave + 1, 0, event.body, event.payload)
        message = msg.Down(event.stream, wave.number, 0, event.body, confirmed)
        return [ev.Transmit(self._near.links_to(stream.children), message, event.payload)]

    def rejoin(self, _now: float, event: ev.Rejoin) -> Effects:
        """Bring a place that is back into a stream it is a member of."""
        child = self._near.router.next_hop(event.rank)
        stream = self.open.get(event.stream)
        if stream is None or child not in stream.children:
            return []
        links = self._near.links_to((child,))
        effects: Effects = [ev.Transmit(links, msg.Open(stream.spec, event.rank))]
        for wave in stream.waves.values():
            if child in wave.waiting:
                effects.append(self._repeat(stream, wave, child, event.rank, links))
        return effects

    def _repeat(
        self, stream: Stream, wave: Wave, child: int, target: int, links: tuple[int, ...]
    ) -> ev.Effect:
        wave.attempt += 1
        if child == target:
            wave.waiting[child] = wave.attempt
        message = msg.Down(
            stream.spec.stream, wave.number, wave.attempt, wave.body, stream.confirmed(), target
        )
        return ev.Transmit(links, message, wave.payload)

    def on_open(self, link: Link, message: msg.Open, _payload: Any) -> Effects:
        """A stream begins."""
        self._near.must_be_parent(link)
        effects: Effects = []
        if message.target == msg.WHOLE_STREAM or message.target == self._near.rank:  # noqa: PLR1714 - hot
            stream = self._new_stream(message.spec)
            if self._is_agent:
                effects.append(ev.StreamOpened(message.spec))
            links = self._near.links_to(stream.children)
            forward = msg.Open(message.spec)
        else:
            links = self._near.links_to((self._near.router.next_hop(message.target),))
            forward = message
        if links:
            effects.append(ev.Transmit(links, forward))
        return effects

    def on_close(self, link: Link, message: msg.Close, _payload: Any) -> Effects:
        """A stream ends."""
        self._near.must_be_parent(link)
        stream = self.open.pop(message.stream, None)
        if stream is None:
            return []
        effects: Effects = [ev.Released(payload) for payload in stream.held.values()]
        if self._is_agent:
            effects.append(ev.StreamClosed(message.stream))
        links = self._near.links_to(stream.children)
        if links:
            effects.append(ev.Transmit(links, message))
        return effects

    def on_down(self, link: Link, message: msg.Down, payload: Payload | None) -> Effects:
        """A wave on its way to the agents."""
        self._near.must_be_parent(link)
        stream = self.open.get(message.stream)
        if stream is None:
            return []
        effects: Effects = []
        if stream.held:
            effects += [ev.Released(kept) for kept in stream.release(message.confirmed)]
        if message.target == msg.WHOLE_STREAM or message.target == self._near.rank:  # noqa: PLR1714 - hot
            if self._is_agent:
                effects.append(
                    ev.WaveArrived(
                        stream.spec, message.wave, message.attempt, message.body, payload
                    )
                )
                return effects
            stream.begin(message.wave, message.attempt, message.body, payload)
            forward = message if message.target == msg.WHOLE_STREAM else _to_all(message)
            effects.append(ev.Transmit(self._near.links_to(stream.children), forward, payload))
            return effects
        return effects + self._repeat_below(stream, message, payload)

    def _repeat_below(self, stream: Stream, message: msg.Down, payload: Payload | None) -> Effects:
        child = self._near.router.next_hop(message.target)
        wave = stream.waves.get(message.wave)
        if wave is None or child not in wave.waiting:
            return []  # what was lost had been contributed before
        if child == message.target:
            wave.waiting[child] = message.attempt
        return [ev.Transmit(self._near.links_to((child,)), message, payload)]

    def contribute(self, _now: float, event: ev.Contribute) -> Effects:
        """Agent: contribute to a wave."""
        stream = self.open.get(event.stream)
        if stream is None:
            return [ev.Released(event.payload)] if event.payload is not None else []
        if event.payload is not None:
            stream.held[event.wave] = event.payload
        message = msg.Up(
            event.stream,
            event.wave,
            event.attempt,
            ((self._near.rank, self._near.rank + 1),),
            event.weight,
            event.body,
        )
        return self._near.to_parent(message, event.payload)

    def on_up(self, link: Link, message: msg.Up, payload: Payload | None) -> Effects:
        """A contribution of a child."""
        stream = self.open.get(message.stream)
        wave = stream.waves.get(message.wave) if stream is not None else None
        if stream is None or wave is None or not wave.accepts(link.rank, message.attempt):
            return []
        if not self._covers(link, message.ranks):
            raise ProtocolError(f"rank {link.rank} contributes for ranks that are not below it")
        try:
            last = wave.add(link.rank, message, payload)
        except ProtocolError:
            raise  # not to be read, or its memory is gone: the child is cut off and replaced
        except SapwoodError as error:
            return self._wave_failed(
                msg.Failed(
                    message.stream, message.wave, message.attempt, link.rank, error.to_record()
                )
            )
        return self._wave_full(stream, wave) if last else []

    def _covers(self, link: Link, ranks: tuple[tuple[int, int], ...]) -> bool:
        if len(ranks) == 1 and ranks[0] == (link.rank, link.rank + 1):
            return True
        return self._near.all_below(link, ranks)

    def _wave_full(self, stream: Stream, wave: Wave) -> Effects:
        del stream.waves[wave.number]
        number = stream.spec.stream
        try:
            if self._near.rank == ROOT:
                total = wave.gathering.total()
                done = ev.WaveCompleted(number, wave.number, total, wave.ranks, wave.weight)
                return [done] if wave.payload is None else [ev.Released(wave.payload), done]
            body, payload = wave.gathering.partial()
        except SapwoodError as error:
            record = error.to_record()
            return self._wave_failed(
                msg.Failed(number, wave.number, wave.attempt, self._near.rank, record)
            )
        if payload is not None:
            stream.held[wave.number] = payload
        message = msg.Up(number, wave.number, wave.attempt, wave.ranks, wave.weight, body)
        return self._near.to_parent(message, payload)

    def fail(self, _now: float, event: ev.Fail) -> Effects:
        """Agent: cannot contribute to a wave."""
        return self._wave_failed(
            msg.Failed(event.stream, event.wave, event.attempt, self._near.rank, event.error)
        )

    def on_failed(self, link: Link, message: msg.Failed, _payload: Any) -> Effects:
        """A place below could not contribute."""
        self._near.must_be_below(link, message.rank)
        return self._wave_failed(message)

    def _wave_failed(self, message: msg.Failed) -> Effects:
        if self._near.rank != ROOT:
            return self._near.to_parent(message)
        if message.stream not in self.open:
            return []
        return [ev.WaveFailed(message.stream, message.wave, message.rank, message.error)]


def _to_all(message: msg.Down) -> msg.Down:
    return msg.Down(message.stream, message.wave, message.attempt, message.body, message.confirmed)
