"""User-defined filters of one stream at one place: their versions, their outbox, their input.

The core calls no user code. The wave engine asks for it with an event, whoever drives the core
runs the filter in another process, and the answer comes back as an event. What the stream sends
meanwhile waits in its :class:`Outbox`, so that messages keep their order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from sapwood.comm import events as ev
from sapwood.comm.messages import Down, FilterAt, StreamSpec, Up
from sapwood.comm.payload import Payload
from sapwood.comm.streams.wave import Wave
from sapwood.core.errors import InternalError, ProtocolError, SapwoodError

Effects = list[ev.Effect]

ALL = -1
"""Child of a value that is the same for all of them."""


class Outbox:
    """Effects of one stream; effects of a filter come later, and the following ones wait for them.

    Example:
        >>> outbox = Outbox()
        >>> outbox.put([ev.ParentUp()])
        [ParentUp()]
        >>> ticket = outbox.reserve()
        >>> outbox.put([ev.ParentUp()])
        []
        >>> outbox.fill(ticket, [ev.Disconnect(1, "")])
        [Disconnect(link=1, reason=''), ParentUp()]
    """

    __slots__ = ("_next", "_slots")

    def __init__(self) -> None:
        self._slots: dict[int, Effects | None] = {}
        self._next = 1

    def reserve(self) -> int:
        """Keep the next place in the row; return its number for :meth:`fill`."""
        number = self._next
        self._next += 1
        self._slots[number] = None
        return number

    def put(self, effects: Effects) -> Effects:
        """Return these effects, or keep them behind what is still missing."""
        if not self._slots:
            return effects
        self._slots[self.reserve()] = effects
        return []

    def fill(self, ticket: int, effects: Effects) -> Effects:
        """Put the missing effects in; return all that can leave now."""
        if ticket not in self._slots:
            return []
        self._slots[ticket] = effects
        leaving: Effects = []
        while self._slots:
            first = next(iter(self._slots))
            ready = self._slots[first]
            if ready is None:
                break
            del self._slots[first]
            leaving += ready
        return leaving

    def __len__(self) -> int:
        return len(self._slots)


class NoOutbox:
    """The outbox of a stream without filters: nothing ever waits in it."""

    __slots__ = ()

    def reserve(self) -> int:
        """Refuse: there is nothing to wait for.

        Raises:
            InternalError: Always.
        """
        raise InternalError("a stream without filters has no outbox")

    def put(self, effects: Effects) -> Effects:
        """Return these effects."""
        return effects

    def fill(self, _ticket: int, effects: Effects) -> Effects:
        """Return these effects."""
        return effects

    def __len__(self) -> int:
        return 0


NO_OUTBOX = NoOutbox()


class Parts:
    """Contributions as they came, for a user-defined filter.

    Args:
        first: Offset that is added to ranks.
    """

    __slots__ = ("_first", "parts")

    def __init__(self, first: int = 0) -> None:
        self._first = first
        self.parts: list[ev.PartialContribution] = []

    def add(self, body: bytes, payload: Payload | None, rank: int, weight: float) -> None:
        """Take one more contribution."""
        self.parts.append(ev.PartialContribution(rank + self._first, weight, body, payload))

    def partial(self) -> tuple[bytes, Payload | None]:
        """Refuse: the filter does this."""
        raise SapwoodError("a user-defined filter puts these contributions together")

    def placed(self, _value: object) -> tuple[bytes, Payload | None]:
        """Refuse: the filter does this."""
        raise SapwoodError("a user-defined filter puts these contributions together")

    def total(self) -> object:
        """Refuse: the filter does this."""
        raise SapwoodError("a user-defined filter puts these contributions together")

    def chunked(self, _offers: object) -> None:
        """Say that they cannot be put together piece by piece."""


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


class StreamFilters:
    """The user-defined filters of a stream at one place, and what they work on.

    Args:
        spec: What the stream is; the methods that change filters return the changed one.
        position: Where this place is.

    Attributes:
        newest: The filters of this place in the newest version, None without any; in all versions
            they are for the same directions.
        up: Whether a filter puts contributions together here.
        down: Whether values go through a filter here on their way down.
        version: The newest version of filters and their parameters.
        outbox: Effects that wait behind filters; empty without filters.
        jobs: What filters work on, by ticket of the outbox.
        wave_versions: The version of each wave that is not kept, in a stream that does not wait.
    """

    __slots__ = (
        "_own",
        "_position",
        "down",
        "jobs",
        "newest",
        "outbox",
        "up",
        "version",
        "wave_versions",
    )

    def __init__(self, spec: StreamSpec, position: Position) -> None:
        self._position = position
        self._own: dict[int, OwnFilters | None] = {}
        self.newest: FilterAt | None
        self.up: bool
        self.down: bool
        self._record(spec)
        self.outbox: Outbox | NoOutbox = Outbox() if self.newest is not None else NO_OUTBOX
        self.version = max(spec.parameters, default=0)
        self.wave_versions: dict[int, int] = {}
        self.jobs: dict[int, Wave | Up | tuple[Down, int]] = {}

    def in_version(self, version: int) -> OwnFilters | None:
        """Return the filters of this place in a version, if it has any then."""
        since = max((known for known in self._own if known <= version), default=0)
        return self._own.get(since)

    def at(self, version: int) -> OwnFilters:
        """Return the filters of this place in a version.

        Raises:
            ProtocolError: A peer names a version in which there are none.
        """
        own = self.in_version(version)
        if own is None:
            raise ProtocolError(f"no filter works at rank {self._position.rank}")
        return own

    def staged(self, spec: StreamSpec) -> OwnFilters | None:
        """Return the filters of this place that are staged."""
        return self._own_of(spec, spec.staged)

    def stage(
        self, spec: StreamSpec, filters: tuple[FilterAt, ...]
    ) -> tuple[StreamSpec, list[str]]:
        """Keep filters for a later version; return the spec, and names that are not used now."""
        before = self._names(spec)
        spec = msgspec.structs.replace(spec, staged=filters)
        return spec, sorted(before - self._names(spec))

    def configure(
        self, spec: StreamSpec, version: int, parameters: bytes, oldest: int = 0, code: str = ""
    ) -> tuple[StreamSpec, list[str]]:
        """Begin a version; return the spec, and names of filters that are not used any more.

        Args:
            spec: What the stream is.
            version: The version.
            parameters: Its parameters.
            oldest: No wave names a version before this one.
            code: Name of the staged filters that it has; by default the previous version's.

        Raises:
            ProtocolError: No such filters are staged.
        """
        before = self._names(spec)
        if code and version > self.version:
            if not spec.staged or code_name(spec.staged) != code:
                raise ProtocolError(f"no filters {code} are staged at rank {self._position.rank}")
            newest = spec.staged
            spec = msgspec.structs.replace(spec, staged=())
        else:
            newest = filters_in(spec, version)
        filters = {known: filters_in(spec, known) for known in spec.parameters}
        filters.setdefault(version, newest)
        every = {version: parameters, **spec.parameters}
        self.version = max(self.version, version)
        kept = {known: every[known] for known in every if known >= oldest}
        spec = with_versions(spec, kept or {version: parameters}, filters)
        self._record(spec)
        return spec, sorted(before - self._names(spec))

    def take_versions(self, mine: StreamSpec, spec: StreamSpec) -> StreamSpec:
        """Add the versions that a new parent knows; return the spec, the same without news."""
        if not spec.parameters or not mine.parameters:
            return mine
        before = (mine.parameters, mine.updates, mine.staged)
        filters = {known: filters_in(spec, known) for known in spec.parameters}
        filters |= {known: filters_in(mine, known) for known in mine.parameters}
        both = with_versions(mine, spec.parameters | mine.parameters, filters)
        both = msgspec.structs.replace(both, staged=spec.staged or mine.staged)
        self.version = max(both.parameters)
        self._record(both)
        return mine if before == (both.parameters, both.updates, both.staged) else both

    def is_over(self, spec: StreamSpec, version: int) -> bool:
        """Whether the root has no wave of a version any more."""
        return self.newest is not None and version < min(spec.parameters, default=0)

    def use_version(self, wave: int, version: int, confirmed: int) -> None:
        """Record the version of a wave that is not kept; forget those of confirmed waves."""
        self.wave_versions = {
            number: known for number, known in self.wave_versions.items() if number > confirmed
        }
        self.wave_versions[wave] = version

    def forget_before(self, first: int) -> None:
        """Forget the waves of versions before one."""
        self.wave_versions = {
            wave: version for wave, version in self.wave_versions.items() if version >= first
        }

    def _own_of(self, spec: StreamSpec, filters: tuple[FilterAt, ...]) -> OwnFilters | None:
        found = filter_at(spec, self._position, filters) if filters else None
        return None if found is None else OwnFilters(found, code_name(found))

    def _record(self, spec: StreamSpec) -> None:
        """Record the filters of this place in each version."""
        known = {0: spec.filters, **spec.updates} if spec.filters else {}
        self._own = {version: self._own_of(spec, filters) for version, filters in known.items()}
        newest = self._own[max(self._own)] if self._own else None
        self.newest = None if newest is None else newest.at
        self.up = newest is not None and bool(newest.at.up)
        self.down = newest is not None and bool(newest.at.down)

    def _names(self, spec: StreamSpec) -> set[str]:
        every = (*self._own.values(), self.staged(spec))
        return {own.code for own in every if own is not None}
