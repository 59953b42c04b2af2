"""One wave at one place: contributions, requests and missing ranks.

Every agent that this place is to bring together is at any time in exactly one of three sets:
its contribution is in, a child was asked for it, or it is missing. A child answers each time it
is asked, and names the ranks in its answer; ranks that are not in it are missing again. So nothing
is counted twice, whichever way it came, and nothing is lost while a place still holds it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Protocol

import msgspec

from sapwood.comm.link import Link
from sapwood.comm.messages import Up
from sapwood.comm.messages.pieces import Draw, Offer
from sapwood.comm.payload import Payload
from sapwood.comm.peers import Effects
from sapwood.core.errors import ErrorRecord, ProtocolError
from sapwood.core.rankset import Ranges, from_ranges, joined, to_ranges


class Advertised(msgspec.Struct, frozen=True, gc=False):
    """A large contribution of a child, which still holds its arrays; ``rank`` is its first one."""

    child: int
    rank: int
    ranks: Ranges
    weight: float
    body: bytes
    size: int


class Chunk(Protocol):
    """The same piece of several contributions; ``view`` is what they come to so far."""

    count: int
    view: memoryview

    def add(self, view: memoryview, weight: float) -> None:
        """Take this piece of one more contribution.

        Raises:
            SapwoodError: It does not fit.
        """


class ChunkedReduction(Protocol):
    """Puts contributions together piece by piece: ``size`` bytes, and what goes with them."""

    body: bytes
    size: int

    def chunk(self, start: int) -> Chunk:
        """Return a piece that begins somewhere, with nothing in it."""

    def total(self, result: bytearray) -> Any:
        """Return the result at the root, from its bytes."""


class ContributionFetch(Protocol):
    """Fetches the large contributions to a wave.

    Attributes:
        sources: Which.
    """

    sources: tuple[Advertised, ...]

    def stop(self) -> None:
        """Fetch no more, and forget what has come."""


class PassThrough(ContributionFetch, Protocol):
    """Puts them together as they are fetched, and hands them on.

    Attributes:
        size: Bytes of the result.
        body: What goes with them.
    """

    size: int
    body: bytes

    def on_draw(self, link: Link, message: Draw) -> Effects:
        """Continue as the receiver of the result wants it, or restart.

        Raises:
            ProtocolError: It cannot be fetched so.
        """


class Gathering(Protocol):
    """Puts the contributions to one wave together; ``reduction.py`` has the one that is used."""

    def add(self, body: bytes, payload: Payload | None, rank: int, weight: float) -> None:
        """Take one more contribution; ``rank`` is the first one behind it.

        Raises:
            SapwoodError: It does not fit the others.
        """

    def partial(self) -> tuple[bytes, Payload | None]:
        """Return what a junction sends on, encoded."""

    def placed(self, value: Any) -> tuple[bytes, Payload | None]:
        """Return a value encoded, to be sent on."""

    def total(self) -> Any:
        """Return the result at the root.

        Raises:
            SapwoodError: The contributions do not fit together.
        """

    def chunked(self, offers: Sequence[Advertised]) -> ChunkedReduction | None:
        """Return how large contributions are put together piece by piece; None if they cannot.

        Raises:
            SapwoodError: One cannot be read.
        """


class Summary(Gathering, Protocol):
    """A gathering whose result can be sent down again."""

    def outcome(self) -> tuple[bytes, Payload | None]:
        """Return the result, encoded, to be sent down.

        Raises:
            SapwoodError: The contributions do not fit together.
        """


class ShiftedRanks:
    """A gathering that sees other ranks: more agents take part, in another tree.

    Args:
        gathering: The gathering.
        first: Offset that is added to ranks.
    """

    __slots__ = ("_first", "_gathering", "chunked", "partial", "placed", "total")

    def __init__(self, gathering: Gathering, first: int) -> None:
        self._first = first
        self._gathering = gathering
        self.partial = gathering.partial
        self.placed = gathering.placed
        self.total = gathering.total
        self.chunked = gathering.chunked

    def add(self, body: bytes, payload: Payload | None, rank: int, weight: float) -> None:
        """Take one more contribution."""
        self._gathering.add(body, payload, rank + self._first, weight)


NewGathering = Callable[[Mapping[str, str]], Summary]
"""Makes the gathering of a wave from the reductions of its stream."""


class WaveRequest(msgspec.Struct, frozen=True, gc=False):
    """What a child was asked for: the contributions of ``ranks``, in an attempt."""

    attempt: int
    ranks: frozenset[int]
    ranges: Ranges


class Kept(msgspec.Struct, frozen=True):
    """A contribution, or why there is none, that its sender keeps until it is confirmed.

    The arrays of one with a ``pass_through`` are put together from those of children when they
    are wanted.
    """

    ranks: frozenset[int]
    ranges: Ranges
    weight: float
    body: bytes
    payload: Payload | None
    error: ErrorRecord | None = None
    pass_through: PassThrough | None = None


class WaveValue:
    """The value of a wave, on its way down.

    Args:
        body: The value.
        payload: Its arrays.

    Attributes:
        version: Of the parameters of user-defined filters.
        sent: What a filter made of it, by child, or by -1 for all of them.
    """

    __slots__ = ("body", "payload", "sent", "version")

    def __init__(self, body: bytes, payload: Payload | None) -> None:
        self.body = body
        self.payload = payload
        self.version = 0
        self.sent: dict[int, tuple[bytes, Payload | None]] = {}


class Wave:
    """A wave that waits for contributions.

    Args:
        number: Counts the waves of its stream from 1.
        attempt: Attempt in which this place was asked.
        value: The value that went down.
        waiting: What each child was asked for and has not answered, oldest first.
        missing: Ranks that are wanted, not in, and requested from no child.
        gathering: The contributions so far.
        asks: Numbers the requests to children. Parts of one wave share it: a late answer to an
            earlier part is not an answer to this one.

    Attributes:
        wanted: Whether the present parent waits for the answer.
        later: What the present parent wants of this wave when this part of it is done.
        given_up: Root: agents that are lost, and not waited for any more.
        lacking: Missing ranks of the last answer that lacked some.
        filtering: Whether it is full and in the hands of a user-defined filter.
        added: Contributions with something to add.
        offers: Large contributions that children still hold.
        fetching: What fetches them, if something does.
        pushers: Root: the processes that have pushed values since it began and have not answered,
            as their incarnations by rank.
    """

    __slots__ = (
        "_asks",
        "_late",
        "_ranks",
        "added",
        "attempt",
        "fetching",
        "filtering",
        "gathering",
        "given_up",
        "lacking",
        "later",
        "missing",
        "number",
        "offers",
        "pushers",
        "value",
        "waiting",
        "wanted",
        "weight",
    )

    def __init__(
        self,
        number: int,
        attempt: int,
        value: WaveValue,
        waiting: dict[int, tuple[WaveRequest, ...]],
        missing: set[int],
        gathering: Gathering,
        asks: Iterator[int] | None = None,
    ) -> None:
        self.number = number
        self.attempt = attempt
        self.value = value
        self.waiting = waiting
        self.missing = missing
        self.gathering = gathering
        self.wanted = True
        self.later: tuple[int, set[int]] | None = None
        self.given_up: set[int] = set()
        self.pushers: dict[int, int] = {}
        self.lacking: set[int] = set()
        self._asks = itertools.count(1) if asks is None else asks
        self._ranks: list[tuple[int, int]] = []
        self._late: list[tuple[int, int]] = []
        self.weight = 0.0
        self.added = 0
        self.filtering = False
        self.offers: tuple[Advertised, ...] = ()
        self.fetching: ContributionFetch | None = None

    @property
    def ranks(self) -> Ranges:
        """Agents whose contributions are in."""
        return joined(self._ranks)

    @property
    def late(self) -> Ranges:
        """Root: agents whose contributions to earlier waves are in."""
        return to_ranges(from_ranges(self._late)) if self._late else ()

    def accepts(self, child: int, attempt: int) -> bool:
        """Whether a child was asked in an attempt, or an earlier one, and has not answered."""
        asks = self.waiting.get(child)
        return asks is not None and asks[0].attempt <= attempt

    def add(self, child: int, message: Up, payload: Payload | None) -> bool:
        """Take the answer of a child in; return whether it was the last that was waited for.

        Raises:
            ProtocolError: It is for ranks that were not asked for.
            SapwoodError: It does not fit the others.
        """
        asks = self.waiting[child]
        if len(asks) == 1 and asks[0].ranges == message.ranks:
            self._put(message, payload)
            del self.waiting[child]
        else:
            self._add_part(child, asks, message, payload)
        self._ranks += message.ranks
        self.weight += message.weight
        return not self.waiting

    def _put(self, message: Up, payload: Payload | None) -> None:
        if message.body:
            self.added += 1
            first = message.ranks[0][0]
            self.gathering.add(message.body, payload, first, message.weight)

    def _add_part(
        self, child: int, asks: tuple[WaveRequest, ...], message: Up, payload: Payload | None
    ) -> None:
        self._answer(child, asks, message)
        self._put(message, payload)

    def _answer(self, child: int, asks: tuple[WaveRequest, ...], message: Up | Offer) -> None:
        """Note whom a child answers for; the others that it was asked for are missing.

        Raises:
            ProtocolError: It answers for others.
        """
        wanted = {rank for ask in asks if ask.attempt <= message.attempt for rank in ask.ranks}
        # The bounds come from a peer: they are looked at before they are counted out.
        count = sum(stop - start for start, stop in message.ranks)
        most = len(wanted) + len(self.given_up)
        few = all(start < stop for start, stop in message.ranks) and count <= most
        given = from_ranges(message.ranks) if few else set()
        allowed = wanted | self.given_up  # it may not have heard yet that these are not wanted
        odd = not few or len(given) != count or not given <= allowed
        if odd or (child in wanted and child not in given):
            raise ProtocolError(f"rank {child} contributes for ranks that it was not asked for")
        if not message.ranks and message.body:
            raise ProtocolError(f"rank {child} contributes for no rank")
        self.lacking = wanted - given
        self.missing |= self.lacking
        self.answered(child, message.attempt)

    # --- large contributions, which stay where they are until they are fetched ------------------

    def offered(self, child: int, message: Offer) -> None:
        """Note a large contribution of a child, which answers what it was asked.

        Raises:
            ProtocolError: It is for ranks that were not asked for.
        """
        self._answer(child, self.waiting[child], message)
        ranks = message.ranks
        offer = Advertised(child, ranks[0][0], ranks, message.weight, message.body, message.size)
        self.offers = (*self.offers, offer)

    def withdraw(self, child: int, ranks: Ranges | None = None) -> bool:
        """Note that an offer of a child does not hold, or none of them; return whether one did."""
        gone = [one for one in self.offers if one.child == child and ranks in {None, one.ranks}]
        for offer in gone:
            self.missing |= from_ranges(offer.ranks)
        if gone:
            self.offers = tuple(one for one in self.offers if one not in gone)
            if self.fetching is not None:  # the arrived parts of others contain this one
                self.fetching.stop()
                self.fetching = None
        return bool(gone)

    def fetched(self, offer: Advertised, payload: Payload) -> None:
        """Take a large contribution in that has been fetched as a whole."""
        self.added += 1
        self.gathering.add(offer.body, payload, offer.rank, offer.weight)
        self.offers = tuple(one for one in self.offers if one is not offer)
        self._ranks += offer.ranks
        self.weight += offer.weight

    def settle(self) -> None:
        """Count those whose contributions are fetched together as being in."""
        for offer in self.offers:
            self._ranks += offer.ranks
            self.weight += offer.weight
        self.offers = ()

    def take(self, kept: Kept) -> None:
        """Take in what this place brought together before; all of it must be missing."""
        if kept.body:
            self.added += 1
            self.gathering.add(kept.body, kept.payload, kept.ranges[0][0], kept.weight)
        self.missing -= kept.ranks
        self._ranks += kept.ranges
        self.weight += kept.weight

    def add_rank(self, message: Up) -> None:
        """Record a contribution that was passed on alone."""
        self._ranks += message.ranks
        self.weight += message.weight

    def add_late(self, message: Up, payload: Payload | None) -> None:
        """Take a contribution to an earlier wave in."""
        self._put(message, payload)
        self._late += message.ranks
        self.weight += message.weight

    def owed_by(self, child: int, attempt: int, ranks: set[int]) -> set[int]:
        """Note that a child answers when the time is over; return who of the ranks is wanted."""
        asks = self.waiting.get(child, ())
        asked = {rank for ask in asks if ask.attempt <= attempt for rank in ask.ranks}
        if asked:
            self.answered(child, attempt)
        self.lacking = asked - self.given_up - ranks
        self.missing |= asked - self.given_up
        return self.missing & ranks

    def ask(self, child: int, ranks: set[int]) -> WaveRequest:
        """Note that a child is asked for missing ranks."""
        self.missing -= ranks
        ask = WaveRequest(next(self._asks), frozenset(ranks), to_ranges(ranks))
        self.waiting[child] = (*self.waiting.get(child, ()), ask)
        return ask

    def answered(self, child: int, attempt: int) -> None:
        """Note the answer of a child whose time was over."""
        left = tuple(ask for ask in self.waiting[child] if ask.attempt > attempt)
        if left:
            self.waiting[child] = left
        else:
            del self.waiting[child]

    def concerns(self, child: int) -> bool:
        """Whether something is still to come from a child."""
        return child in self.waiting or any(offer.child == child for offer in self.offers)

    def drop(self, child: int) -> set[int]:
        """Note that a child will not answer; return what it was asked for, missing now."""
        asked = {rank for ask in self.waiting.pop(child, ()) for rank in ask.ranks}
        if self.offers:
            asked.update(*(from_ranges(one.ranks) for one in self.offers if one.child == child))
            self.withdraw(child)
        self.missing |= asked
        return asked

    def give_up(self, ranks: AbstractSet[int]) -> set[int]:
        """Stop waiting for the ranks that are not in; return them."""
        asked = {rank for asks in self.waiting.values() for ask in asks for rank in ask.ranks}
        offered = {rank for offer in self.offers for rank in from_ranges(offer.ranks)}
        out = (asked | offered | self.missing).intersection(ranks)
        self.given_up |= ranks
        self.missing -= out
        return out

    def asked_for(self, ranks: AbstractSet[int]) -> dict[int, set[int]]:
        """Return which children were asked for which of some ranks, and have not answered."""
        told: dict[int, set[int]] = {}
        for child, asks in self.waiting.items():
            meant = {rank for ask in asks for rank in ask.ranks}.intersection(ranks)
            if meant:
                told[child] = meant
        return told

    def without(self, ranks: AbstractSet[int]) -> dict[int, set[int]]:
        """Wait no more for some ranks; return which children were asked for which of them.

        A child that was asked for others, too, will answer for those.
        """
        told = self.asked_for(ranks)
        self.give_up(ranks)
        for child in told:
            left = tuple(ask for ask in self.waiting[child] if not ask.ranks <= self.given_up)
            if left:
                self.waiting[child] = left
            else:
                del self.waiting[child]
        return told

    def unanswered(self) -> set[int]:
        """Return who is missing, or was asked and has not answered."""
        asked = {rank for asks in self.waiting.values() for ask in asks for rank in ask.ranks}
        return asked | self.missing

    def lacks(self, rank: int) -> bool:
        """Whether an agent is missing, or was asked and has not answered."""
        asked = (ask for asks in self.waiting.values() for ask in asks)
        return rank in self.missing or any(rank in ask.ranks for ask in asked)

    def scope(self) -> set[int]:
        """Return all ranks that this wave is to bring together here."""
        offered = {rank for offer in self.offers for rank in from_ranges(offer.ranks)}
        return self.unanswered() | offered | from_ranges(self._ranks)

    def __repr__(self) -> str:
        return f"Wave({self.number}, attempt {self.attempt}, waits for {sorted(self.waiting)})"
