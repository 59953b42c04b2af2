"""Time-outs: a wave is passed on when its time is over, and what comes later is not lost.

No clock is read here: times come with events, and :class:`~sapwood.comm.events.Wake` asks for
one. A stream has one such request under way at a place, however many waves are open.
"""

from __future__ import annotations

import msgspec

from sapwood.comm import events as ev
from sapwood.comm import messages as msg
from sapwood.comm.neighbourhood import Effects
from sapwood.comm.payload import Payload
from sapwood.comm.streams.losses import OnFailed, OnFull
from sapwood.comm.streams.stream import Stream
from sapwood.comm.streams.wave import Wave
from sapwood.core.errors import ProtocolError, SapwoodError


class Delays:
    """Ends waves in time.

    Args:
        rank: This place.
        full: Passes a wave on.
        failed: Fails a wave.
    """

    def __init__(self, rank: int, full: OnFull, failed: OnFailed) -> None:
        self._rank = rank
        self._full = full
        self._failed = failed

    def begun(self, now: float, stream: Stream, wave: Wave) -> Effects:
        """Note when the time of a new wave is over, and give it what came too late before."""
        effects: Effects = []
        if stream.timeout:
            stream.deadlines.append((now + stream.timeout, wave.number))
            if len(stream.deadlines) == 1:
                effects.append(ev.Wake(stream.spec.stream, stream.timeout))
        carried, stream.carried = stream.carried, []
        for message, payload in carried:
            effects += self._add_late(stream, wave, message, payload)
        return effects

    def time_up(self, now: float, stream: Stream) -> Effects:
        """Pass on the waves whose time is over."""
        if stream.quiet:
            return []  # looked at again when the stream moves
        effects: Effects = []
        while stream.deadlines and stream.deadlines[0][0] <= now:
            wave = stream.waves.get(stream.deadlines.popleft()[1])
            if wave is not None and not wave.filtering:
                stream.time_is_over(wave)
                effects += self._full(stream, wave)
        if stream.deadlines:
            effects.append(ev.Wake(stream.spec.stream, stream.deadlines[0][0] - now))
        return effects

    def too_late(
        self, stream: Stream, child: int, message: msg.Up, payload: Payload | None
    ) -> Effects:
        """Take in what nobody waits for: it is late, or it came before."""
        wave = stream.late_waves.get(message.wave)
        late = wave is not None and wave.accepts(child, message.attempt)
        if stream.counters is not None:
            stream.counters.late += late
            stream.counters.repeated += not late
        if wave is None or not late:
            return []
        wave.answered(child, message.attempt)
        if not wave.waiting and not wave.missing:
            del stream.late_waves[wave.number]
        if stream.spec.sync.late != "next":
            return []
        # A copy: its memory is free as soon as nobody is missing any more.
        kept = Payload(bytes(payload.view)) if payload is not None else None
        for following in stream.waves.values():
            if following.number > message.wave and not following.filtering:
                return self._add_late(stream, following, message, kept)
        stream.carried.append((message, kept))
        return []

    def _add_late(
        self, stream: Stream, wave: Wave, message: msg.Up, payload: Payload | None
    ) -> Effects:
        try:
            wave.add_late(message, payload)
        except ProtocolError:
            raise
        except SapwoodError as error:
            number, record = stream.spec.stream, error.to_record()
            return self._failed(msg.Failed(number, wave.number, wave.attempt, self._rank, record))
        return []


def without_late(stream: Stream, message: msg.Down) -> msg.Down:
    """Confirm to the children only what this place needs no more: late ones may still come."""
    if not stream.late_waves or stream.spec.sync.late != "next":
        return message
    confirmed = min(message.confirmed, min(stream.late_waves) - 1)
    return msgspec.structs.replace(message, confirmed=confirmed)
