"""The tree: which place is whose child.

Rank 0 is the front end, ranks ``1 … agents`` are the agents, junctions come after them. A
vertex covers a contiguous range of agents, so sets of ranks stay short and the order by rank
is the order from left to right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import msgspec

from sapwood.core.errors import ConfigurationError

ROOT = 0
"""Rank of the front end."""


class Tree(msgspec.Struct, frozen=True, dict=True):
    """A rooted tree of ranks.

    Attributes:
        agents: Number of leaves.
        parents: Parent of each rank; the root's is -1.
        spares: Junctions with no children of their own: the children of any junction beside one
            come to it when theirs is lost, before they go to the place above.
    """

    agents: int
    parents: tuple[int, ...]
    spares: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """Number of places, front end and junctions included."""
        return len(self.parents)

    @property
    def junctions(self) -> range:
        """Ranks of the junctions."""
        return range(self.agents + 1, self.size)

    @property
    def agent_ranks(self) -> range:
        """Ranks of the agents."""
        return range(1, self.agents + 1)

    def is_agent(self, rank: int) -> bool:
        """Whether a rank is a leaf."""
        return 0 < rank <= self.agents

    @cached_property
    def _children(self) -> list[list[int]]:
        """Children of each rank, from left to right."""
        found: list[list[int]] = [[] for _ in self.parents]
        for child, parent in enumerate(self.parents):
            if parent >= 0:
                found[parent].append(child)
        first = list(range(self.size))  # the first leaf at or below each rank
        for rank in reversed(self._order(found)):
            if found[rank]:
                found[rank].sort(key=first.__getitem__)
                first[rank] = first[found[rank][0]]
        return found

    def _order(self, children: list[list[int]], top: int = ROOT) -> list[int]:
        order = [top]
        for vertex in order:
            order.extend(children[vertex])
        return order

    def children(self, rank: int) -> list[int]:
        """Children of a rank, from left to right."""
        return list(self._children[rank])

    def ancestors(self, rank: int) -> Iterator[int]:
        """Ranks above, nearest first, the root last."""
        while (rank := self.parents[rank]) >= 0:
            yield rank

    def spare_beside(self, rank: int) -> int | None:
        """The spare that stands in for a junction; None without one.

        Example:
            >>> tree = kary(4, 2, spares=True)
            >>> tree.children(0), tree.spare_beside(5), tree.spare_beside(1)
            ([5, 6, 7], 7, None)
        """
        if self.is_agent(rank) or rank == ROOT or rank in self.spares:
            return None
        parent = self.parents[rank]
        return next((spare for spare in self.spares if self.parents[spare] == parent), None)

    def above(self, rank: int) -> tuple[int, ...]:
        """Whom a place can be attached to: its ancestors and their spares, nearest first.

        Example:
            >>> kary(4, 2, spares=True).above(1)
            (5, 7, 0)
        """
        found: list[int] = []
        for ancestor in self.ancestors(rank):
            found.append(ancestor)
            spare = self.spare_beside(ancestor)
            if spare is not None:
                found.append(spare)
        return tuple(found)

    def subtree(self, rank: int) -> list[int]:
        """The rank and everything below it, parents before children."""
        return self._order(self._children, rank)

    def leaves(self, rank: int) -> tuple[int, ...]:
        """Agents that can be at or below a rank, in order."""
        found = self._leaves.get(rank)
        if found is None:
            tops = [rank]
            if rank in self.spares:
                beside = self.children(self.parents[rank])
                tops = [one for one in beside if self.spare_beside(one) == rank]
            below = [one for top in tops for one in self.subtree(top)]
            found = tuple(sorted(filter(self.is_agent, below)))
            self._leaves[rank] = found
        return found

    @cached_property
    def _leaves(self) -> dict[int, tuple[int, ...]]:
        """What :meth:`leaves` worked out before."""
        return {}


def flat(agents: int) -> Tree:
    """Return the tree in which every agent is a child of the front end.

    Example:
        >>> flat(3).children(0)
        [1, 2, 3]
    """
    if agents < 1:
        raise ConfigurationError("a tree needs at least one agent", where=f"agents={agents}")
    return Tree(agents, (-1, *([ROOT] * agents)))


def kary(agents: int, fanout: int, *, spares: bool = False) -> Tree:
    """Return the tree of least depth in which no vertex has more than ``fanout`` children.

    With ``spares``, every place with junctions below it has one more, which stands in for them.

    Raises:
        ConfigurationError: ``fanout`` is less than two, or there is no agent.

    Example:
        >>> tree = kary(4, 2)
        >>> [tree.children(rank) for rank in (0, *tree.junctions)]
        [[5, 6], [1, 2], [3, 4]]
    """
    if fanout < 2:
        raise ConfigurationError("a fan-out must be at least 2", where=f"fanout={fanout}")
    parents: list[int] = list(flat(agents).parents)
    level = list(range(1, agents + 1))
    while len(level) > fanout:
        above: list[int] = []
        for start in range(0, len(level), fanout):
            group = level[start : start + fanout]
            above.append(len(parents))
            parents.append(ROOT)
            for child in group:
                parents[child] = above[-1]
        level = above
    if not spares:
        return Tree(agents, tuple(parents))
    over = sorted(set(parents[agents + 1 :]))
    first = len(parents)
    return Tree(agents, (*parents, *over), tuple(range(first, first + len(over))))


def by_host(agents: Sequence[int]) -> tuple[Tree, tuple[int, ...]]:
    """Return a tree with a junction on each host, over all its agents, and the host of each rank.

    So one contribution leaves a host, whatever it has of agents. A host with a single agent needs
    no junction. Hosts are counted from 1; 0 is that of the root.

    Args:
        agents: How many agents each host has.

    Raises:
        ConfigurationError: There is no agent at all.

    Example:
        >>> tree, hosts = by_host([2, 1])
        >>> tree.parents, hosts
        ((-1, 4, 4, 0, 0), (0, 1, 1, 2, 1))
    """
    count = sum(agents)
    parents = list(flat(count).parents)
    hosts = [0] * (count + 1)
    first = 1
    for host, share in enumerate(agents, start=1):
        mine = range(first, first + share)
        first += share
        for rank in mine:
            hosts[rank] = host
        if share > 1:
            for rank in mine:
                parents[rank] = len(parents)
            parents.append(ROOT)
            hosts.append(host)
    return Tree(count, tuple(parents)), tuple(hosts)


def plan(agents: int, fanout: int, *, spares: bool = False) -> Tree:
    """Return the flat tree for ``fanout`` 0, else the k-ary one."""
    return kary(agents, fanout, spares=spares) if fanout else flat(agents)
