"""Which neighbour leads to which place, in a tree that changes.

The tree that was planned says where each place has its *home*. Where it is attached at present
is one of its ancestors there, the nearest that lives. A place knows the attachments of places below
it from notices of these and their parents, which are ordered by the incarnation of the process and
by how often it was attached, so that late ones change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from sapwood.comm.messages import NOBODY, Placed
from sapwood.core.topology import Tree

FENCED = 2**62
"""Attachment that no process reaches: after it was condemned, all news of a process are old."""

_Age = tuple[int, int, bool]  # incarnation, attachment, and whether that attachment has ended


class Router:
    """Where the places below one place are.

    Args:
        tree: The tree: where each place has its home, and in which epoch.
        rank: This place.

    Attributes:
        parent: Whom this place is attached to; :data:`~messages.NOBODY` without one.
        version: Changes with everything that is learnt.

    Example:
        >>> from sapwood.core.topology import kary
        >>> router = Router(kary(4, 2), 0)
        >>> router.attach(Placed(5, 1, 1, 100, 0)), router.attach(Placed(1, 1, 1, 101, 5))
        (True, True)
        >>> router.next_hop(1), router.next_hop(2) == NOBODY
        (5, True)
        >>> router.attach(Placed(1, 1, 2, 101, 0)), router.next_hop(1)
        (True, 1)
        >>> router.attach(Placed(1, 1, 1, 101, 5))
        False
    """

    __slots__ = (
        "_above",
        "_below",
        "_known",
        "_placed",
        "ancestors",
        "parent",
        "rank",
        "tree",
        "version",
    )

    def __init__(self, tree: Tree, rank: int) -> None:
        self.tree = tree
        self.rank = rank
        self.ancestors = tree.above(rank)
        self._above: dict[int, frozenset[int]] = {}
        self.parent = NOBODY
        self.version = 0
        self._placed: dict[int, Placed] = {}
        self._below: dict[int, set[int]] = {}
        self._known: dict[int, _Age] = {}

    def change(self, tree: Tree) -> None:
        """Use the tree of another epoch; it leaves every home where it is."""
        self.tree = tree
        self.version += 1

    # --- the way -----------------------------------------------------------------------------

    def next_hop(self, destination: int) -> int:
        """Return the neighbour that leads to a place: a child, else the parent."""
        placed = self._placed
        entry = placed.get(destination)
        while entry is not None:
            if entry.parent == self.rank:
                return entry.rank
            entry = placed.get(entry.parent)
        return self.parent

    def is_below(self, rank: int) -> bool:
        """Whether a place is attached below this one at present."""
        return rank in self._placed and self.next_hop(rank) != self.parent

    @property
    def children(self) -> list[int]:
        """Places that are attached to this one, in order."""
        return sorted(self._below.get(self.rank, ()))

    def placed(self, rank: int) -> Placed | None:
        """Return where a place below is attached."""
        return self._placed.get(rank)

    def subtree(self, top: int) -> list[int]:
        """Return a place and all that are attached below it, parents first."""
        found = [top]
        for rank in found:
            found.extend(self._below.get(rank, ()))
        return found

    def everybody(self) -> tuple[Placed, ...]:
        """Return all places below this one, parents first."""
        return tuple(self._placed[rank] for rank in self.subtree(self.rank)[1:])

    def covered(self, child: int) -> frozenset[int]:
        """Return a child and all places that are attached below it."""
        return frozenset(self.subtree(child))

    @property
    def size(self) -> int:
        """Number of ranks that were ever given in the whole tree."""
        return self.tree.size

    # --- homes -------------------------------------------------------------------------------

    def is_home(self, rank: int, of: int | None = None) -> bool:
        """Whether the home of a place is below this one, or below ``of``, or below its spare."""
        if not 0 < rank < self.tree.size:
            return False
        place = self.rank if of is None else of
        if not self.tree.spares:
            return place in self.tree.ancestors(rank)
        above = self._above.get(rank)
        if above is None:
            above = self._above[rank] = frozenset(self.tree.above(rank))
        return place in above

    def may_speak_for(self, child: int, rank: int) -> bool:
        """Whether a place can be at or below a neighbour that is not a parent."""
        return rank == child or self.is_home(rank, child)

    def may_tell(self, child: int, placed: Placed) -> bool:
        """Whether a child may say where a place is: below the child, at an ancestor of the place.

        Each step of a way towards this place then leads to a smaller depth of the planned tree,
        so no way goes round in a circle, whatever a child says.

        Example:
            >>> from sapwood.core.topology import kary
            >>> router = Router(kary(8, 2), 0)
            >>> parents = [13, 9, 14, 1, 0]
            >>> [router.may_tell(13, Placed(1, 1, 1, 100, parent)) for parent in parents]
            [True, True, False, False, False]
        """
        rank, parent = placed.rank, placed.parent
        return self.is_home(rank, parent) and self.may_speak_for(child, parent)

    # --- news --------------------------------------------------------------------------------

    def is_stale(self, rank: int, incarnation: int, attachment: int) -> bool:
        """Whether something newer is known of a place, or that this has ended."""
        known = self._known.get(rank)
        return known is not None and (incarnation, attachment, False) < known

    def knows(self, rank: int, incarnation: int, attachment: int) -> bool:
        """Whether this, or something newer, is known of a place."""
        known = self._known.get(rank)
        return known is not None and (incarnation, attachment, False) <= known

    def newest(self, rank: int) -> tuple[int, int]:
        """Return the newest incarnation and attachment that are known of a place."""
        return self._known.get(rank, (0, 0, False))[:2]

    def note(self, rank: int, incarnation: int, attachment: int, *, ended: bool = False) -> None:
        """Remember how new the newest news of a place are."""
        age = (incarnation, attachment, ended)
        self._known[rank] = max(self._known.get(rank, age), age)

    def attach(self, placed: Placed) -> bool:
        """Take in where a place is; return whether that was news."""
        if self.is_stale(placed.rank, placed.incarnation, placed.attachment):
            return False
        old = self._placed.get(placed.rank)
        if old == placed:
            return False
        self.note(placed.rank, placed.incarnation, placed.attachment)
        if old is not None:
            self._unlink(old)
        self._placed[placed.rank] = placed
        self._below.setdefault(placed.parent, set()).add(placed.rank)
        self.version += 1
        return True

    def detach(self, rank: int, incarnation: int, attachment: int) -> list[int]:
        """Forget an attachment, if it is the present one or an older one.

        Returns:
            The place and those below it that were to be reached, parents first.
        """
        self.note(rank, incarnation, attachment, ended=True)
        entry = self._placed.get(rank)
        if entry is None or (entry.incarnation, entry.attachment) > (incarnation, attachment):
            return []
        reachable = self.is_below(rank)
        gone = self._forget(self.subtree(rank))
        return gone if reachable else []

    def clear_below(self, rank: int) -> list[int]:
        """Forget what is below a place, which says itself who is there."""
        return self._forget(self.subtree(rank)[1:])

    def _forget(self, ranks: Iterable[int]) -> list[int]:
        gone = list(ranks)
        for rank in gone:
            self._unlink(self._placed.pop(rank))
        self.version += 1
        return gone

    def _unlink(self, entry: Placed) -> None:
        siblings = self._below[entry.parent]
        siblings.discard(entry.rank)
        if not siblings:
            del self._below[entry.parent]
