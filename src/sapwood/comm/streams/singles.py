"""Streams that do not wait: each contribution goes up by itself, at once.

The root knows which agents have answered a wave, so each answer counts once, however often a
place on its way was replaced. What agents send without being asked belongs to wave 0.
"""

from __future__ import annotations

from sapwood.comm import events as ev
from sapwood.comm import messages as msg
from sapwood.comm.payload import Payload
from sapwood.comm.peers import Effects, PeerTable
from sapwood.comm.streams.stream import Stream
from sapwood.comm.streams.wave import Wave
from sapwood.core.topology import ROOT


class Singles:
    """Passes contributions on one by one.

    Args:
        near: The neighbours.
    """

    def __init__(self, near: PeerTable) -> None:
        self._near = near

    def begin(self, stream: Stream, message: msg.Down, payload: Payload | None) -> Wave:
        """Root: begin a wave that all members are to answer."""
        return stream.begin(message.wave, message.body, payload, {}, set(stream.members))

    def send_on(self, stream: Stream, message: msg.Up, payload: Payload | None) -> Effects:
        """Send a contribution to the root, or take it in there."""
        if self._near.rank != ROOT:
            return self._send_up(stream, message, payload)
        if not message.wave:
            return [self._told(stream, message, payload)] if message.body else []
        wave = stream.waves.get(message.wave)
        rank = message.ranks[0][0]
        if wave is None or rank not in wave.missing:
            stream.repeated()
            return [ev.Released(payload)] if payload is not None else []
        wave.missing.discard(rank)
        wave.add_rank(message)
        effects: Effects = [self._told(stream, message, payload)] if message.body else []
        return effects if wave.missing else effects + self.complete(stream, wave)

    def complete(self, stream: Stream, wave: Wave) -> Effects:
        """Root: tell that all members have answered."""
        del stream.waves[wave.number]
        done = ev.WaveCompleted(stream.spec.stream, wave.number, None, wave.ranks, wave.weight)
        return [done] if wave.payload is None else [ev.Released(wave.payload), done]

    def _send_up(self, stream: Stream, message: msg.Up, payload: Payload | None) -> Effects:
        effects: Effects = []
        if payload is not None and payload.owner is not None:
            if message.wave:
                stream.lent.append((message.wave, payload))
            else:  # nothing confirms it: its memory must not be needed
                effects.append(ev.Released(payload))
                payload = Payload(bytes(payload.view))
        return self._near.to_parent(message, payload) + effects

    def _told(self, stream: Stream, message: msg.Up, payload: Payload | None) -> ev.Effect:
        number = stream.spec.stream
        if stream.paced and not message.wave:
            stream.heard[message.ranks[0][0]].unread += 1
        return ev.Contributed(
            number, message.wave, message.ranks, message.weight, message.body, payload
        )
