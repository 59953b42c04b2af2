"""One stream at one place: its open waves, and what this place contributed.

Contributors keep their contribution until a later wave confirms it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

from sapwood.comm import events as ev
from sapwood.comm.messages import (
    NO_WAIT,
    REPLACE,
    TIME_OUT,
    Down,
    FilterAt,
    PlaceReport,
    StreamSpec,
    Sweep,
    Up,
)
from sapwood.comm.payload import Payload
from sapwood.comm.streams.counters import Counters
from sapwood.comm.streams.life import StreamEvent, StreamState, following
from sapwood.comm.streams.outbox import Outbox
from sapwood.comm.streams.wave import NewGathering, Wave
from sapwood.core.errors import SapwoodError

LATE_WAVES = 64
"""Waves whose time is over of which a place remembers who was missing."""

TIME_LOST_PER_LEVEL = 0.1
"""Part of a time-out by which each level passes on earlier than the one above it."""

SHORTEST_PART = 0.3
"""Part of a time-out that even the deepest place waits."""


class UnderWay:
    """A sweep that has not come back yet.

    Attributes:
        message: What it does.
        waiting: Children that have not answered.
        reached: Agents that have.
        reports: What places below reported.
    """

    __slots__ = ("message", "reached", "reports", "waiting")

    def __init__(self, message: Sweep, waiting: set[int]) -> None:
        self.message = message
        self.waiting = waiting
        self.reached: list[tuple[int, int]] = []
        self.reports: list[PlaceReport] = []


class Position(msgspec.Struct, frozen=True):
    """Where a place is in the tree; the root has rank and depth 0."""

    rank: int = 0
    depth: int = 0


def filter_at(spec: StreamSpec, position: Position) -> FilterAt | None:
    """Return the own filters of a place: by rank, by depth, or for all places.

    Example:
        >>> kinds = (FilterAt("*", b"all"), FilterAt("depth 1", b"one"))
        >>> spec = StreamSpec(1, "echo", ((1, 3),), filters=kinds)
        >>> filter_at(spec, Position(7, 1)).up, filter_at(spec, Position(0, 0)).up
        (b'one', b'all')
    """
    places = {kind.where: kind for kind in spec.filters}
    for where in (f"rank {position.rank}", f"depth {position.depth}", "*"):
        if where in places:
            return places[where]
    return None


class Stream:
    """State of a stream at one place.

    Args:
        spec: What the stream is.
        children: Children of this place with members at or below them.
        gather: Makes the gathering of each wave.
        position: Where this place is.

    Attributes:
        plain: Whether there is nothing to do but to pass down and to gather from all.
        state: Where it is in its life; ``quiet`` says whether nothing may be sent.
        abandoned: Waves that failed before this agent contributed.
        absent: Children that are lost and not back, where the stream does not wait for them.
        late_waves: Waves whose time was over before all had contributed.
        carried: Late contributions that wait for a wave.
        deadlines: When which wave's time is over.
        outbox: What waits behind own filters; None where there are none.
        versions: Parameters of own filters.
        wave_versions: Which of them a wave uses, in a stream that does not wait.
        detained: What is to happen once the stream moves again.
        lent: Memory of own filters' results on their way down, by wave.
        jobs: What own filters work on, by ticket of the outbox.
    """

    __slots__ = (
        "abandoned",
        "absent",
        "carried",
        "children",
        "counters",
        "deadlines",
        "detained",
        "emitted",
        "filters",
        "gather",
        "held",
        "jobs",
        "last_wave",
        "late_waves",
        "lent",
        "outbox",
        "plain",
        "quiet",
        "spec",
        "state",
        "sweeps",
        "timeout",
        "version",
        "versions",
        "waits",
        "wave_versions",
        "waves",
    )

    def __init__(
        self,
        spec: StreamSpec,
        children: Iterable[int],
        gather: NewGathering,
        position: Position = Position(),  # noqa: B008 - frozen
    ) -> None:
        self.spec = spec
        self.gather = gather
        self.children = tuple(children)
        self.waves: dict[int, Wave] = {}
        self.held: dict[int, Payload] = {}
        self.last_wave = 0
        self.state = StreamState.OPEN
        self.quiet = False
        self.counters = Counters() if spec.counted else None
        self.filters = filter_at(spec, position) if spec.filters else None
        self.outbox = Outbox() if self.filters is not None else None
        self.versions = dict(spec.parameters)
        self.wave_versions: dict[int, int] = {}
        self.version = max(self.versions, default=0)
        self.absent: set[int] = set()
        self.late_waves: dict[int, Wave] = {}
        self.carried: list[tuple[Up, Payload | None]] = []
        self.deadlines: deque[tuple[float, int]] = deque()
        self.detained: list[ev.Event] = []
        self.lent: list[tuple[int, Payload]] = []
        self.jobs: dict[int, Wave | Up | tuple[Down, int]] = {}
        self.emitted = 0
        self.abandoned: set[int] = set()
        self.sweeps: dict[int, UnderWay] = {}
        self.waits = spec.sync.kind != NO_WAIT
        share = max(SHORTEST_PART, 1.0 - TIME_LOST_PER_LEVEL * position.depth)
        self.timeout = spec.sync.seconds * share if spec.sync.kind == TIME_OUT else 0.0
        self.plain = (
            self.waits
            and not spec.filters
            and not self.timeout
            and not spec.counted
            and spec.on_loss == REPLACE
        )

    @property
    def filters_up(self) -> bool:
        """Whether an own filter puts contributions together here."""
        return self.filters is not None and bool(self.filters.up)

    @property
    def filters_down(self) -> bool:
        """Whether values go through an own filter here on their way down."""
        return self.filters is not None and bool(self.filters.down)

    def advance(self, event: StreamEvent) -> None:
        """Go to the next state of its life.

        Raises:
            ProtocolError: The event cannot happen in this state.
        """
        self.state = following(self.state, event)
        self.quiet = self.state is not StreamState.OPEN

    def begin(self, number: int, attempt: int, body: bytes, payload: Payload | None) -> Wave:
        """Begin a wave that all children of this place take part in."""
        waiting = dict.fromkeys(self.children, attempt)
        gathering = Parts() if self.filters_up else self.gather(self.spec.reduce)
        wave = Wave(number, attempt, body, payload, waiting, gathering)
        self.waves[number] = wave
        self.last_wave = max(self.last_wave, number)
        return wave

    def confirmed(self) -> int:
        """Highest wave such that nothing is needed any more of it and of all before it."""
        first = min(self.waves, default=self.last_wave + 1)
        if self.late_waves and self.spec.sync.late == "next":
            first = min(first, *self.late_waves)
        return first - 1

    def release(self, confirmed: int) -> list[Payload]:
        """Return the contributions that nobody needs any more, and forget them."""
        done = [number for number in self.held if number <= confirmed]
        free = [self.held.pop(number) for number in done]
        if self.lent:
            free += [payload for number, payload in self.lent if number <= confirmed]
            self.lent = [entry for entry in self.lent if entry[0] > confirmed]
        return free

    def abandon(self, wave: int, confirmed: int) -> None:
        """Forget a wave that failed, and that those failed that are confirmed since."""
        self.waves.pop(wave, None)
        self.late_waves.pop(wave, None)
        self.abandoned = {number for number in self.abandoned if number > confirmed} | {wave}

    def repeated(self) -> None:
        """Count a contribution that came twice, or to a wave that is over."""
        if self.counters is not None:
            self.counters.repeated += 1

    def use_version(self, wave: int, version: int, confirmed: int) -> None:
        """Note the parameters of a wave that is not kept; forget those of confirmed waves."""
        self.wave_versions = {
            number: known for number, known in self.wave_versions.items() if number > confirmed
        }
        self.wave_versions[wave] = version

    def time_is_over(self, wave: Wave) -> None:
        """Note who is missing in a wave that is passed on without them."""
        if wave.waiting:
            self.late_waves[wave.number] = wave
            if len(self.late_waves) > LATE_WAVES:
                del self.late_waves[next(iter(self.late_waves))]

    def __repr__(self) -> str:
        return (
            f"Stream({self.spec.stream} {self.spec.handler}, {self.state.value}, "
            f"{len(self.waves)} waves open)"
        )


class Parts:
    """Contributions as they came, for an own filter."""

    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: list[ev.Part] = []

    def add(self, body: bytes, payload: Payload | None, rank: int, weight: float) -> None:
        """Take one more contribution."""
        self.parts.append(ev.Part(rank, weight, body, payload))

    def partial(self) -> tuple[bytes, Payload | None]:
        """Refuse: the filter does this."""
        raise SapwoodError("an own filter puts these contributions together")

    def total(self) -> object:
        """Refuse: the filter does this."""
        raise SapwoodError("an own filter puts these contributions together")
