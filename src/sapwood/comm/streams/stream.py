"""One stream at one place: its life, its open waves, and what this place contributed.

Contributors keep their contribution until a later wave confirms it. Its life is a table of states:

::

    OPEN --quiesce--> DRAINING --drained--> QUIET --resume--> OPEN
      |                   |                   |
      +------ close ------+------ close ------+--> CLOSED

A stream that drains or is quiet starts no wave and sends nothing; earlier messages are on
its way only while it drains. ``flush`` changes no state.

This is state only: the engine (``engine.py``) reads and changes it, and nothing here calls other
code. What a stream does with a wave is its *policy*, one of the engine's classes of waves, which
is chosen once, when the stream opens. What only one policy needs is a part of the stream, which has
its own class: ``filters``, ``late``, ``arrivals``, ``agent``.
"""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

from sapwood.comm import events as ev
from sapwood.comm.link import Link
from sapwood.comm.messages import (
    NO_WAIT,
    REPLACE,
    Configure,
    Down,
    Failed,
    FilterAt,
    PlaceStatistics,
    StreamSpec,
    Sweep,
    Up,
)
from sapwood.comm.payload import Payload
from sapwood.comm.peers import Effects
from sapwood.comm.routing import Router
from sapwood.comm.streams.contributors import AgentSide, Arrivals
from sapwood.comm.streams.filters import ALL, Parts, Position, StreamFilters
from sapwood.comm.streams.late import LateWaves
from sapwood.comm.streams.roster import Roster
from sapwood.comm.streams.wave import (
    Gathering,
    Kept,
    NewGathering,
    ShiftedRanks,
    Wave,
    WaveRequest,
    WaveValue,
)
from sapwood.core.errors import ErrorRecord
from sapwood.core.states import StateTable
from sapwood.core.topology import ROOT

WINDOW = 64
"""Contributions of one agent to one stream that it keeps before it is to wait."""


UNSOLICITED = -1
"""Attempt of a contribution for which the present parent has not asked."""


BY_ELEMENT = frozenset({"sum", "min", "max", "mean"})
"""Reductions of which a piece of the result needs the same piece of each array only."""


class StreamState(enum.Enum):
    """States of a stream."""

    OPEN = "open"
    DRAINING = "draining"
    QUIET = "quiet"
    CLOSED = "closed"


class StreamEvent(enum.Enum):
    """What happens to a stream."""

    QUIESCE = "quiesce"
    DRAINED = "drained"
    RESUME = "resume"
    CLOSE = "close"


TRANSITIONS = StateTable(
    "a stream",
    {
        (StreamState.OPEN, StreamEvent.QUIESCE): StreamState.DRAINING,
        (StreamState.DRAINING, StreamEvent.DRAINED): StreamState.QUIET,
        (StreamState.QUIET, StreamEvent.RESUME): StreamState.OPEN,
        (StreamState.OPEN, StreamEvent.CLOSE): StreamState.CLOSED,
        (StreamState.DRAINING, StreamEvent.CLOSE): StreamState.CLOSED,
        (StreamState.QUIET, StreamEvent.CLOSE): StreamState.CLOSED,
    },
)
"""(state, event) → next state; any other pair is an error."""


