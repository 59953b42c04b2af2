"""Own filters at one place: what goes into them, and what to do with their answers.

The core calls no user code: it asks for it with :class:`~sapwood.comm.events.Filter`, whoever
drives it has a process do it, and the answer comes as an event. Until then what is sent after
it waits in the outbox of its stream.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from sapwood.comm import events as ev
from sapwood.comm import messages as msg
from sapwood.comm.payload import Payload
from sapwood.comm.peers import Effects, PeerTable
from sapwood.comm.streams.losses import OnFailed
from sapwood.comm.streams.outbox import Outbox
from sapwood.comm.streams.parts import Parts
from sapwood.comm.streams.sending import Sending
from sapwood.comm.streams.stream import Stream
from sapwood.comm.streams.wave import Wave
from sapwood.core.errors import ProtocolError

ALL = -1
"""Child of a value that is the same for all of them."""

OnWave = Callable[[Stream, Wave, bytes, Payload | None], Effects]
OnSingle = Callable[[Stream, msg.Up, Payload | None], Effects]


class Filtering:
    """Sends values through own filters.

    Args:
        near: The neighbours.
        sending: Sends values down.
        finish: Sends on what a filter made of a wave.
        single: Sends on what a filter made of one contribution.
        failed: Fails a wave.
    """

    def __init__(
        self,
        near: PeerTable,
        sending: Sending,
        finish: OnWave,
        single: OnSingle,
        failed: OnFailed,
    ) -> None:
        self._near = near
        self._sending = sending
        self._finish = finish
        self._single = single
        self._failed = failed

    def up(self, stream: Stream, wave: Wave) -> Effects:
        """Have the contributions to a wave put together."""
        wave.filtering = True
        gathering = wave.gathering
        assert isinstance(gathering, Parts)  # noqa: S101 - Stream.begin() saw to it
        parts = tuple(sorted(gathering.parts, key=_rank_of))
        return self._ask(stream, wave, wave.number, wave.version, parts)

    def one_up(
        self, stream: Stream, message: msg.Up, payload: Payload | None, version: int
    ) -> Effects:
        """Have one contribution looked at, with some version of the parameters."""
        part = ev.Part(message.ranks[0][0], message.weight, message.body, payload)
        return self._ask(stream, message, message.wave, version, (part,))

    def down(self, stream: Stream, message: msg.Down, payload: Payload | None) -> Effects:
        """Send a value down, through the filter if there is one."""
        if not stream.filters_down:
            send = self._sending.ask_all if stream.waits else self._sending.pass_on
            effects = send(stream.shares(), message, payload)
            return effects if stream.outbox is None else stream.outbox.put(effects)
        assert stream.filters is not None  # noqa: S101 - filters_down says so
        effects = []
        for child in stream.children if stream.filters.per_child else (ALL,):
            effects += self._down_to(stream, message, payload, child)
        return effects

    def down_for(self, stream: Stream, wave: Wave, message: msg.Down, child: int) -> Effects:
        """Have the value made for a child, unless that is under way."""
        assert stream.filters is not None  # noqa: S101 - a filter makes the value
        whom = child if stream.filters.per_child else ALL
        if whom in self._made_for(stream, wave.number):
            return []
        return self._down_to(stream, message, wave.payload, whom)

    def _made_for(self, stream: Stream, wave: int) -> set[int]:
        jobs = [job for job in stream.jobs.values() if isinstance(job, tuple)]
        return {child for message, child in jobs if message.wave == wave}

    def _down_to(
        self, stream: Stream, message: msg.Down, payload: Payload | None, child: int
    ) -> Effects:
        part = ev.Part(self._near.rank, 0.0, message.body, payload)
        job = (message, child)
        return self._ask(stream, job, message.wave, message.version, (part,), child)

    def answered(self, stream: Stream, event: ev.Filtered) -> Effects:
        """Go on with what a filter made."""
        job = stream.jobs.pop(event.ticket, None)
        if stream.counters is not None:
            stream.counters.filtered += 1
            stream.counters.filter_seconds += event.seconds
        if job is None:
            return [ev.Released(event.payload)] if event.payload is not None else []
        if isinstance(job, Wave):
            effects = self._wave_answered(stream, job, event)
        elif isinstance(job, msg.Up):
            effects = self._single_answered(stream, job, event)
        else:
            effects = self._down_answered(stream, *job, event)
        return _outbox(stream).fill(event.ticket, effects)

    def _ask(
        self,
        stream: Stream,
        job: Wave | msg.Up | tuple[msg.Down, int],
        wave: int,
        version: int,
        parts: tuple[ev.Part, ...],
        child: int = ALL,
    ) -> Effects:
        ticket = _outbox(stream).reserve()
        stream.jobs[ticket] = job
        upward = not isinstance(job, tuple)
        parameters = stream.versions.get(version, b"")
        return [ev.Filter(stream.spec, ticket, upward, wave, parts, version, parameters, child)]

    def _wave_answered(self, stream: Stream, wave: Wave, event: ev.Filtered) -> Effects:
        if stream.waves.get(wave.number) is not wave:  # it failed meanwhile
            return [ev.Released(event.payload)] if event.payload is not None else []
        if event.error is not None:
            return self._fail(stream, wave.number, wave.attempt, event)
        return self._finish(stream, wave, event.body, event.payload)

    def _single_answered(self, stream: Stream, message: msg.Up, event: ev.Filtered) -> Effects:
        if event.error is not None:
            failed = self._fail(stream, message.wave, message.attempt, event)
            if message.wave:
                return failed
            # What was sent unasked is numbered: those after it are taken when it has come.
            return failed + self._single(stream, msgspec.structs.replace(message, body=b""), None)
        passed = msgspec.structs.replace(message, body=event.body)
        return self._single(stream, passed, event.payload)

    def _down_answered(
        self, stream: Stream, message: msg.Down, child: int, event: ev.Filtered
    ) -> Effects:
        if event.error is not None:
            return self._fail(stream, message.wave, message.attempt, event)
        if event.payload is not None:
            stream.lent.append((message.wave, event.payload))
        number = message.wave
        wave = stream.waves.get(number) or stream.late_waves.get(number)
        if wave is not None:
            wave.sent[child] = (event.body, event.payload)
        made = msgspec.structs.replace(message, body=event.body)
        if not stream.waits:
            if child == ALL:
                return self._sending.pass_on(stream.shares(), made, event.payload, whole=True)
            return self._sending.to((child,), made, event.payload, whole=True)
        effects: Effects = []
        for each in (wave.waiting if child == ALL else (child,)) if wave is not None else ():
            assert wave is not None  # noqa: S101 - the loop is empty without one
            for ask in wave.waiting.get(each, ()):
                asked = msgspec.structs.replace(made, attempt=ask.attempt, ranks=ask.ranges)
                effects += self._sending.to((each,), asked, event.payload)
        return effects

    def _fail(self, stream: Stream, wave: int, attempt: int, event: ev.Filtered) -> Effects:
        assert event.error is not None  # noqa: S101 - asked for by the callers
        message = msg.Failed(stream.spec.stream, wave, attempt, self._near.rank, event.error)
        return self._failed(message)


def _outbox(stream: Stream) -> Outbox:
    if stream.outbox is None:
        raise ProtocolError("a stream without filters has no outbox")
    return stream.outbox


def _rank_of(part: ev.Part) -> int:
    return part.rank


def sent_to(stream: Stream, wave: Wave, child: int) -> tuple[bytes, Payload | None] | None:
    """Return what a child was sent in a wave; None if its filter still works on it."""
    if not stream.filters_down:
        return wave.body, wave.payload
    return wave.sent.get(child) or wave.sent.get(ALL)
