"""What a place does with waves, contributions and failures. No I/O.

A stream that waits for all, replaces what is lost and has no own filters is *plain*: its waves
take the shortest way through this file. What else a stream can do stands in files of its own.
"""

from typing import Any

from sapwood.comm import events as ev
from sapwood.comm import messages as msg
from sapwood.comm.link import Link
from sapwood.comm.payload import Payload
from sapwood.comm.peers import Effects, PeerTable
from sapwood.comm.streams.asking import Asking
from sapwood.comm.streams.delays import Delays
from sapwood.comm.streams.emissions import Emissions
from sapwood.comm.streams.failures import Failures
from sapwood.comm.streams.filtering import Filtering
from sapwood.comm.streams.large import Large
from sapwood.comm.streams.life import StreamState
from sapwood.comm.streams.losses import Losses
from sapwood.comm.streams.offered import Confluence
from sapwood.comm.streams.sending import Sending
from sapwood.comm.streams.singles import Singles
from sapwood.comm.streams.stream import Stream
from sapwood.comm.streams.wave import Kept, Wave
from sapwood.core.errors import ProtocolError, SapwoodError
from sapwood.core.rankset import from_ranges
from sapwood.core.topology import ROOT


class Waves:
    """The waves of all streams of one place.

    Args:
        near: The neighbours.
        streams: The open streams.
        emissions: What agents send of themselves.
        is_agent: Whether this place is a leaf.
    """

    def __init__(
        self,
        near: PeerTable,
        streams: dict[int, Stream],
        emissions: Emissions,
        *,
        is_agent: bool,
    ) -> None:
        self.open = streams
        self.emissions = emissions
        self._near = near
        self._is_agent = is_agent
        self._myself = frozenset((near.rank,))
        self._my_ranges = ((near.rank, near.rank + 1),)
        self._singles = Singles(near)
        large = self.large = Large(near, streams, self, is_agent=is_agent)
        sending = self._sending = Sending(near, large.announce)
        self.failures = Failures(near, streams, large)
        self.wave_failed = self.failures.wave_failed
        filtering = self._filtering = Filtering(
            near, sending, self._finish, self._looked_at, self.wave_failed
        )
        asking = self.asking = Asking(near, sending, filtering, self.full)
        self.losses = Losses(near, streams, self.asking.when_complete, self.wave_failed)
        self._delays = Delays(near, asking, filtering, self.full, self.wave_failed)

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
        stream.begin_whole(number, event.body, event.payload)
        return self._sending.ask_all(stream.shares(), message, event.payload)

    def passed(self, _now: float, event: ev.WavesPassed) -> Effects:
        """Root: waves were exchanged by a shortcut; the next one has the next number."""
        self.open[event.stream].last_wave += event.waves
        return []

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
            wave = stream.begin_whole(message.wave, message.body, payload)
        wave.version = message.version
        effects = self._filtering.down(stream, message, payload)
        effects += self._delays.begun(now, stream, wave)
        effects += self.losses.begun(stream, wave)
        return effects + self.asking.when_complete(stream, wave)

    def on_down(self, link: Link, message: msg.Down, payload: Payload | None) -> Effects:
        """A wave on its way to the agents."""
        self._near.must_be_parent(link)
        stream = self.open.get(message.stream)
        if stream is None:
            return []
        effects: Effects = []
        if message.confirmed > stream.confirmed_to:
            stream.forget_abandoned(message.confirmed)
            if self.large.pieces is not None:
                self.large.over(message.stream, message.confirmed.__ge__)
            effects += [ev.Released(kept) for kept in stream.release(message.confirmed)]
        if self._is_agent:
            return effects + self._contribution_wanted(stream, message, payload)
        if not stream.waits:
            return effects + self._begin(link.last_heard, stream, message, payload)
        number = message.wave
        if message.ranks or number in stream.waves or number in stream.kept:
            return effects + self.asking.part_wanted(stream, message, payload)
        if not stream.plain:
            return effects + self._begin(link.last_heard, stream, message, payload)
        wave = stream.begin_whole(number, message.body, payload)
        effects += self._sending.ask_all(stream.shares(), message, payload)
        return effects if wave.waiting else effects + self.full(stream, wave)

    def _contribution_wanted(
        self, stream: Stream, message: msg.Down, payload: Payload | None
    ) -> Effects:
        """Agent: contribute again what is kept, else work on it, once."""
        number = message.wave
        for kept in stream.kept.get(number, ()):
            return self.asking.give(stream, number, message.attempt, kept)
        known = number in stream.pending
        stream.pending[number] = message.attempt
        if known:
            return []
        if stream.counters is not None:
            stream.counters.down(message.body, payload)
        return [ev.WaveArrived(stream.spec, number, message.attempt, message.body, payload)]

    # --- up -------------------------------------------------------------------------------------

    def contribute(self, _now: float, event: ev.Contribute) -> Effects:
        """Agent: contribute to a wave."""
        stream = self.open.get(event.stream)
        if stream is None:
            return [ev.Released(event.payload)] if event.payload is not None else []
        if stream.quiet:
            stream.detained.append(event)
            return []
        if stream.counters is not None:
            stream.counters.up(event.body, event.payload)
        kept = Kept(self._myself, self._my_ranges, event.weight, event.body, event.payload)
        return self._done(stream, event.wave, kept)

    def _done(self, stream: Stream, wave: int, kept: Kept) -> Effects:
        attempt = stream.pending.pop(wave, None)
        if attempt is None or wave <= stream.confirmed_to:
            if stream.counters is not None:
                stream.counters.late += attempt is not None
            return [ev.Released(kept.payload)] if kept.payload is not None else []
        stream.keep(wave, kept)
        return self.asking.give(stream, wave, attempt, kept)

    def on_up(self, link: Link, message: msg.Up, payload: Payload | None) -> Effects:
        """A contribution of a child."""
        stream = self.open.get(message.stream)
        if stream is None:
            return []
        if not stream.plain:
            if stream.counters is not None:
                stream.counters.up(message.body, payload)
            if not stream.waits:
                return self._single(link, stream, message, payload)
        wave = stream.waves.get(message.wave)
        if wave is None or wave.filtering or not wave.accepts(link.rank, message.attempt):
            if stream.plain:
                return []
            self._must_cover(link, message)
            return self._delays.too_late(stream, link.rank, message, payload)
        return self._add(link, stream, wave, message, payload)

    def _single(
        self, link: Link, stream: Stream, message: msg.Up, payload: Payload | None
    ) -> Effects:
        self._must_cover(link, message)
        if self._near.rank == ROOT:
            if stream.state is StreamState.QUIET:  # from a place that had been away
                stream.refused.setdefault(message.wave, set()).add(message.ranks[0][0])
                return []
            if not message.wave:
                return self._emitted(stream, message, payload)
        return self._one_by_one(stream, message, payload)

    def _emitted(self, stream: Stream, message: msg.Up, payload: Payload | None) -> Effects:
        """Root: what an agent has sent of itself, the next in order or something else."""
        if not self.emissions.is_next(stream, message):
            return []
        effects = self._one_by_one(stream, message, payload)
        return effects + self.emissions.told_at_once(stream, message.ranks[0][0])

    def _one_by_one(self, stream: Stream, message: msg.Up, payload: Payload | None) -> Effects:
        if not stream.filters_up or not message.body:
            effects = self._singles.send_on(stream, message, payload)
            return effects if stream.outbox is None else stream.outbox.put(effects)
        if message.wave and message.wave not in stream.wave_versions:
            stream.repeated()  # a wave that is over
            return []
        version = stream.wave_versions.get(message.wave, stream.version)
        return self._filtering.one_up(stream, message, payload, version)

    def _looked_at(self, stream: Stream, message: msg.Up, payload: Payload | None) -> Effects:
        """An own filter has looked at one contribution: to a wave that was passed on, if any."""
        send = self._delays.hand_on if stream.waits else self._singles.send_on
        return send(stream, message, payload)

    def _add(
        self, link: Link, stream: Stream, wave: Wave, message: msg.Up, payload: Payload | None
    ) -> Effects:
        missing = len(wave.missing)
        try:
            last = wave.add(link.rank, message, payload)
        except ProtocolError:
            raise  # not to be read, or its memory is gone: the child is cut off and replaced
        except SapwoodError as error:
            return self.wave_failed(
                msg.Failed(
                    message.stream, message.wave, message.attempt, link.rank, error.to_record()
                )
            )
        if len(wave.missing) > missing:
            return self.incomplete(stream, wave, link.rank)
        if not last or (wave.missing and self._near.rank == ROOT):
            return []
        return self.full(stream, wave)

    def incomplete(self, stream: Stream, wave: Wave, child: int) -> Effects:
        """A child has answered without some of those that it was asked for."""
        if stream.timeout:  # they are late: there is no time to ask it again
            effects = self.asking.look_elsewhere(stream, wave, child)
            return effects if wave.waiting else effects + self.full(stream, wave)
        effects = self.asking.look_for(stream, wave, tuple(wave.missing))
        return effects + self.asking.when_complete(stream, wave)

    def _must_cover(self, link: Link, message: msg.Up) -> None:
        ranks = message.ranks
        if len(ranks) == 1 and ranks[0] == (link.rank, link.rank + 1):
            return
        if (ranks or message.body) and not self._near.all_below(link, ranks):
            raise ProtocolError(f"rank {link.rank} contributes for ranks that are not below it")

    def full(self, stream: Stream, wave: Wave) -> Effects:
        """Nobody is waited for any more: pass the wave on."""
        if not stream.plain:
            if stream.quiet:
                return []  # a place was lost in a quiet time: when the stream moves again
            if not stream.waits:
                return self._singles.complete(stream, wave)
            effects = self._delays.passing(stream, wave) if stream.timeout else []
            if wave.number not in stream.waves:
                return effects  # what is late of others has failed it
            filtered = stream.filters_up and wave.values
            more = self._filtering.up if filtered else self._put_together
            return effects + more(stream, wave)
        return self._put_together(stream, wave)

    def _put_together(self, stream: Stream, wave: Wave) -> Effects:
        try:
            if wave.offers:
                return self.large.full(stream, wave)
            if self._near.rank == ROOT:
                total = wave.gathering.total() if wave.values or stream.plain else None
                return self._completed(stream, wave, total)
            body, payload = wave.gathering.partial() if wave.values else (b"", None)
        except SapwoodError as error:
            record = error.to_record()
            return self.wave_failed(
                msg.Failed(stream.spec.stream, wave.number, wave.attempt, self._near.rank, record)
            )
        return self._finish(stream, wave, body, payload)

    def put_together(self, stream: Stream, wave: Wave, total: Any) -> Effects:
        """Large contributions have been put together here."""
        if self._near.rank == ROOT:
            return self._completed(stream, wave, total)
        return self._finish(stream, wave, *wave.gathering.placed(total))

    def passes(self, stream: Stream, wave: Wave, body: bytes, river: Confluence) -> Effects:
        """Large contributions are put together as the parent draws the result."""
        return self._finish(stream, wave, body, None, river)

    def _finish(
        self,
        stream: Stream,
        wave: Wave,
        body: bytes,
        payload: Payload | None,
        river: Confluence | None = None,
    ) -> Effects:
        """Send the result of a wave on."""
        if self._near.rank == ROOT:
            return self._completed(stream, wave, None, body, payload)
        del stream.waves[wave.number]
        ranks = wave.ranks
        kept = Kept(frozenset(from_ranges(ranks)), ranks, wave.weight, body, payload, None, river)
        if ranks:
            stream.keep(wave.number, kept)
        elif payload is not None:
            stream.lent.append((wave.number, payload))
        effects: Effects = []
        if wave.wanted:
            effects = self.asking.give(stream, wave.number, wave.attempt, kept)
        if stream.timeout:
            effects += self._delays.passed(stream, wave)
        return effects + self.asking.rest_wanted(stream, wave)

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
        if wave.payload is None or (stream.counts_late and wave.number in stream.late_waves):
            return [done]  # who is late may have to be asked again
        return [ev.Released(wave.payload), done]

    def fail(self, _now: float, event: ev.Fail) -> Effects:
        """Agent: cannot contribute to a wave."""
        stream = self.open.get(event.stream)
        if stream is None:
            return []
        if stream.quiet:
            stream.detained.append(event)
            return []
        kept = Kept(self._myself, self._my_ranges, 0.0, b"", None, event.error)
        return self._done(stream, event.wave, kept)

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