class Counters:
    """Messages, bytes and time in user-defined filters of one stream at one place.

    The names are those of :class:`~sapwood.comm.messages.PlaceStatistics`.
    """

    __slots__ = (
        "bytes_down",
        "bytes_up",
        "filter_seconds",
        "filtered",
        "late",
        "messages_down",
        "messages_up",
        "relayed",
        "repeated",
    )

    def __init__(self) -> None:
        self.messages_down = self.bytes_down = 0
        self.messages_up = self.bytes_up = 0
        self.filtered = 0
        self.filter_seconds = 0.0
        self.late = self.repeated = self.relayed = 0

    def down(self, body: bytes, payload: Payload | None) -> None:
        """Count a wave on its way to the agents."""
        self.messages_down += 1
        self.bytes_down += len(body) + (payload.nbytes if payload is not None else 0)

    def up(self, body: bytes, payload: Payload | None) -> None:
        """Count a contribution on its way to the root."""
        self.messages_up += 1
        self.bytes_up += len(body) + (payload.nbytes if payload is not None else 0)

    def exchanged(self, nbytes_down: int, answers: int, nbytes_up: int) -> None:
        """Count a wave and the answers to it, which others have passed on."""
        self.messages_down += 1
        self.bytes_down += nbytes_down
        self.messages_up += answers
        self.bytes_up += nbytes_up

    def passed(self, waves: int) -> None:
        """Count waves that an agent's shortcut has answered; they count as all others, too."""
        self.relayed += waves

    def offered(self, body: bytes, size: int) -> None:
        """Count a contribution whose arrays are fetched."""
        self.messages_up += 1
        self.bytes_up += len(body) + size

    def came_late(self, count: int = 1) -> None:
        """Count contributions to a wave whose time was over."""
        self.late += count

    def came_twice(self, count: int = 1) -> None:
        """Count contributions that came twice, or to a wave that is over."""
        self.repeated += count

    def filter_called(self, seconds: float) -> None:
        """Count a call of a user-defined filter."""
        self.filtered += 1
        self.filter_seconds += seconds

    def figures(self) -> dict[str, Any]:
        """Return what was counted, by its name."""
        return {name: getattr(self, name) for name in Counters.__slots__}


class NoCounters(Counters):
    """Those of a stream that is not counted: nothing is."""

    __slots__ = ()

    def down(self, body: bytes, payload: Payload | None) -> None:
        """Count nothing."""

    def up(self, body: bytes, payload: Payload | None) -> None:
        """Count nothing."""

    def exchanged(self, nbytes_down: int, answers: int, nbytes_up: int) -> None:
        """Count nothing."""

    def passed(self, waves: int) -> None:
        """Count nothing."""

    def offered(self, body: bytes, size: int) -> None:
        """Count nothing."""

    def came_late(self, count: int = 1) -> None:
        """Count nothing."""

    def came_twice(self, count: int = 1) -> None:
        """Count nothing."""

    def filter_called(self, seconds: float) -> None:
        """Count nothing."""

    def figures(self) -> dict[str, Any]:
        """Return that nothing was counted."""
        return {}


NOT_COUNTED = NoCounters()


class PendingOperation:
    """A control operation that has not come back yet.

    Attributes:
        message: What it does.
        waiting: Children that have not answered; this place itself while it loads filters.
        reached: Agents that have.
        reports: What places below reported.
        held: Whether it waits for large arrays that are on their way to this place.
        sent: At an agent: number of the last contribution that it had pushed.
        problem: Why filters cannot be staged here.
    """

    __slots__ = ("held", "message", "problem", "reached", "reports", "sent", "waiting")

    def __init__(self, message: Sweep, waiting: set[int]) -> None:
        self.message = message
        self.waiting = waiting
        self.reached: list[tuple[int, int]] = []
        self.reports: list[PlaceStatistics] = []
        self.sent = 0
        self.held = False
        self.problem: ErrorRecord | None = None


class QuietTime:
    """What a stream keeps for the end of a quiet time.

    Attributes:
        since: When the quiet time began, seconds; infinity outside of one.
        deferred: Events for the time when the stream moves again.
    """

    __slots__ = ("deferred", "since")

    def __init__(self) -> None:
        self.since = math.inf
        self.deferred: list[ev.Event] = []


