"""A group at one place: before all have entered it (:class:`Formation`), and after."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from sapwood.comm.groups.round import SETTLING, Round
from sapwood.comm.messages.groups import (
    MAX_ROUNDS,
    GroupCall,
    GroupEnded,
    GroupNumber,
    GroupPart,
    Key,
)
from sapwood.comm.routing import Router
from sapwood.core.errors import GroupError
from sapwood.core.rankset import contains, count, from_ranges, to_ranges
from sapwood.core.topology import ROOT

if TYPE_CHECKING:
    from sapwood.comm.payload import Payload
    from sapwood.comm.streams.wave import NewGathering

MAX_UNCONFIRMED = 64 * MAX_ROUNDS
"""Rounds of one group that a place keeps until all members have read their results."""


class Membership:
    """Where the members of a group are attached, seen from one place.

    Args:
        key: The members, and the name.
        router: Knows who is attached where.
        may_turn: Whether values can be put together for good here: not at an agent.

    Attributes:
        members: Agents, and rank 0 for the front end.
        name: Tells groups of the same members apart.
        below: Children with members at or below them, with these members.
        here: Whether this place is a member.
        attached: Number of members here and below.
        turn: Whether results are made here: all members are here or below, or it is the root.
    """

    __slots__ = ("_rank", "attached", "below", "here", "members", "name", "turn")

    def __init__(self, key: Key, router: Router, *, may_turn: bool) -> None:
        self.members, self.name = key
        there: dict[int, list[int]] = {}
        for one in from_ranges(self.members):
            hop = router.next_hop(one)
            if hop != router.parent and one != router.rank:
                there.setdefault(hop, []).append(one)
        self._rank = router.rank
        self.below = {child: to_ranges(those) for child, those in sorted(there.items())}
        self.here = contains(self.members, router.rank)
        self.attached = sum(map(count, self.below.values())) + self.here
        self.turn = may_turn and (self.is_whole or router.rank == ROOT)

    @property
    def is_whole(self) -> bool:
        """Whether all members are here or below."""
        return self.attached == count(self.members)

    @property
    def key(self) -> Key:
        """Members and name."""
        return self.members, self.name

    def sources(self) -> tuple[int, ...]:
        """The children, and this place's own rank if it is a member."""
        return (*self.below, self._rank) if self.here else tuple(self.below)

    def adrift(self) -> set[int]:
        """Return the members that are neither here nor below."""
        found = from_ranges(self.members)
        for one in self.sources():
            found -= self.ranks_of(one)
        return found

    def ranks_of(self, source: int) -> set[int]:
        """Return the members that a source speaks for."""
        return {source} if source == self._rank else from_ranges(self.below.get(source, ()))


class Formation:
    """A group that waits for members to enter.

    Attributes:
        where: Where the members are.
        version: Of the router, when that was found out.
        entered: Who has entered, as far as is known here.
        told: Of whom the present parent was told.
        tellings: How often a parent was told.
        wish: What is to be said of the end of the wait, until it is over.
    """

    __slots__ = ("entered", "tellings", "told", "version", "where", "wish")

    def __init__(self, where: Membership, version: int) -> None:
        self.where = where
        self.version = version
        self.entered: set[int] = set()
        self.told: set[int] = set()
        self.tellings = 0
        self.wish: GroupEnded | None = None

    def waiting(self, where: Membership) -> set[int]:
        """Return the sources of which not all have entered."""
        return {one for one in where.sources() if not where.ranks_of(one) <= self.entered}


class OpenGroup:
    """A group that all members have entered.

    Args:
        number: Its number.
        where: Where the members are.
        gather: Makes what puts values together.

    Attributes:
        attempt: Counts how often the group was put together.
        disturbed: Whether the tree has changed and the next attempt has not begun.
        told: Whether the present parent has been told so.
        wish: What is to be said of the end of the group, until it is over.
        rounds: Rounds that wait for calls or for their results.
        calls: What this member gave to rounds that are not confirmed.
        results: What this member got from rounds that are not confirmed.
        held: Payloads of this place that others may still read, by the round they belong to.
        confirmed: The last round whose result all members have read, as far as is known.
    """

    __slots__ = (
        "_gather",
        "attempt",
        "calls",
        "confirmed",
        "disturbed",
        "held",
        "number",
        "results",
        "rounds",
        "told",
        "where",
        "wish",
    )

    def __init__(self, number: GroupNumber, where: Membership, gather: NewGathering) -> None:
        self.number = number
        self.where = where
        self.attempt = 0
        self.disturbed = False
        self.told = False
        self.wish: GroupEnded | None = None
        self.rounds: dict[int, Round] = {}
        self.calls: dict[int, tuple[GroupPart, Payload | None]] = {}
        self.results: dict[int, tuple[bytes, Payload | None]] = {}
        self.held: dict[int, list[Payload]] = {}
        self.confirmed = 0
        self._gather = gather

    def round(self, number: int, call: GroupCall) -> Round:
        """Return a round, a new one where nobody has called it yet.

        Raises:
            GroupError: Too many are under way.
            SapwoodError: The reduction is unknown.
        """
        found = self.rounds.get(number)
        if found is not None:
            return found
        if not self.confirmed < number <= self.confirmed + MAX_UNCONFIRMED:
            raise GroupError(
                f"round {number} of a group was called, and not all have read round "
                f"{self.confirmed + 1}",
                hint=f"read results: at most {MAX_UNCONFIRMED} rounds may wait for that",
            )
        sources = self.where.sources()
        made = Round(number, call, sources, self._gather, turn=self.where.turn)
        self.rounds[number] = made
        return made

    def again(self) -> list[tuple[GroupPart, Payload | None]]:
        """Return what this member gives to the present attempt: all that is not confirmed."""
        return [self._given(number) for number in sorted(self.calls)]

    def _given(self, number: int) -> tuple[GroupPart, Payload | None]:
        part, payload = self.calls[number]
        result = self.results.get(number)
        if result is None or part.call.operation not in SETTLING:
            return msgspec.structs.replace(part, attempt=self.attempt), payload
        body, payload = result  # as others may have it, too: they must all get the same
        part = msgspec.structs.replace(part, attempt=self.attempt, body=body, settled=True)
        return part, payload

    def hold(self, number: int, payload: Payload | None) -> None:
        """Keep memory of this place until all members have read the result of a round."""
        if payload is not None:
            self.held.setdefault(number, []).append(payload)

    def release(self, confirmed: int) -> list[Payload]:
        """Return the payloads that nobody needs any more, and forget them and their rounds."""
        self.confirmed = max(self.confirmed, confirmed)
        freed = [one for number, held in self.held.items() if number <= confirmed for one in held]
        for number, (_, payload) in self.results.items():
            if number <= confirmed and payload is not None and payload.ref is not None:
                freed.append(payload)
        for kept in (self.held, self.calls, self.results, self.rounds):
            for number in [number for number in kept if number <= confirmed]:
                del kept[number]
        return freed

    def __repr__(self) -> str:
        state = "disturbed" if self.disturbed else f"attempt {self.attempt}"
        return f"OpenGroup({self.number}, {state}, {len(self.rounds)} rounds under way)"
