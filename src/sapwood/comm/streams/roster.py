"""The members of a stream at one place, and the child that brings in each. State only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from sapwood.comm.messages import NO_WAIT, PARTIAL, StreamSpec
from sapwood.comm.routing import Router
from sapwood.comm.streams.wave import WaveRequest
from sapwood.core.rankset import contains, to_ranges
from sapwood.core.topology import ROOT


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


class Roster:
    """The members of a stream at one place.

    Args:
        spec: What the stream is.
        router: Where the places are.

    Attributes:
        members: Agents that take part and have their home at or below this place. The root says
            for each wave who does; places below it take those that were named when the stream was
            opened.
        named: Members that were named when the stream was opened.
        left: Root: members that have left, where the stream can do nothing without them.
        absent: Root: agents that are lost and not back, where the stream does not wait for them.
    """

    __slots__ = (
        "_follows",
        "_needs_all",
        "_router",
        "_shares",
        "_waits",
        "absent",
        "left",
        "members",
        "named",
    )

    def __init__(self, spec: StreamSpec, router: Router) -> None:
        self._router = router
        self._follows = spec.follows
        self._needs_all = not spec.follows and spec.on_loss != PARTIAL
        self._waits = spec.sync.kind != NO_WAIT
        self._shares = Shares(-1, {}, frozenset(), (), (), ())
        homes = router.tree.leaves(router.rank)
        self.named = frozenset(rank for rank in homes if contains(spec.members, rank))
        self.members = self.named
        self.left: frozenset[int] = frozenset()
        self.absent: set[int] = set()

    def concerns(self, rank: int) -> bool:
        """Whether there are members whose home is at or below a place, or may be later."""
        return self._follows or not self.named.isdisjoint(self._router.tree.leaves(rank))

    def among(self, ranks: set[int]) -> set[int]:
        """Return the ranks that may be wanted of this place."""
        if self._follows:
            return ranks.intersection(self._router.tree.leaves(self._router.rank))
        return ranks & self.named

    def tree_changed(self) -> None:
        """Change the members for the next waves; the router knows the tree of the new epoch."""
        tree, here = self._router.tree, self._router.rank
        if here == ROOT:
            gone = self.members.intersection(tree.removed)
            if self._needs_all:
                self.left |= gone
            self._take_part(self.members - gone)
        elif self._follows and not self._waits:
            self._take_part(rank for rank in tree.leaves(here) if rank in tree)

    def places_came(self, ranks: Sequence[int]) -> None:
        """Root: add agents that have come; they take part from the next wave."""
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
        """Return which child brings in which members, as the tree stands."""
        shares = self._shares
        if shares.version != self._router.version:
            shares = self._shares = divide(
                self._router, self.members, self.named, follows=self._follows
            )
        return shares

    @property
    def children(self) -> tuple[int, ...]:
        """Children that the stream concerns."""
        return self.shares().concerned