class NodeStream:
    """State of a stream at one place: what all policies have, and one object for each special one.

    Args:
        spec: What the stream is.
        router: Where the places are.
        gather: Makes the gathering of each wave.
        position: Where this place is.

    Attributes:
        policy: What it does with its waves; chosen when it opens.
        state: Where it is in its life; ``quiet`` says whether nothing may be sent.
        quiet_time: Its last quiet time, with the events that wait for the end of that.
        counters: Its counters; they do nothing for a stream that is not counted.
        roster: Its members, and the child that brings in each.
        waves: The open waves.
        last_wave: Number of the last wave.
        kept: The contributions to each wave that is not confirmed.
        loaned: Memory that is released when a wave is confirmed, by wave.
        confirmed_to: Wave up to which all are confirmed.
        sweeps: Control operations that are under way.
        partial: Root: whether waves end with what a junction would pass on.
        filters: User-defined filters (:class:`GeneralWaves`, see ``engine.py``).
        late: Time-outs, and waves whose time is over (:class:`TimedWaves`).
        arrivals: Root: contributions and pushes by agent (:class:`UnsynchronisedWaves`).
        agent: Agent: its waves that are not answered, and its pushes (:class:`AgentWaves`).
    """

    __slots__ = (
        "_asks",
        "agent",
        "arrivals",
        "confirmed_to",
        "counters",
        "filters",
        "gather",
        "kept",
        "last_wave",
        "late",
        "loaned",
        "partial",
        "policy",
        "quiet",
        "quiet_time",
        "roster",
        "spec",
        "state",
        "sweeps",
        "waves",
    )

    policy: WavePolicy

    def __init__(
        self,
        spec: StreamSpec,
        router: Router,
        gather: NewGathering,
        position: Position = Position(),  # noqa: B008 - frozen
    ) -> None:
        self.spec = spec
        self.gather = gather
        self.state = StreamState.OPEN
        self.quiet = False
        self.quiet_time = QuietTime()
        self.counters = Counters() if spec.counted else NOT_COUNTED
        self.roster = Roster(spec, router)
        self.waves: dict[int, Wave] = {}
        self.last_wave = 0
        self.kept: dict[int, list[Kept]] = {}
        self.loaned: list[tuple[int, Payload]] = []
        self.confirmed_to = 0
        self.sweeps: dict[int, PendingOperation] = {}
        self.partial = False
        self.filters = StreamFilters(spec, position)
        self.late = LateWaves(spec, position.depth, is_root=router.rank == ROOT)
        self.arrivals = Arrivals()
        self.agent = AgentSide()
        self._asks = itertools.count(1)

    # --- its kind -------------------------------------------------------------------------------

    @property
    def waits(self) -> bool:
        """Whether it waits for the contributions to a wave."""
        return self.spec.sync.kind != NO_WAIT

    @property
    def is_simple(self) -> bool:
        """Whether it waits for all, and no filter works on its contributions."""
        return self.waits and not self.spec.filters and not self.late.timeout

    @property
    def passes(self) -> bool:
        """Whether there is nothing to do but to pass down, to gather from all, and to count."""
        return self.is_simple and self.spec.on_loss == REPLACE and not self.roster.left

    @property
    def at_rest(self) -> bool:
        """Whether a shortcut may pass the next wave: nothing of the stream is under way here."""
        under_way = self.waves or self.agent.pending or self.sweeps or self.quiet_time.deferred
        return self.passes and not self.quiet and not under_way

    @property
    def chunked(self) -> bool:
        """Whether large contributions may be put together piece by piece."""
        kinds = self.spec.reduce.values()
        return self.is_simple and bool(kinds) and BY_ELEMENT.issuperset(kinds)

    # --- its life -------------------------------------------------------------------------------

    def advance(self, event: StreamEvent) -> None:
        """Go to the next state of its life.

        Raises:
            InternalError: The event cannot happen in this state.
        """
        self.state = TRANSITIONS.after(self.state, event)
        self.quiet = self.state is not StreamState.OPEN

    def parent_changed(self) -> None:
        """Keep what the former parent asked for, until the new one asks for it."""
        agent = self.agent
        agent.pending = dict.fromkeys(agent.pending, UNSOLICITED)
        for wave in self.waves.values():
            wave.wanted, wave.later = False, None

    def settle(self) -> None:
        """The place above is quiet: so is this one, whatever it waited for."""
        self.advance(StreamEvent.DRAINED)
        self.sweeps.clear()

    def moves_again(self, now: float) -> list[ev.Event]:
        """End a quiet time; return the events that were deferred."""
        quiet = max(0.0, now - self.quiet_time.since)
        deferred = self.quiet_time.deferred
        self.quiet_time = QuietTime()
        self.late.postpone(quiet, now)
        return deferred

    # --- versions of user-defined filters ---------------------------------------------------------

    def oldest_version(self) -> int:
        """Root: return the oldest version that a wave may still name."""
        waves = [*self.waves.values(), *self.late.waves.values()]
        used = [wave.value.version for wave in waves]
        return min([*used, *self.filters.wave_versions.values(), self.filters.version])

    def configure(self, message: Configure) -> list[str]:
        """Begin a version of filters; return names of filters that are not used any more.

        Raises:
            ProtocolError: The filters of the version are not staged.
        """
        self.spec, unused = self.filters.configure(
            self.spec, message.version, message.parameters, message.oldest, message.code
        )
        return unused

    def stage(self, filters: tuple[FilterAt, ...]) -> list[str]:
        """Keep filters for a later version; return names of filters that are not used now."""
        self.spec, unused = self.filters.stage(self.spec, filters)
        return unused

    def take_versions(self, spec: StreamSpec) -> bool:
        """Add the versions that a new parent knows; return whether that was news."""
        before, self.spec = self.spec, self.filters.take_versions(self.spec, spec)
        return self.spec is not before

    def forget_versions(self) -> list[int]:
        """Drop waves of versions that the root has no wave of; return their numbers."""
        first = min(self.spec.parameters, default=0)
        over = [one.number for one in self.waves.values() if one.value.version < first]
        late = [one.number for one in self.late.waves.values() if one.value.version < first]
        for number in (*over, *late):
            self.abandon(number)
        self.filters.forget_before(first)
        return [*over, *late]

    # --- its waves ------------------------------------------------------------------------------

    def begin(
        self,
        number: int,
        body: bytes,
        payload: Payload | None,
        waiting: dict[int, tuple[WaveRequest, ...]],
        missing: set[int],
    ) -> Wave:
        """Begin a wave, or one more part of it."""
        first = self.spec.first
        gathering: Gathering
        if self.filters.up:
            gathering = Parts(first)
        else:
            gathering = self.gather(self.spec.reduce)
            if first:
                gathering = ShiftedRanks(gathering, first)
        wave = Wave(number, 0, WaveValue(body, payload), waiting, missing, gathering, self._asks)
        self.waves[number] = wave
        self.last_wave = max(self.last_wave, number)
        return wave

    def begin_whole(self, number: int, body: bytes, payload: Payload | None) -> Wave:
        """Begin a wave that all members take part in, as far as they are there."""
        shares = self.roster.shares()
        return self.begin(number, body, payload, dict(shares.asks), set(shares.missing))

    def begin_part(
        self, number: int, attempt: int, body: bytes, payload: Payload | None, ranks: set[int]
    ) -> Wave:
        """Start a wave for some ranks, with their kept contributions."""
        wave = self.begin(number, body, payload, {}, ranks)
        wave.attempt = attempt
        for kept in self.kept.get(number, ()):
            if kept.ranks <= wave.missing and kept.pass_through is None:
                wave.take(kept)
        return wave

    def confirmed(self) -> int:
        """Highest wave such that nothing is needed any more of it and of all before it."""
        first = min(self.waves, default=self.last_wave + 1)
        if self.late.counts and self.late.waves:
            first = min(first, *self.late.waves)
        return first - 1

    def release(self, confirmed: int) -> list[Payload]:
        """Return the contributions that are no longer needed, and forget them."""
        self.confirmed_to = confirmed
        done = [number for number in self.kept if number <= confirmed]
        kept = [one for number in done for one in self.kept.pop(number)]
        free = [one.payload for one in kept if one.payload is not None]
        if self.loaned:
            free += [payload for number, payload in self.loaned if number <= confirmed]
            self.loaned = [entry for entry in self.loaned if entry[0] > confirmed]
        return free

    def forget_abandoned(self, confirmed: int) -> None:
        """Drop waves that the root does not wait for: they failed while this place was away."""
        for number in [number for number in self.waves if number <= confirmed]:
            del self.waves[number]
        self.late.forget_confirmed(confirmed)

    def abandon(self, wave: int) -> None:
        """Forget a wave that failed."""
        self.waves.pop(wave, None)
        self.late.waves.pop(wave, None)

    def forget(self, number: int) -> list[Payload]:
        """Drop what was contributed to a wave; return its memory."""
        self.agent.pending.pop(number, None)
        return [one.payload for one in self.kept.pop(number, ()) if one.payload is not None]

    def keep(self, wave: int, kept: Kept) -> None:
        """Keep a contribution until it is confirmed."""
        self.kept.setdefault(wave, []).append(kept)

    def held(self) -> list[Payload]:
        """Return the memory of what is kept."""
        kept = [one for several in self.kept.values() for one in several]
        return [one.payload for one in kept if one.payload is not None]

    def values(self) -> list[Payload]:
        """Root: return the memory of the values of waves that may still be wanted."""
        late = self.late.waves if self.late.counts else {}
        waves = {**late, **self.waves}.values()
        return [wave.value.payload for wave in waves if wave.value.payload is not None]

    def sent_to(self, wave: Wave, child: int) -> tuple[bytes, Payload | None] | None:
        """Return what a child was sent in a wave; None if its filter still works on it."""
        if not self.filters.down:
            return wave.value.body, wave.value.payload
        return wave.value.sent.get(child) or wave.value.sent.get(ALL)

    def __repr__(self) -> str:
        return (
            f"Stream({self.spec.stream} {self.spec.handler}, {self.state.value}, "
            f"{len(self.waves)} waves open)"
        )


