"""One round of a group at one place: who has called, and what they gave."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sapwood.comm.messages.groups import LEAVE, GroupCall, GroupPart
from sapwood.core.errors import GroupError
from sapwood.core.rankset import Ranges, contains, count, fold, from_ranges, joined

if TYPE_CHECKING:
    from sapwood.comm.payload import Payload
    from sapwood.comm.streams.wave import NewGathering, Summary

LEFT = "left"
"""Detail of the error of a group that a member left; its own error may say why."""

FIELD = "x"
"""Field of a contribution that holds the value."""

GATHERED = {"gather": "gather", "allgather": "gather"}
"""Reductions of the operations that always have the same one."""

FROM_ROOT = {"broadcast", "scatter"}
"""Operations in which one member gives the value."""

TO_ROOT = {"gather", "reduce"}
"""Operations in which one member gets the result."""

SETTLING = {"allreduce"}
"""Operations whose result may differ in the last bits when it is made again: it is not."""

OPERATIONS = {"barrier", "allgather", "allreduce", LEAVE.operation} | FROM_ROOT | TO_ROOT


class Round:
    """A round that waits for calls, or for its result.

    Args:
        number: Counts the rounds of its group from 1.
        call: The operation.
        sources: Children with members at or below them, and this place if it is a member.
        gather: Makes what puts values together.
        turn: Whether the result is made here.

    Attributes:
        settled: Whether the result is known, from an earlier attempt.
    """

    __slots__ = (
        "_gathering",
        "_given",
        "_ranks",
        "body",
        "call",
        "number",
        "payload",
        "settled",
        "taken",
        "waiting",
    )

    def __init__(
        self,
        number: int,
        call: GroupCall,
        sources: Iterable[int],
        gather: NewGathering,
        *,
        turn: bool,
    ) -> None:
        self.number = number
        self.call = call
        self.waiting = set(sources)
        self.taken = number  # no member can have read this round
        self.body = b""
        self.payload: Payload | None = None
        self._ranks: list[tuple[int, int]] = []
        self._given = False
        self.settled = False
        reduce = GATHERED.get(call.operation, call.reduce)
        # Of a single source, what it sends is passed on as it is.
        several = turn or len(self.waiting) > 1
        self._gathering: Summary | None = gather({FIELD: reduce}) if reduce and several else None

    @property
    def ranks(self) -> Ranges:
        """Members that have called."""
        return joined(self._ranks)

    def add(self, source: int, part: GroupPart, payload: Payload | None) -> bool:
        """Take in what a source gives; return whether it was the last one that was missing.

        Raises:
            GroupError: It called something else.
            SapwoodError: What it gives does not fit.
        """
        if part.call != self.call:
            raise self._mismatch(part)
        ranks = part.ranks
        if part.settled:
            self.settled = True
            self.body, self.payload = part.body, payload
        elif self.settled:
            pass  # the result is known
        elif self._gathering is not None and part.body:
            self._given = True
            self._gathering.add(part.body, payload, ranks[0][0], float(count(ranks)))
        elif self._gathering is not None:
            pass  # these members take part without giving a value
        elif self.call.operation not in FROM_ROOT or contains(ranks, self.call.root):
            self.body, self.payload = part.body, payload
        self.waiting.discard(source)
        self._ranks += ranks
        self.taken = min(self.taken, part.taken)
        return not self.waiting

    def _mismatch(self, part: GroupPart) -> GroupError:
        theirs, ours = (
            fold("member", from_ranges(part.ranks)),
            fold("member", from_ranges(self._ranks)),
        )
        if LEAVE in {part.call, self.call}:
            left, other = (theirs, self.call) if part.call == LEAVE else (ours, part.call)
            return GroupError(
                f"{left} left the group before round {self.number}, in which others call {other}",
                hint="all members must call the same operations in the same order",
                details={LEFT: left},
            )
        return GroupError(
            f"{theirs} called {part.call} in round {self.number}, where {ours} called {self.call}",
            hint="all members must call the same operations in the same order",
        )

    def partial(self) -> tuple[bytes, Payload | None, bool]:
        """Return what goes on to the parent, and whether it was made here.

        Raises:
            SapwoodError: It cannot be made.
        """
        if self._gathering is not None and self._given and not self.settled:
            return *self._gathering.partial(), True
        return self.body, self.payload, False

    def outcome(self) -> tuple[bytes, Payload | None, bool]:
        """Return the result, at the turn, and whether it was made here.

        Raises:
            SapwoodError: What the members gave does not fit together.
        """
        if self._gathering is not None and self._given and not self.settled:
            return *self._gathering.outcome(), True
        return self.body, self.payload, False
