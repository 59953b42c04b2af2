"""Time-outs: a wave is passed on when its time is over, and what comes later is not lost.

No clock is read here: times come with events, and :class:`~sapwood.comm.events.Wake` asks for
one. A stream has one such request under way at a place, however many waves are open.

What comes later goes up by itself, as one more answer to its wave. Each place takes it from one
child only, because it knows who is missing in the wave; the root adds it to the next wave that
completes. A contribution is confirmed when the root has it, so whatever is lost on its way is asked
for again, and nothing counts twice.
"""

from __future__ import annotations

import msgspec

from sapwood.comm import events as ev
from sapwood.comm import messages as msg
from sapwood.comm.payload import Payload
from sapwood.comm.peers import Effects, PeerTable
from sapwood.comm.streams.asking import Asking
from sapwood.comm.streams.filtering import Filtering
from sapwood.comm.streams.losses import OnFailed, OnFull
from sapwood.comm.streams.stream import NOT_WANTED, Stream
from sapwood.comm.streams.wave import Kept, Wave
from sapwood.core.errors import ProtocolError, SapwoodError
from sapwood.core.rankset import from_ranges
from sapwood.core.topology import ROOT


class Delays:
    """Ends waves in time, and takes in what is late.

    Args:
        near: The neighbours.
        asking: Asks for what is missing, and gives the parent what it wants.
        filtering: Own filters.
        full: Passes a wave on.
        failed: Fails a wave.
    """

    def __init__(
        self,
        near: PeerTable,
        asking: Asking,
        filtering: Filtering,
        full: OnFull,
        failed: OnFailed,
    ) -> None:
        self._near = near
        self._asking = asking
        self._filtering = filtering
        self._full = full
        self._failed = failed

    def begun(self, now: float, stream: Stream, wave: Wave) -> Effects:
        """Note when the time of a new wave is over."""
        if not stream.timeout:
            return []
        stream.deadlines.append((now + stream.timeout, wave.number))
        first = len(stream.deadlines) == 1
        return [ev.Wake(stream.spec.stream, stream.timeout)] if first else []

    def time_up(self, now: float, stream: Stream) -> Effects:
        """Pass on the waves whose time is over."""
        if stream.quiet:
            return []  # looked at again when the stream moves
        effects: Effects = []
        while stream.deadlines and stream.deadlines[0][0] <= now:
            wave = stream.waves.get(stream.deadlines.popleft()[1])
            if wave is not None and not wave.filtering:
                effects += self._full(stream, wave)
        if stream.deadlines:
            effects.append(ev.Wake(stream.spec.stream, stream.deadlines[0][0] - now))
        return effects

    def passed(self, stream: Stream, wave: Wave) -> Effects:
        """A wave has been passed on: look for those who were asked for while a filter had it."""
        if not stream.counts_late or not wave.missing or wave.number in stream.late_waves:
            return []
        effects: Effects = [ev.Released(free) for free in stream.time_is_over(wave)]
        return effects + self._asking.look_for(stream, wave, tuple(wave.missing))

    # --- what is late ---------------------------------------------------------------------------

    def too_late(
        self, stream: Stream, child: int, message: msg.Up, payload: Payload | None
    ) -> Effects:
        """Take in what nobody waits for: it is late, or it came before."""
        ranks = from_ranges(message.ranks)
        wave = stream.waves.get(message.wave)
        if wave is not None and self._may_be_in_time(stream, wave, ranks):
            return self._in_time(stream, wave, message, payload)  # late below, but not here
        wave = stream.late_waves.get(message.wave)
        wanted = wave.owed_by(child, message.attempt, ranks) if wave is not None else set()
        late = bool(ranks) and wanted == ranks
        if stream.counters is not None:
            stream.counters.late += late
            stream.counters.repeated += not late
        if wave is None:
            return []
        if stream.counts_late and (stream.quiet or not late):
            # Who else is in it has been counted by another way: the others are to answer alone.
            again = self._asking.look_for(stream, wave, wanted)
            return again + self._asking.look_elsewhere(stream, wave, child)
        wave.missing -= wanted
        effects: Effects = [ev.Released(free) for free in stream.late_is_over(wave)]
        effects += self._asking.look_elsewhere(stream, wave, child)
        if not stream.counts_late:
            return effects
        passed = msgspec.structs.replace(message, attempt=NOT_WANTED)
        if self._near.rank == ROOT:
            stream.carried.append((passed, _copied(payload)))
        elif stream.filters_up and message.body:
            effects += self._filtering.one_up(stream, passed, payload, wave.version)
        else:
            handed = self.hand_on(stream, passed, payload)
            effects += handed if stream.outbox is None else stream.outbox.put(handed)
        return effects

    def _may_be_in_time(self, stream: Stream, wave: Wave, ranks: set[int]) -> bool:
        return stream.counts_late and not wave.filtering and bool(ranks) and ranks <= wave.missing

    def _in_time(
        self, stream: Stream, wave: Wave, message: msg.Up, payload: Payload | None
    ) -> Effects:
        try:
            wave.take(_kept(message, payload))
        except ProtocolError:
            raise
        except SapwoodError as error:
            return self._fail(stream, wave, message.ranks[0][0], error)
        return self._asking.when_complete(stream, wave)

    def hand_on(self, stream: Stream, message: msg.Up, payload: Payload | None) -> Effects:
        """Junction: give a late contribution to the parent, and keep it until it is confirmed."""
        if message.wave <= stream.confirmed_to:
            return [ev.Released(payload)] if payload is not None else []
        if payload is None or payload.owner is None:
            payload = _copied(payload)
        kept = _kept(message, payload)
        stream.keep(message.wave, kept)
        return self._asking.give_unasked(stream, message.wave, kept)

    def passing(self, stream: Stream, wave: Wave) -> Effects:
        """A wave is passed on: note who is missing; at the root, add what is late of others.

        A late contribution that could not be made, or does not fit, fails the wave.
        """
        effects: Effects = [ev.Released(free) for free in stream.time_is_over(wave)]
        late, stream.carried = stream.carried, []
        for index, (message, payload) in enumerate(late):
            if message.wave >= wave.number:
                stream.carried.append((message, payload))
                continue
            try:
                if isinstance(message, msg.Failed):
                    raise SapwoodError.from_record(message.error)
                wave.add_late(message, payload)
            except SapwoodError as error:
                stream.carried += late[index + 1 :]
                who = message.rank if isinstance(message, msg.Failed) else message.ranks[0][0]
                return effects + self._fail(stream, wave, who, error)
        return effects

    def _fail(self, stream: Stream, wave: Wave, rank: int, error: SapwoodError) -> Effects:
        number, record = stream.spec.stream, error.to_record()
        return self._failed(msg.Failed(number, wave.number, wave.attempt, rank, record))


def _copied(payload: Payload | None) -> Payload | None:
    """Return bytes that stay when the memory of whoever made them is used again."""
    return Payload(bytes(payload.view)) if payload is not None else None


def _kept(message: msg.Up, payload: Payload | None) -> Kept:
    ranks = message.ranks
    return Kept(frozenset(from_ranges(ranks)), ranks, message.weight, message.body, payload)