class WavePolicy:
    """What a stream does with its waves at one place; ``engine.py`` has those that there are.

    What a policy says nothing about does not concern it, and nothing happens.
    """

    def begin(
        self, now: float, stream: NodeStream, message: Down, payload: Payload | None
    ) -> Effects:
        """Root: begin a wave."""
        raise NotImplementedError

    def on_down(
        self, now: float, stream: NodeStream, message: Down, payload: Payload | None
    ) -> Effects:
        """A wave on its way to the agents."""
        raise NotImplementedError

    def on_up(
        self, link: Link, stream: NodeStream, message: Up, payload: Payload | None
    ) -> Effects:
        """A contribution of a child."""
        raise NotImplementedError

    def contribute(self, _stream: NodeStream, event: ev.Contribute) -> Effects:
        """Agent: contribute to a wave."""
        return [ev.Released(event.payload)] if event.payload is not None else []

    def fail(self, _stream: NodeStream, _event: ev.Fail) -> Effects:
        """Agent: cannot contribute to a wave."""
        return []

    def filtered(self, _stream: NodeStream, event: ev.Filtered) -> Effects:
        """Go on with what a user-defined filter made."""
        return [ev.Released(event.payload)] if event.payload is not None else []

    def time_up(self, _now: float, _stream: NodeStream) -> Effects:
        """Pass on the waves whose time is over."""
        return []

    def incomplete(self, _stream: NodeStream, _wave: Wave, _child: int) -> Effects:
        """Handle an answer of a child that lacks some of the requested ranks."""
        return []

    def complete(self, _stream: NodeStream, _wave: Wave) -> Effects:
        """Pass the wave on, because no contribution is missing."""
        return []

    def reduced(self, _stream: NodeStream, _wave: Wave, _total: Any) -> Effects:
        """Large contributions have been put together here."""
        return []

    def child_left(self, _stream: NodeStream, _child: int, *, lost: bool) -> Effects:
        """A child will not answer any more: what it was asked for is missing."""
        del lost
        return []

    def places_came(self, _stream: NodeStream, _ranks: Sequence[int]) -> Effects:
        """Places are below this one: they are asked for what is missing of them."""
        return []

    def agents_lost(
        self, _stream: NodeStream, _ranks: Iterable[int], _reason: str, *, told: bool
    ) -> Effects:
        """Agents are lost, or have left: the loss policy decides."""
        del told
        return []

    def go_on_without(self, _stream: NodeStream, _wave: Wave, _ranks: set[int]) -> Effects:
        """Continue a wave without some agents, by a decision of the root."""
        return []

    def resumed(self, _stream: NodeStream) -> Effects:
        """A stream is no longer quiet: ask for what is missing, pass on what is complete."""
        return []

    def fail_wave(self, stream: NodeStream, message: Failed) -> Effects:
        """Tell the root of a failure; there, end the wave everywhere."""
        raise NotImplementedError
