"""Which neighbour leads to which place."""

from __future__ import annotations

from sapwood.core.rankset import Ranges, contains
from sapwood.core.topology import Tree


class Router:
    """Next hops of one place in a tree.

    Args:
        tree: The whole tree.
        rank: This place.

    Example:
        >>> from sapwood.core.topology import kary
        >>> router = Router(kary(4, 2), 5)
        >>> router.next_hop(1), router.next_hop(4)
        (1, 0)
    """

    __slots__ = ("_below", "_covers", "children", "parent", "rank", "size")

    def __init__(self, tree: Tree, rank: int) -> None:
        self.rank = rank
        self.size = tree.size
        self.parent = tree.parents[rank]
        self.children = tuple(tree.children(rank))
        self._covers = {child: frozenset(tree.subtree(child)) for child in self.children}
        self._below = {rank: child for child, below in self._covers.items() for rank in below}

    def next_hop(self, destination: int) -> int:
        """Return the neighbour that leads to a place; the place must be another one."""
        return self._below.get(destination, self.parent)

    def is_below(self, rank: int) -> bool:
        """Whether a place is in the subtree of a child."""
        return rank in self._below

    def covered(self, child: int) -> frozenset[int]:
        """A child and all places below it."""
        return self._covers[child]

    def towards(self, members: Ranges) -> list[int]:
        """Children with members at or below them, from left to right."""
        # Not all members are counted out here: every place of a large tree asks this.
        return [
            child
            for child in self.children
            if any(contains(members, rank) for rank in self._covers[child])
        ]
