"""Control operations: flush, quiesce, resume and query. No I/O.

Each is a *sweep*: a message that goes through a stream to all its places and back, behind all
others.

Links and outboxes keep the order, so when a sweep has come back from all places, whatever was
sent on the stream before it has been delivered. A place that is lost meanwhile is not waited
for: nothing is on its way to it any more, and it is missing among those that were reached.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from sapwood.comm import events as ev
from sapwood.comm import messages as msg
from sapwood.comm.link import Link
from sapwood.comm.peers import Effects, PeerTable
from sapwood.comm.streams.stream import (
    TRANSITIONS,
    NodeStream,
    PendingOperation,
    StreamEvent,
    StreamState,
)
from sapwood.core.errors import ErrorRecord, InputError, ProtocolError, ResourceError
from sapwood.core.rankset import joined
from sapwood.core.topology import ROOT

FLUSH = "flush"
QUIESCE = "quiesce"
RESUME = "resume"
QUERY = "query"
STAGE = "stage"
"""What a sweep does at each place."""

ORDERLY = {FLUSH, QUIESCE}
"""Operations that come back behind all that agents had sent before."""

UNORDERED = {QUERY, STAGE}
"""Operations that come back with reports, and wait for no filter to do so."""

STEPS = {
    QUIESCE: (StreamEvent.QUIESCE, "resume the stream first"),
    RESUME: (StreamEvent.RESUME, "quiesce the stream first"),
}
"""What an operation does to the state of a stream, and what to do where it cannot."""

MAX_PROBLEM = 200
"""Characters of the problem of a place in a report, where another place has one, too."""

MAX_SWEEPS = 64
"""Operations that are under way in one stream at a time."""


class ControlOperations:
    """The control operations at one place.

    Args:
        near: The neighbours.
        has_large: Whether large arrays of a stream are on their way to this place.
        moving: Does what had to wait while a stream was quiet.
        is_agent: Whether this place is a leaf.
    """

    def __init__(
        self,
        near: PeerTable,
        has_large: Callable[[int], bool],
        moving: Callable[[float, NodeStream], Effects],
        *,
        is_agent: bool,
    ) -> None:
        self._near = near
        self._has_large = has_large
        self._moving = moving
        self._is_agent = is_agent

    def begin(self, now: float, stream: NodeStream, message: msg.Sweep) -> Effects:
        """Root: send a sweep through a stream.

        Raises:
            InputError: The stream is not in a state for it.
            ResourceError: Too many are under way.
        """
        if len(stream.sweeps) >= MAX_SWEEPS:
            raise ResourceError(f"more than {MAX_SWEEPS} sweeps of a stream are under way")
        event, hint = STEPS.get(message.action, (None, ""))
        if event is not None and (stream.state, event) not in TRANSITIONS:
            raise InputError(
                f"{message.action} of a stream that is {stream.state.value}", hint=hint
            )
        return self._pass_on(now, stream, message)

    def arrived(self, link: Link, stream: NodeStream | None, message: msg.Sweep) -> Effects:
        """Take a sweep in from above."""
        self._near.must_be_parent(link)
        if stream is None:  # not back in it yet: nothing is on its way here
            return self._near.to_parent(msg.Swept(message.stream, message.number, ()))
        return self._pass_on(link.last_heard, stream, message)

    def came_back(self, link: Link, stream: NodeStream | None, message: msg.Swept) -> Effects:
        """Take the answer of a child in."""
        sweep = stream.sweeps.get(message.number) if stream is not None else None
        if stream is None or sweep is None or link.rank not in sweep.waiting:
            return []
        if message.reached and not self._near.all_below(link, message.reached):
            raise ProtocolError(f"rank {link.rank} answers for ranks that are not below it")
        sweep.waiting.discard(link.rank)
        sweep.reached += message.reached
        sweep.reports += message.reports
        return [] if sweep.waiting else self._back(stream, sweep)

    def child_lost(self, stream: NodeStream, child: int) -> Effects:
        """Do not wait for a child that is lost."""
        effects: Effects = []
        for sweep in list(stream.sweeps.values()):
            if child in sweep.waiting:
                sweep.waiting.discard(child)
                if not sweep.waiting:
                    effects += self._back(stream, sweep)
        return effects

    def sent_arrived(self, stream: NodeStream, upto: int) -> Effects:
        """Agent: what it had sent of itself has arrived up to some number."""
        effects: Effects = []
        for sweep in [one for one in stream.sweeps.values() if one.sent <= upto]:
            effects += self._back(stream, sweep)
        return effects

    def parent_changed(self, stream: NodeStream) -> None:
        """The former parent, which waited for the end of sweeps, waits no more."""
        if self._is_agent:
            stream.sweeps.clear()
            if stream.state is StreamState.DRAINING:
                stream.advance(StreamEvent.DRAINED)

    def look_again(self, stream: NodeStream) -> Effects:
        """Go on with sweeps that were behind large arrays."""
        effects: Effects = []
        for sweep in [one for one in stream.sweeps.values() if one.held]:
            sweep.held = False
            effects += self._back(stream, sweep)
        return effects

    def follow(self, now: float, stream: NodeStream) -> Effects:
        """Be quiet, or quiet no more, as a new parent is: a sweep has passed this place by."""
        if not stream.quiet:
            stream.quiet_time.since = now
            stream.advance(StreamEvent.QUIESCE)
            stream.advance(StreamEvent.DRAINED)
            return []
        if (stream.state, StreamEvent.DRAINED) in TRANSITIONS:
            stream.advance(StreamEvent.DRAINED)
        stream.advance(StreamEvent.RESUME)
        effects: Effects = [ev.StreamResumed(stream.spec.stream)] if self._is_agent else []
        return effects + self._moving(now, stream)

    def _pass_on(self, now: float, stream: NodeStream, message: msg.Sweep) -> Effects:
        moved: Effects = []
        if message.action == QUIESCE:
            if not stream.quiet:
                stream.quiet_time.since = now
            self._advance(stream, StreamEvent.QUIESCE)
        elif message.action == RESUME:
            self._advance(stream, StreamEvent.RESUME)
            if self._is_agent:
                moved.append(ev.StreamResumed(message.stream))
            moved += self._moving(now, stream)
        there = [child for child in stream.roster.children if child in self._near.peers]
        if message.action == STAGE:  # which is about places that have filters
            there = [child for child in there if not self._near.router.tree.is_agent(child)]
        sweep = stream.sweeps[message.number] = PendingOperation(message, set(there))
        if message.action == STAGE:
            moved += self._stage(stream, sweep)
        if self._is_agent:
            sweep.reached.append((self._near.rank, self._near.rank + 1))
        if not sweep.waiting:
            own = stream.agent.pushed
            if own is not None and own.kept and message.action in ORDERLY:
                sweep.sent = own.last  # answered when all that has arrived
                return moved
            return moved + self._back(stream, sweep)
        sent: Effects = [ev.Transmit(self._near.links_to(tuple(there)), message)] if there else []
        if message.action == STAGE:  # behind those staged before, which a version may have by now
            return stream.filters.outbox.put(sent) + moved
        return self._behind(stream, message, sent) + moved

    def _stage(self, stream: NodeStream, sweep: PendingOperation) -> Effects:
        """Keep filters for a later version, and load the filters of this place."""
        number = stream.spec.stream
        unused = stream.stage(sweep.message.filters)
        effects: Effects = [ev.FilterUnused(number, code) for code in unused]
        own = stream.filters.staged(stream.spec)
        if own is not None:
            sweep.waiting.add(self._near.rank)
            effects.append(ev.FilterStaging(number, sweep.message.number, own.at, own.code))
        return effects

    def staged(self, stream: NodeStream, event: ev.FilterStaged) -> Effects:
        """Filters of this place are loaded, or cannot be."""
        sweep = stream.sweeps.get(event.number)
        if sweep is None or self._near.rank not in sweep.waiting:
            return []
        sweep.problem = event.error
        sweep.waiting.discard(self._near.rank)
        return [] if sweep.waiting else self._back(stream, sweep)

    def _back(self, stream: NodeStream, sweep: PendingOperation) -> Effects:
        """All that are there have answered."""
        message = sweep.message
        if message.action in ORDERLY and self._has_large(message.stream):
            sweep.held = True  # the bytes of what was sent before are not all here
            return []
        del stream.sweeps[message.number]
        if message.action == QUIESCE:
            self._advance(stream, StreamEvent.DRAINED)
        reached = joined(sweep.reached)
        reports = with_one_problem((self._report(stream, sweep), *sweep.reports))
        if message.action not in UNORDERED:
            reports = ()
        if self._near.rank == ROOT:
            done = ev.SweepDone(message.stream, message.number, reached, reports)
            return self._behind(stream, message, [done])
        answer = msg.Swept(message.stream, message.number, reached, reports)
        return self._behind(stream, message, self._near.to_parent(answer))

    def _advance(self, stream: NodeStream, event: StreamEvent) -> None:
        """Follow the root, which decides; a place that is new may have missed a step."""
        if self._near.rank == ROOT or (stream.state, event) in TRANSITIONS:
            stream.advance(event)

    def _behind(self, stream: NodeStream, message: msg.Sweep, effects: Effects) -> Effects:
        return effects if message.action in UNORDERED else stream.filters.outbox.put(effects)

    def _report(self, stream: NodeStream, sweep: PendingOperation) -> msg.PlaceStatistics:
        found = report(stream, self._near.rank)
        if self._is_agent or stream.filters.newest is None:
            return found
        staged, own = (
            stream.filters.staged(stream.spec),
            stream.filters.in_version(stream.filters.version),
        )
        return msgspec.structs.replace(
            found,
            code="" if own is None else own.code,
            staged="" if staged is None else staged.code,
            problem=sweep.problem,
        )


def report(stream: NodeStream, rank: int) -> msg.PlaceStatistics:
    """Return what a place knows of a stream."""
    queued = (stream.filters.outbox, stream.quiet_time.deferred, stream.late.for_next)
    return msg.PlaceStatistics(
        rank,
        stream.state.value,
        waves_open=len(stream.waves),
        held=len(stream.held()) + len(stream.loaned),
        queued=sum(map(len, queued)),
        **stream.counters.figures(),
    )


def with_one_problem(reports: tuple[msg.PlaceStatistics, ...]) -> tuple[msg.PlaceStatistics, ...]:
    """Keep one problem as it is and shorten the others: all reports travel in one message."""
    found: list[msg.PlaceStatistics] = []
    several = False
    for one in reports:
        if one.problem is not None and several:
            short = ErrorRecord(code=one.problem.code, what=one.problem.what[:MAX_PROBLEM])
            one = msgspec.structs.replace(one, problem=short)  # noqa: PLW2901 - the same, shorter
        several = several or one.problem is not None
        found.append(one)
    return tuple(found)
