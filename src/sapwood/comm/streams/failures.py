"""What a place does with waves that fail: the root ends them, everywhere. No I/O."""

from __future__ import annotations

from typing import Any

from sapwood.comm import events as ev
from sapwood.comm import messages as msg
from sapwood.comm.link import Link
from sapwood.comm.peers import Effects, PeerTable
from sapwood.comm.streams.large import Large
from sapwood.comm.streams.stream import Stream
from sapwood.core.topology import ROOT


class Failures:
    """Failures of the waves at one place.

    Args:
        near: The neighbours.
        streams: The open streams.
        large: Large arrays on their way.
    """

    def __init__(self, near: PeerTable, streams: dict[int, Stream], large: Large) -> None:
        self.open = streams
        self._near = near
        self._large = large

    def on_failed(self, link: Link, message: msg.Failed, _payload: Any) -> Effects:
        """A place below could not contribute."""
        self._near.must_be_below(link, message.rank)
        return self.wave_failed(message)

    def wave_failed(self, message: msg.Failed) -> Effects:
        """Tell the root of a failure; there, end the wave everywhere."""
        stream = self.open.get(message.stream)
        wave = stream.waves.pop(message.wave, None) if stream is not None else None
        if wave is not None:
            self._large.over(message.stream, message.wave.__eq__)
        if self._near.rank != ROOT:
            return self._near.to_parent(message)
        if stream is None:
            return []
        if wave is None and message.wave:
            self._failed_late(stream, message)
            return []
        stream.late_waves.pop(message.wave, None)
        failed = ev.WaveFailed(message.stream, message.wave, message.rank, message.error)
        if wave is None:
            return [failed]
        links = self._near.links_to(stream.children)
        abandon = msg.Abandon(message.stream, message.wave, stream.confirmed())
        effects = _in_order(stream, ev.Transmit(links, abandon))
        if wave.payload is not None:
            effects.append(ev.Released(wave.payload))
        return [*effects, failed]

    def _failed_late(self, stream: Stream, message: msg.Failed) -> None:
        """Note that somebody could not contribute to a wave whose time is over."""
        wave = stream.late_waves.get(message.wave)
        if wave is None or message.rank in wave.given_up:
            return
        wave.without({message.rank})
        if stream.counters is not None:
            stream.counters.late += 1
        if stream.counts_late:
            stream.carried.append((message, None))

    def on_abandon(self, link: Link, message: msg.Abandon, _payload: Any) -> Effects:
        """A wave failed elsewhere: forget it."""
        self._near.must_be_parent(link)
        stream = self.open.get(message.stream)
        if stream is None:
            return []
        stream.abandon(message.wave)
        self._large.over(message.stream, message.wave.__eq__)
        effects: Effects = [ev.Released(kept) for kept in stream.forget(message.wave)]
        links = self._near.links_to(stream.children)
        return effects + _in_order(stream, ev.Transmit(links, message)) if links else effects


def _in_order(stream: Stream, effect: ev.Effect) -> Effects:
    """Send after what still is in a filter."""
    return [effect] if stream.outbox is None else stream.outbox.put([effect])
