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
is chosen once, when the stream opens.
"""

from __future__ import annotations

import enum
import hashlib
import itertools
import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from sapwood.comm import events as ev
from sapwood.comm.link import Link
from sapwood.comm.messages import (
    LATE_IN_NEXT,
    NO_WAIT,
    PARTIAL,
    REPLACE,
    TIME_OUT,
    Down,
    Failed,
    FilterAt,
    PlaceReport,
    StreamSpec,
    Sweep,
    Up,
)
from sapwood.comm.payload import Payload
from sapwood.comm.peers import Effects
from sapwood.comm.routing import Router
from sapwood.comm.streams.filters import ALL, NO_OUTBOX, NoOutbox, Outbox, Parts
from sapwood.comm.streams.wave import Gathering, Kept, NewGathering, ShiftedRanks, Wave, WaveRequest
from sapwood.core.errors import ErrorRecord, ProtocolError
from sapwood.core.rankset import contains, to_ranges
from sapwood.core.states import StateTable
from sapwood.core.topology import ROOT

WINDOW = 64
"""Contributions of one agent to one stream that it keeps before it is to wait."""

EPOCH = 2**32
"""Numbers of one process of an agent; a later process continues above them."""

NOT_WANTED = -1
"""Attempt of a contribution for which the present parent has not asked."""

LATE_WAVES = 64
"""Waves whose time is over of which a place remembers who was missing."""

BY_ELEMENT = frozenset({"sum", "min", "max", "mean"})
"""Reductions of which a piece of the result needs the same piece of each array only."""

TIME_LOST_PER_LEVEL = 0.1
"""Part of a time-out by which each level passes on earlier than the one above it."""

SHORTEST_PART = 0.3
"""Part of a time-out that even the deepest place waits."""


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


def time_at(seconds: float, depth: int) -> float:
    """Return how long a place of some depth waits for a wave of a stream with a time-out.

    A place answers before the time above it is over. Where the way up takes longer than the
    difference, all below that place are late above, and not only whom it waited for.

    Example:
        >>> [round(time_at(1.0, depth), 1) for depth in (0, 1, 2, 9)]
        [1.0, 0.9, 0.8, 0.3]
    """
    return seconds * max(SHORTEST_PART, 1.0 - TIME_LOST_PER_LEVEL * depth)


class Shares(msgspec.Struct, frozen=True):
    """Who brings in which members of a stream, as the tree stands.

    Attributes:
        version: Of the router, when this was worked out.
        asks: What each child with members below it is asked for in the first attempt.
        missing: Members that are below no child.
        whole: Children all of whose members are there, so that no ranks need be named.
        partly: The other children with members below them.
        concerned: Children below which members are at home.
    """

    version: int
    asks: dict[int, tuple[WaveRequest, ...]]
    missing: frozenset[int]
    whole: tuple[int, ...]
    partly: tuple[int, ...]
    concerned: tuple[int, ...]


def divide(
    router: Router,
    members: frozenset[int],
    named: frozenset[int] | None = None,
    *,
    follows: bool = False,
) -> Shares:
    """Work out who brings in which members.

    Args:
        router: Where places are.
        members: The present members.
        named: The members named when the stream was opened; by default the same. A child takes a
            wave that names no ranks to be for these, whatever has changed since.
        follows: Whether the stream concerns every child, as agents may come below it.

    Example:
        >>> from sapwood.comm.messages import Placed
        >>> from sapwood.core.topology import kary
        >>> router = Router(kary(4, 2), 0)
        >>> _ = router.attach(Placed(5, 1, 1, 100, 0)), router.attach(Placed(1, 1, 1, 101, 5))
        >>> shares = divide(router, frozenset({1, 2, 3}))
        >>> shares.asks[5][0].ranks, shares.missing, shares.whole, shares.partly
        (frozenset({1}), frozenset({2, 3}), (), (5,))
    """
    asks: dict[int, tuple[WaveRequest, ...]] = {}
    whole: list[int] = []
    partly: list[int] = []
    concerned: list[int] = []
    missing = set(members)
    for child in router.children:
        homes = (members if named is None else named).intersection(router.tree.leaves(child))
        if not homes and not follows:
            continue
        concerned.append(child)
        share = members.intersection(router.subtree(child))
        if not share:
            continue
        missing -= share
        asks[child] = (WaveRequest(0, share, to_ranges(share)),)
        (whole if share == homes or router.tree.is_agent(child) else partly).append(child)
    return Shares(
        router.version, asks, frozenset(missing), tuple(whole), tuple(partly), tuple(concerned)
    )


class Counters:
    """Messages, bytes and time in user-defined filters of one stream at one place.

    The names are those of :class:`~sapwood.comm.messages.PlaceReport`.
    """

    __slots__ = (
        "bytes_down",
        "bytes_up",
        "filter_seconds",
        "filtered",
        "late",
        "messages_down",
        "messages_up",
        "repeated",
    )

    def __init__(self) -> None:
        self.messages_down = self.bytes_down = 0
        self.messages_up = self.bytes_up = 0
        self.filtered = 0
        self.filter_seconds = 0.0
        self.late = self.repeated = 0

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


class PushSent:
    """What an agent has pushed to a stream.

    Attributes:
        last: Number of the last one.
        kept: Those that the root has not confirmed, in order.
        may_send: Whether the present parent knows the stream.
        waited_for: Whether a caller waits for room.
    """

    __slots__ = ("kept", "last", "may_send", "waited_for")

    def __init__(self, incarnation: int) -> None:
        self.last = incarnation * EPOCH
        self.kept: deque[tuple[Up, Payload | None]] = deque()
        self.may_send = True
        self.waited_for = False


class PushReceived:
    """What the root has of the pushes of one agent.

    Attributes:
        last: Number of the last one.
        told: The last number that was confirmed to the agent.
        unread: How many wait here to be read, where that is what counts.
    """

    __slots__ = ("last", "told", "unread")

    def __init__(self) -> None:
        self.last = self.told = self.unread = 0

    def takes(self, number: int) -> bool:
        """Take the next number, or the first one of a later process; no other."""
        later = number // EPOCH > self.last // EPOCH and number % EPOCH == 1
        if number != self.last + 1 and not later:
            return False
        self.last = number
        return True


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
        self.reports: list[PlaceReport] = []
        self.sent = 0
        self.held = False
        self.problem: ErrorRecord | None = None


class Position(msgspec.Struct, frozen=True):
    """Where a place is in the tree; the root has rank and depth 0."""

    rank: int = 0
    depth: int = 0


def filter_at(
    spec: StreamSpec, position: Position, filters: Sequence[FilterAt] = ()
) -> FilterAt | None:
    """Return the user-defined filters of a place: by rank, by depth, or for all places.

    Args:
        spec: The stream.
        position: The place.
        filters: Filters to choose of; by default those with which the stream was opened.

    Example:
        >>> kinds = (FilterAt("*", b"all"), FilterAt("depth 1", b"one"))
        >>> spec = StreamSpec(1, "echo", ((1, 3),), filters=kinds)
        >>> filter_at(spec, Position(7, 1)).up, filter_at(spec, Position(0, 0)).up
        (b'one', b'all')
    """
    places = {kind.where: kind for kind in filters or spec.filters}
    for where in (f"rank {position.rank}", f"depth {position.depth}", "*"):
        if where in places:
            return places[where]
    return None


class OwnFilters(msgspec.Struct, frozen=True):
    """The user-defined filters of one place, in some version.

    Attributes:
        at: What they are.
        code: Their name, made of their hash: the same code has the same name at all places.
    """

    at: FilterAt
    code: str


def code_name(filters: FilterAt | Sequence[FilterAt]) -> str:
    """Return what user-defined filters are called.

    Example:
        >>> code_name(FilterAt("*", b"one")) == code_name(FilterAt("depth 1", b"one"))
        True
    """
    several = (filters,) if isinstance(filters, FilterAt) else filters
    what = [(one.up, one.down, one.per_child) for one in several]
    if not isinstance(filters, FilterAt):
        what += [(one.where.encode(), b"", False) for one in several]
    return hashlib.sha256(msgspec.msgpack.encode(what)).hexdigest()[:16]


def filters_in(spec: StreamSpec, version: int) -> tuple[FilterAt, ...]:
    """Return the user-defined filters of all places in some version.

    Example:
        >>> first, second = (FilterAt("*", b"1"),), (FilterAt("*", b"2"),)
        >>> spec = StreamSpec(1, "echo", (), filters=first, updates={3: second})
        >>> [filters_in(spec, version)[0].up for version in (1, 2, 3, 4)]
        [b'1', b'1', b'2', b'2']
    """
    since = max((known for known in spec.updates if known <= version), default=0)
    return spec.updates.get(since, spec.filters)


def with_versions(
    spec: StreamSpec, parameters: dict[int, bytes], filters: dict[int, tuple[FilterAt, ...]]
) -> StreamSpec:
    """Return what a stream is with these versions, and no others."""
    updates: dict[int, tuple[FilterAt, ...]] = {}
    before = first = filters[min(parameters)]
    for version in sorted(parameters):
        if filters[version] != before:
            before = updates[version] = filters[version]
    parameters = dict(sorted(parameters.items()))
    return msgspec.structs.replace(spec, parameters=parameters, filters=first, updates=updates)


class NodeStream:
    """State of a stream at one place.

    Args:
        spec: What the stream is.
        router: Where the places are.
        gather: Makes the gathering of each wave.
        position: Where this place is.

    Attributes:
        members: Agents that take part and have their home at or below this place. The root says
            for each wave who does; places below it take those that were named when the stream was
            opened.
        named: Those that were named then.
        left: Root: members that have left, where the stream can do nothing without them.
        pending: Agent: attempt in which each wave is wanted that it works on.
        kept: The contributions to each wave that is not confirmed.
        confirmed_to: Wave up to which all are confirmed.
        chunked: Whether large contributions may be put together piece by piece.
        policy: What it does with its waves; chosen when it opens.
        passes: Whether there is nothing to do but to pass down, to gather from all, and perhaps
            to count that.
        counters: Its counters; they do nothing for a stream that is not counted.
        state: Where it is in its life; ``quiet`` says whether nothing may be sent.
        quiet_since: When that began, seconds; infinity while it is not so.
        absent: Root: agents that are lost and not back, where the stream does not wait for them.
        late_waves: Waves whose time was over before all had contributed.
        carried: Root: late contributions, and why there is none, that wait for a wave.
        counts_late: Whether late contributions count, in a later wave.
        deadlines: When which wave's time is over.
        wake_at: When the wake-up that is under way is due; minus infinity without one.
        outbox: Effects that wait behind user-defined filters; empty without filters.
        filters: User-defined filters of this place in the newest version; in all versions they
            are for the same ways, up or down.
        version: The newest version of them and their parameters.
        wave_versions: Which of them a wave uses, in a stream that does not wait.
        detained: Work for the time when the stream moves again.
        lent: Memory of user-defined filters' results on their way down, by wave.
        sent: What this agent has sent without being asked.
        refused: Root: whose contributions to which wave came in a quiet time.
        heard: Root: the received part of that, by agent.
        paced: Root: whether a value is confirmed only when it was read.
        partial: Root: whether waves end with what a junction would pass on.
        jobs: What user-defined filters work on, by ticket of the outbox.
    """

    __slots__ = (
        "_asks",
        "_own",
        "_position",
        "_router",
        "_shares",
        "absent",
        "carried",
        "chunked",
        "confirmed_to",
        "counters",
        "counts_late",
        "deadlines",
        "detained",
        "filters",
        "gather",
        "heard",
        "jobs",
        "kept",
        "last_wave",
        "late_waves",
        "left",
        "lent",
        "members",
        "named",
        "outbox",
        "paced",
        "partial",
        "passes",
        "pending",
        "policy",
        "quiet",
        "quiet_since",
        "refused",
        "sent",
        "spec",
        "state",
        "sweeps",
        "timeout",
        "version",
        "waits",
        "wake_at",
        "wave_versions",
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
        self._router = router
        self._asks = itertools.count(1)
        self._shares = Shares(-1, {}, frozenset(), (), (), ())
        homes = router.tree.leaves(router.rank)
        self.named = frozenset(rank for rank in homes if contains(spec.members, rank))
        self.members = self.named
        self.left: frozenset[int] = frozenset()
        self.waves: dict[int, Wave] = {}
        self.pending: dict[int, int] = {}
        self.kept: dict[int, list[Kept]] = {}
        self.last_wave = 0
        self.confirmed_to = 0
        self.state = StreamState.OPEN
        self.quiet = False
        self.quiet_since = math.inf
        self.counters = Counters() if spec.counted else NOT_COUNTED
        self._position = position
        self._own: dict[int, OwnFilters | None] = {}
        self.filters = self._known_filters()
        self.outbox: Outbox | NoOutbox = Outbox() if self.filters is not None else NO_OUTBOX
        self.wave_versions: dict[int, int] = {}
        self.version = max(spec.parameters, default=0)
        self.absent: set[int] = set()
        self.late_waves: dict[int, Wave] = {}
        self.carried: list[tuple[Up | Failed, Payload | None]] = []
        self.deadlines: deque[tuple[float, int]] = deque()
        self.wake_at = -math.inf
        self.detained: list[ev.Event] = []
        self.lent: list[tuple[int, Payload]] = []
        self.jobs: dict[int, Wave | Up | tuple[Down, int]] = {}
        self.sent: PushSent | None = None
        self.heard: dict[int, PushReceived] = {}
        self.paced = False
        self.partial = False
        self.refused: dict[int, set[int]] = {}
        self.sweeps: dict[int, PendingOperation] = {}
        self.waits = spec.sync.kind != NO_WAIT
        self.timeout = (
            time_at(spec.sync.seconds, position.depth) if spec.sync.kind == TIME_OUT else 0.0
        )
        self.counts_late = self.timeout > 0 and spec.sync.late == LATE_IN_NEXT
        self.passes = (
            self.waits and not spec.filters and not self.timeout and spec.on_loss == REPLACE
        )
        kinds = spec.reduce.values()
        simple = self.waits and not spec.filters and not self.timeout
        self.chunked = simple and bool(kinds) and BY_ELEMENT.issuperset(kinds)

    def concerns(self, rank: int) -> bool:
        """Whether there are members whose home is at or below a place, or may be later."""
        if self.spec.follows:
            return True
        return not self.named.isdisjoint(self._router.tree.leaves(rank))

    def among(self, ranks: set[int]) -> set[int]:
        """Return those of some ranks that may be wanted of this place."""
        if self.spec.follows:
            return ranks.intersection(self._router.tree.leaves(self._router.rank))
        return ranks & self.named

    def tree_changed(self) -> None:
        """Take in who takes part from now on; the router knows the tree of the new epoch."""
        tree, here = self._router.tree, self._router.rank
        if here == ROOT:
            gone = self.members.intersection(tree.removed)
            if gone and not self.spec.follows and self.spec.on_loss != PARTIAL:
                self.left |= gone
                self.passes = False
            self._take_part(self.members - gone)
        elif self.spec.follows and not self.waits:
            self._take_part(rank for rank in tree.leaves(here) if rank in tree)

    def places_came(self, ranks: Sequence[int]) -> None:
        """Root: agents are there, which take part from the next wave if the stream follows."""
        tree = self._router.tree
        new = {rank for rank in ranks if tree.is_agent(rank) and rank in tree} - self.members
        if new:
            self._take_part(self.members | new)

    def _take_part(self, members: Iterable[int]) -> None:
        members = frozenset(members)
        if members == self.members:
            return
        self.members = members
        self._shares = Shares(-1, {}, frozenset(), (), (), ())

    def shares(self) -> Shares:
        """Return who brings in which members, as the tree stands."""
        shares = self._shares
        if shares.version != self._router.version:
            shares = self._shares = divide(
                self._router, self.members, self.named, follows=self.spec.follows
            )
        return shares

    @property
    def children(self) -> tuple[int, ...]:
        """Children that the stream concerns."""
        return self.shares().concerned

    @property
    def filters_up(self) -> bool:
        """Whether a user-defined filter puts contributions together here."""
        return self.filters is not None and bool(self.filters.up)

    @property
    def filters_down(self) -> bool:
        """Whether values go through a user-defined filter here on their way down."""
        return self.filters is not None and bool(self.filters.down)

    # --- versions of user-defined filters ---------------------------------------------------------

    def filters_in(self, version: int) -> OwnFilters | None:
        """Return the user-defined filters of this place in some version, if it has any then."""
        since = max((known for known in self._own if known <= version), default=0)
        return self._own.get(since)

    def filters_at(self, version: int) -> OwnFilters:
        """Return the user-defined filters of this place in some version.

        Raises:
            ProtocolError: A peer names a version in which there are none.
        """
        own = self.filters_in(version)
        if own is None:
            raise ProtocolError(f"no filter works at rank {self._router.rank}")
        return own

    def parameters_of(self, version: int) -> bytes:
        """Return the parameters of user-defined filters in some version."""
        return self.spec.parameters.get(version, b"")

    def oldest_version(self) -> int:
        """Root: return the oldest version that a wave may still name."""
        waves = [*self.waves.values(), *self.late_waves.values()]
        used = [wave.version for wave in waves]
        return min([*used, *self.wave_versions.values(), self.version])

    def staged(self) -> OwnFilters | None:
        """Return the user-defined filters of this place that are staged."""
        return self._own_of(self.spec.staged)

    def stage(self, filters: tuple[FilterAt, ...]) -> list[str]:
        """Keep user-defined filters for a later version; return names that are not used now."""
        before = self._names()
        self.spec = msgspec.structs.replace(self.spec, staged=filters)
        return sorted(before - self._names())

    def configure(
        self, version: int, parameters: bytes, oldest: int = 0, code: str = ""
    ) -> list[str]:
        """Take in what a version has; return names of filters that are not used any more.

        Args:
            version: The version.
            parameters: Its parameters.
            oldest: No wave names a version before this one.
            code: Name of the staged filters that it has; by default the previous version's.

        Raises:
            ProtocolError: No such filters are staged.
        """
        spec, before = self.spec, self._names()
        if code and version > self.version:
            if not spec.staged or code_name(spec.staged) != code:
                raise ProtocolError(f"no filters {code} are staged at rank {self._router.rank}")
            newest = spec.staged
            spec = msgspec.structs.replace(spec, staged=())
        else:
            newest = filters_in(spec, version)
        filters = {known: filters_in(spec, known) for known in spec.parameters}
        filters.setdefault(version, newest)
        every = {version: parameters, **spec.parameters}
        self.version = max(self.version, version)
        kept = {known: every[known] for known in every if known >= oldest}
        self.spec = with_versions(spec, kept or {version: parameters}, filters)
        self.filters = self._known_filters()
        return sorted(before - self._names())

    def is_over(self, version: int) -> bool:
        """Whether the root has no wave of a version any more."""
        return self.filters is not None and version < min(self.spec.parameters, default=0)

    def forget_versions(self) -> list[int]:
        """Drop waves of versions that the root has no wave of; return their numbers."""
        first = min(self.spec.parameters, default=0)
        over = [one.number for one in self.waves.values() if one.version < first]
        late = [one.number for one in self.late_waves.values() if one.version < first]
        for number in (*over, *late):
            self.abandon(number)
        self.wave_versions = {
            wave: version for wave, version in self.wave_versions.items() if version >= first
        }
        return [*over, *late]

    def take_versions(self, spec: StreamSpec) -> bool:
        """Take in what a new parent knows of versions; return whether that was news."""
        mine, before = self.spec, (self.spec.parameters, self.spec.updates, self.spec.staged)
        if not spec.parameters or not mine.parameters:
            return False
        filters = {known: filters_in(spec, known) for known in spec.parameters}
        filters |= {known: filters_in(mine, known) for known in mine.parameters}
        mine = with_versions(mine, spec.parameters | mine.parameters, filters)
        self.spec = msgspec.structs.replace(mine, staged=spec.staged or mine.staged)
        self.version = max(self.spec.parameters)
        self.filters = self._known_filters()
        return before != (self.spec.parameters, self.spec.updates, self.spec.staged)

    def _own_of(self, filters: tuple[FilterAt, ...]) -> OwnFilters | None:
        found = filter_at(self.spec, self._position, filters) if filters else None
        return None if found is None else OwnFilters(found, code_name(found))

    def _known_filters(self) -> FilterAt | None:
        """Record the filters of this place in each version; return the newest ones."""
        spec = self.spec
        if not spec.filters:
            return None
        known = {0: spec.filters, **spec.updates}
        self._own = {version: self._own_of(filters) for version, filters in known.items()}
        newest = self._own[max(self._own)]
        return None if newest is None else newest.at

    def _names(self) -> set[str]:
        return {own.code for own in (*self._own.values(), self.staged()) if own is not None}

    def advance(self, event: StreamEvent) -> None:
        """Go to the next state of its life.

        Raises:
            InternalError: The event cannot happen in this state.
        """
        self.state = TRANSITIONS.after(self.state, event)
        self.quiet = self.state is not StreamState.OPEN

    def postpone(self, now: float) -> None:
        """Give waves back the time that they were quiet: nothing could come meanwhile."""
        quiet, latest = max(0.0, now - self.quiet_since), now + self.timeout
        self.quiet_since = math.inf
        self.deadlines = deque((min(due + quiet, latest), wave) for due, wave in self.deadlines)

    def next_deadline(self) -> float:
        """Return when the time of the first open wave is over; forget those that are complete."""
        deadlines = self.deadlines
        while deadlines and deadlines[0][1] not in self.waves:
            deadlines.popleft()
        return deadlines[0][0] if deadlines else math.inf

    def parent_changed(self) -> None:
        """What the former parent asked for is kept, until the new one asks for it."""
        self.pending = dict.fromkeys(self.pending, NOT_WANTED)
        for wave in self.waves.values():
            wave.wanted, wave.later = False, None

    def settle(self) -> None:
        """The place above is quiet: so is this one, whatever it waited for."""
        self.advance(StreamEvent.DRAINED)
        self.sweeps.clear()

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
        if self.filters_up:
            gathering = Parts(first)
        else:
            gathering = self.gather(self.spec.reduce)
            if first:
                gathering = ShiftedRanks(gathering, first)
        wave = Wave(number, 0, body, payload, waiting, missing, gathering, self._asks)
        self.waves[number] = wave
        self.last_wave = max(self.last_wave, number)
        return wave

    def begin_whole(self, number: int, body: bytes, payload: Payload | None) -> Wave:
        """Begin a wave that all members take part in, as far as they are there."""
        shares = self.shares()
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
        if self.late_waves and self.counts_late:
            first = min(first, *self.late_waves)
        return first - 1

    def release(self, confirmed: int) -> list[Payload]:
        """Return the contributions that are no longer needed, and forget them."""
        self.confirmed_to = confirmed
        done = [number for number in self.kept if number <= confirmed]
        kept = [one for number in done for one in self.kept.pop(number)]
        free = [one.payload for one in kept if one.payload is not None]
        if self.lent:
            free += [payload for number, payload in self.lent if number <= confirmed]
            self.lent = [entry for entry in self.lent if entry[0] > confirmed]
        return free

    def forget_abandoned(self, confirmed: int) -> None:
        """Drop waves that the root does not wait for: they failed while this place was away."""
        for number in [number for number in self.waves if number <= confirmed]:
            del self.waves[number]
        if self.counts_late:
            for number in [number for number in self.late_waves if number <= confirmed]:
                del self.late_waves[number]

    def abandon(self, wave: int) -> None:
        """Forget a wave that failed."""
        self.waves.pop(wave, None)
        self.late_waves.pop(wave, None)

    def use_version(self, wave: int, version: int, confirmed: int) -> None:
        """Note the parameters of a wave that is not kept; forget those of confirmed waves."""
        self.wave_versions = {
            number: known for number, known in self.wave_versions.items() if number > confirmed
        }
        self.wave_versions[wave] = version

    def forget(self, number: int) -> list[Payload]:
        """Drop what was contributed to a wave; return its memory."""
        self.pending.pop(number, None)
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
        late = self.late_waves if self.counts_late else {}
        waves = {**late, **self.waves}.values()
        return [wave.payload for wave in waves if wave.payload is not None]

    def time_is_over(self, wave: Wave) -> list[Payload]:
        """Note who is missing in a wave that is passed on without them.

        Returns:
            Root: values of waves that are no longer awaited.
        """
        known = self.late_waves.get(wave.number)
        if known is not None and known is not wave:  # this is one more part of it
            known.missing |= wave.unanswered()
        elif wave.waiting or wave.missing:
            self.late_waves[wave.number] = wave
            if len(self.late_waves) > LATE_WAVES:
                return self._forget_late(next(iter(self.late_waves)))
        return []

    def late_is_over(self, wave: Wave) -> list[Payload]:
        """Forget a late wave without missing members; as :meth:`time_is_over`."""
        return [] if wave.waiting or wave.missing else self._forget_late(wave.number)

    def _forget_late(self, number: int) -> list[Payload]:
        payload = self.late_waves.pop(number).payload
        mine = payload is not None and self.counts_late and self._router.rank == ROOT
        return [payload] if payload is not None and mine else []

    def sent_to(self, wave: Wave, child: int) -> tuple[bytes, Payload | None] | None:
        """Return what a child was sent in a wave; None if its filter still works on it."""
        if not self.filters_down:
            return wave.body, wave.payload
        return wave.sent.get(child) or wave.sent.get(ALL)

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
