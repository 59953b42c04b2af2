"""A group at one place: before all have entered it (:class:`Formation`), and after."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sapwood.comm.groups.round import Round
from sapwood.comm.messages.groups import GroupCall, GroupNumber
from sapwood.core.errors import GroupError
from sapwood.core.rankset import Ranges

if TYPE_CHECKING:
    from sapwood.comm.payload import Payload
    from sapwood.comm.streams.wave import NewGathering

MAX_ROUNDS = 64
"""Rounds of one group that are under way at a time."""

Key = tuple[Ranges, str]
"""What a group is called before it has a number: its members and its name."""


class Membership:
    """Where the members of a group are, seen from one place.

    Attributes:
        members: Agents, and rank 0 for the front end.
        name: Tells groups of the same members apart.
        below: Children with members at or below them, with these members.
        here: Whether this place is a member.
        turn: Whether it is the lowest place that has all members at or below it.
    """

    __slots__ = ("below", "here", "members", "name", "turn")

    def __init__(
        self, members: Ranges, name: str, below: dict[int, Ranges], *, here: bool, turn: bool
    ) -> None:
        self.members = members
        self.name = name
        self.below = below
        self.here = here
        self.turn = turn

    def sources(self, rank: int) -> Iterable[int]:
        """The children, and this place's own rank if it is a member."""
        return (*self.below, rank) if self.here else self.below


class Formation:
    """A group that waits for members to enter.

    Args:
        where: Where the members are.
        rank: This place.
    """

    __slots__ = ("waiting", "where")

    def __init__(self, where: Membership, rank: int) -> None:
        self.where = where
        self.waiting = set(where.sources(rank))


class OpenGroup:
    """A group that all members have entered.

    Args:
        number: Its number.
        where: Where the members are.
        rank: This place.
        gather: Makes what puts values together.

    Attributes:
        rounds: Rounds that wait for calls or for their results.
        held: Payloads of this place that others may still read, by the round they belong to.
        finished: The last round that ended.
    """

    __slots__ = ("_gather", "_sources", "finished", "held", "number", "rounds", "where")

    def __init__(
        self, number: GroupNumber, where: Membership, rank: int, gather: NewGathering
    ) -> None:
        self.number = number
        self.where = where
        self.rounds: dict[int, Round] = {}
        self.held: dict[int, list[Payload]] = {}
        self.finished = 0
        self._sources = tuple(where.sources(rank))
        self._gather = gather

    def round(self, number: int, call: GroupCall) -> Round:
        """Return a round, a new one where nobody has called it yet.

        Raises:
            GroupError: Too many are under way, or it is over.
            SapwoodError: The reduction is unknown.
        """
        found = self.rounds.get(number)
        if found is not None:
            return found
        if not self.finished < number <= self.finished + MAX_ROUNDS:
            raise GroupError(
                f"round {number} of a group was called after round {self.finished}",
                hint=f"wait for results: at most {MAX_ROUNDS} rounds are under way at a time",
            )
        made = Round(number, call, self._sources, self._gather, turn=self.where.turn)
        self.rounds[number] = made
        return made

    def hold(self, number: int, payload: Payload | None) -> None:
        """Keep memory of this place until all members have read the result of a round."""
        if payload is not None:
            self.held.setdefault(number, []).append(payload)

    def release(self, confirmed: int) -> list[Payload]:
        """Return the payloads that nobody needs any more, and forget them."""
        over = [number for number in self.held if number <= confirmed]
        return [payload for number in over for payload in self.held.pop(number)]

    def __repr__(self) -> str:
        return f"OpenGroup({self.number}, {len(self.rounds)} rounds under way)"
