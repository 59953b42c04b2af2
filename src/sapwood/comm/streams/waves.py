"""What a place does with waves, contributions and failures. No I/O.

A stream that waits for all, replaces what is lost and has no own filters is *plain*: its waves
take the shortest way through this file. What else a stream can do stands in files of its own.
"""

from typing import Any

import msgspec

from sapwood.comm import events as ev
from sapwood.comm import messages as msg
from sapwood.comm.link import Link
from sapwood.comm.neighbourhood import Effects, Neighbourhood
from sapwood.comm.payload import Payload
from sapwood.comm.streams.delays import Delays
from sapwood.comm.streams.filtering import Filtering, sent_to
from sapwood.comm.streams.losses import Losses
from sapwood.comm.streams.singles import Singles
from sapwood.comm.streams.stream import Stream
from sapwood.comm.streams.wave import Wave
from sapwood.core.errors import ProtocolError, ResourceError, SapwoodError
from sapwood.core.topology import ROOT

MAX_DETAINED = 10_000
"""Contributions that wait at one place for the end of a quiet time, without being asked for."""


class Waves:
    """The waves of all streams of one place.

    Args:
        near: The neighbours.
        streams: The open streams.
        is_agent: Whether this place is a leaf.
    """

    def __init__(self, near: Neighbourhood, streams: dict[int, Stream], *, is_agent: bool) -> None:
        self.open = streams
        self._near = near
        self._is_agent = is_agent
        self._singles = Singles(near)
        self._filtering = Filtering(near, self._finish, self._singles.send_on, self._wave_failed)
        self.losses = Losses(near, self.full, self._wave_failed)
        self._delays = Delays(near.rank, self.full, self._wave_failed)

    # --- down -----------------------------------------------------------------------------------

    def broadcast(self, now: float, event: ev.Broadcast) -> Effects:
        """Root: begin the next wave of a stream."""
        stream = self.open[event.stream]
        if stream.quiet:
            stream.detained.append(event)
            return []
        number, confirmed = stream.last_wave + 1, stream.confirmed()
        message = msg.Down(event.stream, number, 0, event.body, confirmed, version=stream.version)
        if not stream.plain:
            released: Effects = [ev.Released(kept) for kept in stream.release(confirmed)]
            return released + self._begin(now, stream, message, event.payload)
        stream.begin(number, 0, event.body, event.payload)
        return [ev.Transmit(self._near.links_to(stream.children), message, event.payload)]

    def _begin(
        self, now: float, stream: Stream, message: msg.Down, payload: Payload | None
    ) -> Effects:
        """Begin a wave of a stream that is not plain, and pass it on."""
        if stream.counters is not None:
            stream.counters.down(message.body, payload)
        if not stream.waits:
            if stream.filters is not None:
                stream.use_version(message.wave, message.version, message.confirmed)
            if self._near.rank != ROOT:
                return self._filtering.down(stream, message, payload)
            wave = self._singles.begin(stream, message, payload)
        else:
            wave = stream.begin(message.wave, message.attempt, message.body, payload)
        wave.version = message.version
        effects = self._filtering.down(stream, message, payload)
        effects += self._delays.begun(now, stream, wave)
        return effects + self.losses.begun(stream, wave)

    def on_down(self, link: Link, message: msg.Down, payload: Payload | None) -> Effects:
        """A wave on its way to the agents."""
        self._near.must_be_parent(link)
        stream = self.open.get(message.stream)
        if stream is None:
            return []
        effects: Effects = []
        if stream.held or stream.lent:
            effects += [ev.Released(kept) for kept in stream.release(message.confirmed)]
        if message.target == msg.WHOLE_STREAM or message.target == self._near.rank:  # noqa: PLR1714 - hot
            if self._is_agent:
                if stream.counters is not None:
                    stream.counters.down(message.body, payload)
                effects.append(
                    ev.WaveArrived(
                        stream.spec, message.wave, message.attempt, message.body, payload
                    )
                )
                return effects
            forward = message if message.target == msg.WHOLE_STREAM else _to_all(message)
            if stream.waves:
                _forget_abandoned(stream, message.confirmed)
            if not stream.plain:
                forward = _keep_unconfirmed(stream, forward)
                return effects + self._begin(link.last_heard, stream, forward, payload)
            stream.begin(message.wave, message.attempt, message.body, payload)
            effects.append(ev.Transmit(self._near.links_to(stream.children), forward, payload))
            return effects
        return effects + self._repeat_below(stream, message, payload)

    def _repeat_below(self, stream: Stream, message: msg.Down, payload: Payload | None) -> Effects:
        child = self._near.router.next_hop(message.target)
        links = self._near.links_to((child,))
        wave = stream.waves.get(message.wave)
        if not stream.waits:
            return [ev.Transmit(links, message, payload)]
        if wave is None or child not in wave.waiting:
            return []  # what was lost had been contributed before
        if child == message.target:
            wave.waiting[child] = message.attempt
        if not stream.filters_down:
            return [ev.Transmit(links, message, payload)]
        sent = sent_to(stream, wave, child)
        if sent is None:
            return []
        return [ev.Transmit(links, msgspec.structs.replace(message, body=sent[0]), sent[1])]

    # --- up -------------------------------------------------------------------------------------

    def contribute(self, _now: float, event: ev.Contribute) -> Effects:
        """Agent: contribute to a wave."""
        stream = self.open.get(event.stream)
        if stream is None:
            return [ev.Released(event.payload)] if event.payload is not None else []
        if stream.quiet:
            stream.detained.append(event)
            return []
        if event.wave in stream.abandoned:
            return [ev.Released(event.payload)] if event.payload is not None else []
        if event.payload is not None:
            stream.held[event.wave] = event.payload
        return self._send(stream, event.wave, event.attempt, event)

    def emit(self, _now: float, event: ev.Emit) -> Effects:
        """Agent: contribute without having been asked.

        Raises:
            ResourceError: Too much waits for the end of a quiet time.
        """
        stream = self.open.get(event.stream)
        if stream is None:
            return []
        if stream.quiet:
            if len(stream.detained) >= MAX_DETAINED:
                raise ResourceError(
                    f"more than {MAX_DETAINED} contributions wait on a quiet stream"
                )
            stream.detained.append(event)
            return []
        stream.emitted += 1
        return self._send(stream, 0, stream.emitted, event)

    def _send(
        self, stream: Stream, wave: int, attempt: int, event: ev.Contribute | ev.Emit
    ) -> Effects:
        if stream.counters is not None:
            stream.counters.up(event.body, event.payload)
        rank = self._near.rank
        message = msg.Up(event.stream, wave, attempt, ((rank, rank + 1),), event.weight, event.body)
        return self._near.to_parent(message, event.payload)

    def on_up(self, link: Link, message: msg.Up, payload: Payload | None) -> Effects:
        """A contribution of a child."""
        stream = self.open.get(message.stream)
        if stream is None:
            return []
        if not stream.plain and (not stream.waits or stream.counters is not None):
            if stream.counters is not None:
                stream.counters.up(message.body, payload)
            if not stream.waits:
                self._must_cover(link, message)
                if not stream.filters_up or not message.body:
                    effects = self._singles.send_on(stream, message, payload)
                    return effects if stream.outbox is None else stream.outbox.put(effects)
                if message.wave and message.wave not in stream.wave_versions:
                    stream.repeated()  # a wave that is over
                    return []
                return self._filtering.one_up(stream, message, payload)
        wave = stream.waves.get(message.wave)
        if wave is None or wave.filtering or not wave.accepts(link.rank, message.attempt):
            if stream.plain:
                return []
            self._must_cover(link, message)
            return self._delays.too_late(stream, link.rank, message, payload)
        self._must_cover(link, message)
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
        return self.full(stream, wave) if last else []

    def _must_cover(self, link: Link, message: msg.Up) -> None:
        ranks = message.ranks
        if len(ranks) == 1 and ranks[0] == (link.rank, link.rank + 1) and not message.late:
            return
        if (ranks or message.body) and not self._near.all_below(link, ranks + message.late):
            raise ProtocolError(f"rank {link.rank} contributes for ranks that are not below it")

    def full(self, stream: Stream, wave: Wave) -> Effects:
        """Nobody is waited for any more: pass the wave on."""
        if not stream.plain:
            if stream.quiet:
                return []  # a place was lost in a quiet time: when the stream moves again
            if not stream.waits:
                return self._singles.complete(stream, wave)
            if stream.filters_up and wave.values:
                return self._filtering.up(stream, wave)
        try:
            if self._near.rank == ROOT:
                total = wave.gathering.total() if wave.values or stream.plain else None
                return self._completed(stream, wave, total)
            body, payload = wave.gathering.partial() if wave.values or stream.plain else (b"", None)
        except SapwoodError as error:
            record = error.to_record()
            return self._wave_failed(
                msg.Failed(stream.spec.stream, wave.number, wave.attempt, self._near.rank, record)
            )
        return self._finish(stream, wave, body, payload)

    def _finish(self, stream: Stream, wave: Wave, body: bytes, payload: Payload | None) -> Effects:
        """Send the result of a wave on."""
        if self._near.rank == ROOT:
            return self._completed(stream, wave, None, body, payload)
        del stream.waves[wave.number]
        if payload is not None:
            stream.held[wave.number] = payload
        message = msg.Up(
            stream.spec.stream, wave.number, wave.attempt, wave.ranks, wave.weight, body
        )
        if not stream.plain and wave.late:
            message = msgspec.structs.replace(message, late=wave.late)
        return self._near.to_parent(message, payload)

    def _completed(
        self,
        stream: Stream,
        wave: Wave,
        total: Any,
        body: bytes = b"",
        payload: Payload | None = None,
    ) -> Effects:
        del stream.waves[wave.number]
        number, late = stream.spec.stream, () if stream.plain else wave.late
        done = ev.WaveCompleted(
            number, wave.number, total, wave.ranks, wave.weight, late, body, payload
        )
        return [done] if wave.payload is None else [ev.Released(wave.payload), done]

    # --- failures -------------------------------------------------------------------------------

    def fail(self, _now: float, event: ev.Fail) -> Effects:
        """Agent: cannot contribute to a wave."""
        stream = self.open.get(event.stream)
        if stream is not None and stream.quiet:
            stream.detained.append(event)
            return []
        return self._wave_failed(
            msg.Failed(event.stream, event.wave, event.attempt, self._near.rank, event.error)
        )

    def on_failed(self, link: Link, message: msg.Failed, _payload: Any) -> Effects:
        """A place below could not contribute."""
        self._near.must_be_below(link, message.rank)
        return self._wave_failed(message)

    def _wave_failed(self, message: msg.Failed) -> Effects:
        """Tell the root of a failure; there, end the wave everywhere."""
        stream = self.open.get(message.stream)
        wave = stream.waves.pop(message.wave, None) if stream is not None else None
        if self._near.rank != ROOT:
            return self._near.to_parent(message)
        if stream is None or (wave is None and message.wave):
            return []
        failed = ev.WaveFailed(message.stream, message.wave, message.rank, message.error)
        if wave is None:
            return [failed]
        links = self._near.links_to(stream.children)
        abandon = msg.Abandon(message.stream, message.wave, stream.confirmed())
        effects = self._in_order(stream, ev.Transmit(links, abandon))
        if wave.payload is not None:
            effects.append(ev.Released(wave.payload))
        return [*effects, failed]

    def _in_order(self, stream: Stream, effect: ev.Effect) -> Effects:
        """Send after what still is in a filter."""
        return [effect] if stream.outbox is None else stream.outbox.put([effect])

    def on_abandon(self, link: Link, message: msg.Abandon, _payload: Any) -> Effects:
        """A wave failed elsewhere: forget it."""
        self._near.must_be_parent(link)
        stream = self.open.get(message.stream)
        if stream is None:
            return []
        stream.abandon(message.wave, message.confirmed)
        kept = stream.held.pop(message.wave, None)
        effects: Effects = [ev.Released(kept)] if kept is not None else []
        links = self._near.links_to(stream.children)
        return effects + self._in_order(stream, ev.Transmit(links, message)) if links else effects

    # --- time, filters, sweeps ------------------------------------------------------------------

    def time_up(self, now: float, event: ev.TimeUp) -> Effects:
        """A time that was asked for is over."""
        stream = self.open.get(event.stream)
        return self._delays.time_up(now, stream) if stream is not None else []

    def filtered(self, _now: float, event: ev.Filtered) -> Effects:
        """An own filter has answered."""
        stream = self.open.get(event.stream)
        if stream is None:
            return [ev.Released(event.payload)] if event.payload is not None else []
        return self._filtering.answered(stream, event)


def _to_all(message: msg.Down) -> msg.Down:
    return msgspec.structs.replace(message, target=msg.WHOLE_STREAM)


def _forget_abandoned(stream: Stream, confirmed: int) -> None:
    """Drop waves that the root does not wait for: they failed while this place was away."""
    for number in [number for number in stream.waves if number <= confirmed]:
        del stream.waves[number]


def _keep_unconfirmed(stream: Stream, message: msg.Down) -> msg.Down:
    """Confirm to the children only what this place needs no more: late ones may still come."""
    if not stream.late_waves or stream.spec.sync.late != "next":
        return message
    confirmed = min(message.confirmed, min(stream.late_waves) - 1)
    return msgspec.structs.replace(message, confirmed=confirmed)
