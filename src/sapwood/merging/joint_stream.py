"""A stream over two sessions: each does its part in its own tree, and here both come together.

The client has one stream. Its root opens one at each session, sends each wave to both, and puts
the two partial results together when both are there. The members of the other session have ranks
that are different here: ``first`` is added to the ranks in their session. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from sapwood.comm import events as ev
from sapwood.comm import messages as msg
from sapwood.comm import values
from sapwood.comm.messages import NO_WAIT, FilterAt, PlaceStatistics, StreamSpec
from sapwood.comm.payload import Payload
from sapwood.comm.reduction import WHOLE, Accumulator
from sapwood.comm.reductions.partials import partial_of
from sapwood.comm.streams.control import STAGE
from sapwood.comm.streams.filters import Position, code_name, filter_at
from sapwood.core.errors import ErrorRecord, ProtocolError, SapwoodError
from sapwood.core.rankset import Ranges, from_ranges, joined, to_ranges
from sapwood.core.shown import shown
from sapwood.core.topology import ROOT
from sapwood.session.streams import Filters, decoded
from sapwood.session_server import wire

TOP = Position(ROOT, 0)
"""Where the two come together, for filters: above both roots."""


def shifted(ranges: Ranges, by: int) -> Ranges:
    """Return ranges with other ranks.

    Example:
        >>> shifted(((1, 3),), 100)
        ((101, 103),)
    """
    return tuple((start + by, stop + by) for start, stop in ranges)


def filters_of_part(filters: tuple[FilterAt, ...], *, here: bool) -> tuple[FilterAt, ...]:
    """Return the user filters that a part has in its tree.

    The filters of the root combine the two parts, so no part has them; ranks refer to the session
    that the stream was opened in.

    Example:
        >>> every = (FilterAt("*", b"a"), FilterAt("depth 0", b"b", b"c"), FilterAt("rank 9", b"d"))
        >>> [(one.where, one.up, one.down) for one in filters_of_part(every, here=False)]
        [('*', b'a', b''), ('depth 0', b'', b'c')]
    """
    found = []
    for one in filters:
        at_root = one.where in {f"rank {ROOT}", f"depth {TOP.depth}"}
        if at_root and not one.down:
            continue
        if not here and one.where.startswith("rank ") and not at_root:
            continue
        found.append(msgspec.structs.replace(one, up=b"") if at_root else one)
    return tuple(found)


class StreamPart:
    """What one session does of the stream.

    Args:
        spec: The stream as that session has it.
        first: Offset that is added to its ranks.
        post: Gives it events.

    Attributes:
        lost: Why it takes part no more.
    """

    def __init__(self, spec: StreamSpec, first: int, post: Callable[[ev.Event], None]) -> None:
        self.spec = spec
        self.first = first
        self.post = post
        self.members = from_ranges(spec.members)
        self.lost: SapwoodError | None = None

    def ranks(self, ranges: Ranges) -> Ranges:
        """Return ranks as the client knows them.

        Raises:
            ProtocolError: They are of others than it was asked for.
        """
        few = all(start < stop for start, stop in ranges)
        few = few and sum(stop - start for start, stop in ranges) <= len(self.members)
        if not few or not self.members.issuperset(from_ranges(ranges)):
            raise ProtocolError("a session contributes for agents that it was not asked for")
        return shifted(ranges, self.first)


class _JointWave:
    """A wave that not all parts have ended."""

    __slots__ = ("late", "ranks", "values", "version", "waiting", "weight")

    def __init__(self, waiting: set[StreamPart], version: int) -> None:
        self.waiting = waiting
        self.version = version
        self.ranks: list[tuple[int, int]] = []
        self.late: list[tuple[int, int]] = []
        self.weight = 0.0
        self.values: list[ev.PartialContribution] = []


class _JointSweep:
    """A sweep that not all parts have ended."""

    __slots__ = ("reached", "reports", "waiting")

    def __init__(self, waiting: set[StreamPart | None]) -> None:
        self.waiting = waiting
        self.reached: list[tuple[int, int]] = []
        self.reports: list[PlaceStatistics] = []


class JointStream:
    """A stream over the agents of two sessions.

    Args:
        spec: The stream as the client's root calls it.
        parts: The parts of the sessions; this session's is the last.
        emit: Receives its results.
        filters: Calls own filters.
        closed: Told that it was closed.

    Attributes:
        spec: The stream.
        parts: Its parts.
    """

    def __init__(
        self,
        spec: StreamSpec,
        parts: tuple[StreamPart, ...],
        emit: Callable[[Any], None],
        filters: Filters | None,
        closed: Callable[[JointStream], None],
    ) -> None:
        Accumulator(spec.reduce)  # an unknown reduction is refused here
        self.spec = spec
        self.parts = parts
        self._emit = emit
        self._filters = filters
        self._closed = closed
        self._begun = 0
        self._version = max(spec.parameters, default=0)
        self._parameters = dict(spec.parameters)
        self._own = {self._version: spec.filters}
        self._staged: tuple[FilterAt, ...] = ()
        self._waves: dict[int, _JointWave] = {}
        self._sweeps: dict[int, _JointSweep] = {}
        self._filtering: dict[int, _JointWave] = {}
        self._leaving: dict[StreamPart, tuple[SapwoodError, Callable[[], None]]] = {}
        self._takers: dict[type[Any], Callable[[Any], None]] = {
            ev.Broadcast: self._broadcast,
            ev.ConfigureStream: self._configure,
            ev.Read: self._read,
            ev.SweepStream: self._sweep,
            ev.CloseStream: self._close,
            ev.Filtered: self._filtered,
            ev.FilterStaged: self._top_staged,
        }

    @property
    def _goes_on(self) -> bool:
        """Whether it does without a session that is lost, as without an agent."""
        timed = self.spec.sync.kind == msg.TIME_OUT and self.spec.on_loss == msg.REPLACE
        return timed or self.spec.on_loss == msg.PARTIAL

    def open(self, *, paced: bool) -> None:
        """Open it at all sessions."""
        for part in self.parts:
            part.post(ev.OpenStream(part.spec, paced, partial=True))

    def take(self, event: Any) -> None:
        """Do what the client wants.

        Raises:
            SapwoodError: The stream is in another state.
        """
        self._takers[type(event)](event)

    # --- what the client wants --------------------------------------------------------------

    def _there(self) -> list[StreamPart]:
        return [one for one in self.parts if one.lost is None and one not in self._leaving]

    def _broadcast(self, event: ev.Broadcast) -> None:
        self._begun += 1
        number, there = self._begun, self._there()
        gone = [one for one in self.parts if one not in there]
        if gone and not self._goes_on:
            part = gone[0]
            lost = part.lost or self._leaving[part][0]
            self._release(event.payload)
            self._fail(number, part.first + min(part.members), lost.to_record())
            return
        self._waves[number] = _JointWave(set(there), self._version)
        taken = False
        for part in there:
            taken = not part.first
            part.post(msgspec.structs.replace(event, stream=part.spec.stream))
        if not taken:
            self._release(event.payload)  # copies of it are not given back
        self._complete_if_ready(number)

    def _release(self, payload: Payload | None) -> None:
        if payload is not None:
            self._emit(ev.Released(payload))

    def _configure(self, event: ev.ConfigureStream) -> None:
        if event.code:
            if code_name(self._staged) != event.code:
                raise ProtocolError(f"no filters {event.code} are staged")
            self._own[self._version + 1] = self._staged
        else:
            self._own[self._version + 1] = self._own[self._version]
        self._version += 1
        self._parameters[self._version] = event.parameters
        for part in self._there():
            filters = filters_of_part(self._own[self._version], here=not part.first)
            if filters:
                code = code_name(filters) if event.code else ""
                part.post(ev.ConfigureStream(part.spec.stream, event.parameters, code))

    def _read(self, event: ev.Read) -> None:
        for part in self._there():
            if event.rank - part.first in part.members:
                rank = event.rank - part.first
                part.post(ev.Read(part.spec.stream, rank, event.count))

    def _sweep(self, event: ev.SweepStream) -> None:
        if event.number in self._sweeps:
            raise ProtocolError(f"sweep {event.number} is under way")
        orders: list[tuple[StreamPart, ev.SweepStream]] = []
        for part in reversed(self._there()):  # this session's first: it may refuse
            filters = filters_of_part(event.filters, here=not part.first)
            if event.action != STAGE or filters or not event.filters:
                number = part.spec.stream
                orders.append(
                    (part, msgspec.structs.replace(event, stream=number, filters=filters))
                )
        sweep = self._sweeps[event.number] = _JointSweep({part for part, _ in orders})
        try:
            for part, order in orders:
                part.post(order)
        except SapwoodError:
            del self._sweeps[event.number]
            raise
        if event.action == STAGE:
            self._stage(event, sweep)
        self._sweep_over_if_ready(event.number)

    def _stage(self, event: ev.SweepStream, sweep: _JointSweep) -> None:
        self._staged = event.filters
        own = filter_at(self.spec, TOP, event.filters) if event.filters else None
        if own is not None and own.up and self._filters is not None and self._puts_together:
            sweep.waiting.add(None)
            staging = ev.FilterStaging(self.spec.stream, event.number, own, code_name(own))
            self._filters.stage(staging)

    def _top_staged(self, event: ev.FilterStaged) -> None:
        sweep = self._sweeps.get(event.number)
        if sweep is not None and None in sweep.waiting:
            sweep.waiting.discard(None)
            if event.error is not None:
                sweep.reports.append(PlaceStatistics(rank=ROOT, state="open", problem=event.error))
            self._sweep_over_if_ready(event.number)

    def _close(self, event: ev.CloseStream) -> None:
        del event
        for part in self.parts:
            if part.lost is None:
                part.post(ev.CloseStream(part.spec.stream))
        self._waves.clear()
        self._filtering.clear()
        self._sweeps.clear()
        if self._filters is not None:
            self._filters.stream_closed(self.spec.stream)
        leaving, self._leaving = self._leaving, {}
        self._closed(self)
        for _, gone in leaving.values():
            gone()

    # --- what the sessions answer --------------------------------------------------------------

    def answered(self, part: StreamPart, effect: Any) -> None:
        """Take what a session says of its part.

        Raises:
            ProtocolError: It says what cannot be.
        """
        if isinstance(effect, ev.WaveCompleted):
            self._part_completed(part, effect)
        elif isinstance(effect, ev.WaveFailed):
            if effect.wave in self._waves or self.spec.sync.kind == NO_WAIT:
                self._fail(effect.wave, effect.rank + part.first, effect.error)
        elif isinstance(effect, ev.Contributed):
            ranks = part.ranks(effect.ranks)
            number = self.spec.stream
            self._emit(msgspec.structs.replace(effect, stream=number, ranks=ranks))
        elif isinstance(effect, ev.SweepDone):
            self._part_swept(part, effect)
        elif isinstance(effect, wire.SweepRefused) and effect.number in self._sweeps:
            del self._sweeps[effect.number]
            self._emit(msgspec.structs.replace(effect, stream=self.spec.stream))

    def lose(self, part: StreamPart, error: SapwoodError) -> None:
        """Go on without a session, or fail what waits for it, as the policy on loss says."""
        if part.lost is not None:
            return
        part.lost = error
        self._leaving.pop(part, None)
        for number, wave in list(self._waves.items()):
            if part not in wave.waiting:
                continue
            if self._goes_on:
                wave.waiting.discard(part)
                self._complete_if_ready(number)
            else:
                self._fail(number, part.first + min(part.members), error.to_record())
        for number, sweep in list(self._sweeps.items()):
            sweep.waiting.discard(part)
            self._sweep_over_if_ready(number)

    def leave(self, part: StreamPart, error: SapwoodError, gone: Callable[[], None]) -> None:
        """Begin no more waves with a session; tell when none is open any more.

        Args:
            part: Its part.
            error: Why.
            gone: Called when nothing is waited for.
        """
        self._leaving[part] = (error, gone)
        self._left_if_idle()

    def waits_for(self, part: StreamPart) -> bool:
        """Whether a wave waits for a session."""
        return any(part in wave.waiting for wave in self._waves.values())

    def _left_if_idle(self) -> None:
        for part, (_, gone) in list(self._leaving.items()):
            if not self.waits_for(part):
                gone()

    def _part_completed(self, part: StreamPart, effect: ev.WaveCompleted) -> None:
        wave = self._waves.get(effect.wave)
        if wave is None or part not in wave.waiting:
            return
        wave.waiting.discard(part)
        ranks = part.ranks(effect.ranks)
        wave.ranks += ranks
        wave.late += part.ranks(effect.late)
        wave.weight += effect.weight
        found = _contribution(effect, (ranks or ((part.first, 0),))[0][0])
        if found is not None:
            wave.values.append(found)
        self._complete_if_ready(effect.wave)

    def _complete_if_ready(self, number: int) -> None:
        wave = self._waves.get(number)
        if wave is None or wave.waiting or number in self._filtering:
            return
        wave.values.sort(key=_rank_of)
        own = filter_at(self.spec, TOP, self._own[wave.version]) if self.spec.filters else None
        try:
            if own is not None and own.up and wave.values and self._puts_together:
                self._have_filtered(number, wave, own)
                return
            total = self._reduced(wave)
        except SapwoodError as error:
            self._fail(number, ROOT, error.to_record())
        except Exception as error:  # noqa: BLE001 - what another session says must not end this one
            problem = ProtocolError(
                f"the parts of the sessions do not fit together: {shown(error)}"
            )
            self._fail(number, ROOT, problem.to_record())
        else:
            self._completed(number, wave, total)

    @property
    def _puts_together(self) -> bool:
        """Whether results are combined; an unsynchronised stream passes contributions on alone."""
        return self.spec.sync.kind != NO_WAIT

    def _reduced(self, wave: _JointWave) -> Any:
        if not wave.values or not self._puts_together:
            return None
        both = Accumulator(self.spec.reduce)
        for one in wave.values:
            both.add(decoded(one.body, one.payload), one.rank, one.weight)
        return both.total()

    def _have_filtered(self, number: int, wave: _JointWave, own: FilterAt) -> None:
        wanted = ev.FilterWanted(
            self.spec,
            number,
            True,  # noqa: FBT003 - upward
            number,
            tuple(self._taken_apart(wave.values)),
            wave.version,
            self._parameters.get(wave.version, b""),
            own,
            code_name(own),
        )
        self._filtering[number] = wave
        if self._filters is None:
            error = SapwoodError("this session server does not call user filters").to_record()
            self._filtered(ev.Filtered(self.spec.stream, number, b"", None, 0.0, error))
        else:
            self._filters.call(wanted)

    def _taken_apart(self, parts: list[ev.PartialContribution]) -> list[ev.PartialContribution]:
        """Return single values where no filter of a session has put them together."""
        if self.spec.reduce != {WHOLE: "gather"}:
            return parts
        found: list[ev.PartialContribution] = []
        for part in parts:
            several = partial_of(decoded(part.body, part.payload))
            if several is None:
                found.append(part)
                continue
            for rank, value in several:
                encoded = values.encode(value)
                payload = Payload(bytes(encoded.payload())) if encoded.nbytes else None
                weight = part.weight / len(several)
                found.append(ev.PartialContribution(int(rank), weight, encoded.body, payload))
        return found

    def _filtered(self, event: ev.Filtered) -> None:
        wave = self._filtering.pop(event.ticket, None)
        if wave is None or self._waves.get(event.ticket) is not wave:
            self._release(event.payload)
        elif event.error is not None:
            self._fail(event.ticket, ROOT, event.error)
        else:
            self._completed(event.ticket, wave, None, event.body, event.payload)

    def _completed(
        self,
        number: int,
        wave: _JointWave,
        total: Any,
        body: bytes = b"",
        payload: Payload | None = None,
    ) -> None:
        del self._waves[number]
        done = ev.WaveCompleted(
            self.spec.stream,
            number,
            total,
            joined(wave.ranks),
            wave.weight,
            to_ranges(from_ranges(wave.late)),
            body,
            payload,
            wave.version,
        )
        self._forget_versions()
        self._emit(done)
        self._left_if_idle()

    def _fail(self, number: int, rank: int, error: ErrorRecord) -> None:
        self._waves.pop(number, None)
        self._filtering.pop(number, None)
        self._forget_versions()
        self._emit(ev.WaveFailed(self.spec.stream, number, rank, error))
        self._left_if_idle()

    def _forget_versions(self) -> None:
        """Drop versions that no wave has any more."""
        oldest = min((one.version for one in self._waves.values()), default=self._version)
        for version in [known for known in self._own if known < oldest]:
            name = _name_at_top(self.spec, self._own.pop(version))
            self._parameters.pop(version, None)
            used = {_name_at_top(self.spec, one) for one in self._own.values()}
            if name and name not in used and self._filters is not None:
                self._filters.unused(ev.FilterUnused(self.spec.stream, name))

    def _part_swept(self, part: StreamPart, effect: ev.SweepDone) -> None:
        sweep = self._sweeps.get(effect.number)
        if sweep is None or part not in sweep.waiting:
            return
        sweep.waiting.discard(part)
        sweep.reached += part.ranks(effect.reached)
        sweep.reports += [
            msgspec.structs.replace(one, rank=one.rank + part.first) for one in effect.reports
        ]
        self._sweep_over_if_ready(effect.number)

    def _sweep_over_if_ready(self, number: int) -> None:
        sweep = self._sweeps.get(number)
        if sweep is None or sweep.waiting:
            return
        del self._sweeps[number]
        reports = tuple(sorted(sweep.reports, key=_place_of))
        self._emit(ev.SweepDone(self.spec.stream, number, joined(sweep.reached), reports))


def _name_at_top(spec: StreamSpec, filters: tuple[FilterAt, ...]) -> str:
    own = filter_at(spec, TOP, filters) if filters else None
    return "" if own is None else code_name(own)


def _contribution(effect: ev.WaveCompleted, rank: int) -> ev.PartialContribution | None:
    """Return the result of a part, in separate memory."""
    if not effect.body:
        if effect.total is None:
            return None
        encoded = values.encode(effect.total)
        payload = Payload(bytes(encoded.payload())) if encoded.nbytes else None
        return ev.PartialContribution(rank, effect.weight, encoded.body, payload)
    copied = None if effect.payload is None else Payload(bytes(effect.payload.view))
    return ev.PartialContribution(rank, effect.weight, effect.body, copied)


def _rank_of(part: ev.PartialContribution) -> int:
    return part.rank


def _place_of(report: PlaceStatistics) -> int:
    return report.rank
