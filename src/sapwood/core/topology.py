"""The tree: which place is whose child.

Rank 0 is the client. In a tree as it was planned ranks ``1 … planned`` are the agents and
junctions come after them: a vertex covers a contiguous range of agents, so sets of ranks stay
short and the order by rank is the order from left to right.

A tree is a value. Adding and removing places gives another one with the next *epoch*. A rank is
given once: an added place gets one above all that were ever given, and the rank of a place that
was removed is not used again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property

import msgspec

from sapwood.core.errors import ConfigurationError
from sapwood.core.rankset import fold

ROOT = 0
"""Rank of the client."""


class Tree(msgspec.Struct, frozen=True, dict=True):
    """A rooted tree of ranks.

    Attributes:
        planned: Number of agents in the first epoch; they have the ranks from 1.
        parents: Parent of each rank that was ever given; the root's is -1.
        spares: Junctions without children: the children of any junction beside one
            come to it when theirs is lost, before they go to the place above.
        added: Agents that came later, by rank.
        removed: Places that left for good, by rank.
        epoch: Counts the changes.

    Example:
        >>> tree = flat(2).with_agents({3: ROOT}).without([1])
        >>> tree.agent_ranks, tree.agents, tree.size, tree.epoch
        ((2, 3), 2, 4, 2)
        >>> 1 in tree, tree.is_agent(1)
        (False, True)
    """

    planned: int
    parents: tuple[int, ...]
    spares: tuple[int, ...] = ()
    added: tuple[int, ...] = ()
    removed: tuple[int, ...] = ()
    epoch: int = 0

    @property
    def size(self) -> int:
        """Number of ranks that were ever given: the next one is the first that is free."""
        return len(self.parents)

    @property
    def places(self) -> int:
        """Number of places, client and junctions included."""
        return len(self.parents) - len(self.removed)

    @property
    def agents(self) -> int:
        """Number of agents."""
        return len(self.agent_ranks) if self.epoch else self.planned

    @property
    def junctions(self) -> Sequence[int]:
        """Ranks of the junctions, in order."""
        return self._junctions if self.epoch else range(self.planned + 1, self.size)

    @property
    def agent_ranks(self) -> Sequence[int]:
        """Ranks of the agents, in order."""
        return self._agents if self.epoch else range(1, self.planned + 1)

    def is_agent(self, rank: int) -> bool:
        """Whether a rank belongs to a leaf, or did until it left."""
        return 0 < rank <= self.planned or (self.epoch > 0 and rank in self._added)

    def __contains__(self, rank: object) -> bool:
        """Whether there is such a place in this epoch."""
        return isinstance(rank, int) and 0 <= rank < self.size and rank not in self._removed

    @cached_property
    def _added(self) -> frozenset[int]:
        return frozenset(self.added)

    @cached_property
    def _removed(self) -> frozenset[int]:
        return frozenset(self.removed)

    @cached_property
    def _agents(self) -> tuple[int, ...]:
        every = (*range(1, self.planned + 1), *self.added)
        return tuple(rank for rank in every if rank not in self._removed)

    @cached_property
    def _junctions(self) -> tuple[int, ...]:
        every = range(self.planned + 1, self.size)
        return tuple(rank for rank in every if rank in self and not self.is_agent(rank))

    # --- the next epoch --------------------------------------------------------------------------

    def with_agents(self, places: dict[int, int]) -> Tree:
        """Return the tree of the next epoch, with more agents.

        Args:
            places: The parent of each, by its rank; the ranks follow those that were given.

        Raises:
            ConfigurationError: A rank was given before, or leaves one out; a parent is not a place
                that can have children.

        Example:
            >>> kary(4, 2).with_agents({7: 6}).children(6)
            [3, 4, 7]
        """
        ranks = sorted(places)
        if not ranks or ranks != list(range(self.size, self.size + len(ranks))):
            raise ConfigurationError(
                f"new agents get the ranks from {self.size}, in order",
                where=fold("rank", ranks) if ranks else "no rank",
                hint="a rank is given once, and never to another place",
            )
        for rank in ranks:
            parent = places[rank]
            if parent not in self or self.is_agent(parent) or parent in self.spares:
                raise ConfigurationError(
                    f"rank {parent} cannot have children",
                    where=f"rank {rank}",
                    hint="the parent of an agent is the root or a junction that is not a spare",
                )
        return msgspec.structs.replace(
            self,
            parents=(*self.parents, *(places[rank] for rank in ranks)),
            added=(*self.added, *ranks),
            epoch=self.epoch + 1,
        )

    def without(self, ranks: Collection[int]) -> Tree:
        """Return the tree of the next epoch, without some places.

        Raises:
            ConfigurationError: One is not a place of this tree, or has children that stay.

        Example:
            >>> kary(4, 2).without([1, 2, 5]).children(0)
            [6]
        """
        gone = set(ranks)
        unknown = [rank for rank in gone if rank not in self or rank == ROOT]
        if unknown or not gone:
            raise ConfigurationError(
                "this place cannot be removed",
                where=fold("rank", unknown) if unknown else "no rank",
            )
        for rank in sorted(gone):
            left = set(self.children(rank)) - gone
            if left:
                raise ConfigurationError(
                    f"rank {rank} has children that stay",
                    where=fold("rank", left),
                    hint="remove them as well, or leave it where it is",
                )
        return msgspec.structs.replace(
            self, removed=tuple(sorted({*self.removed, *gone})), epoch=self.epoch + 1
        )

    def parent_for_more(self) -> int:
        """Return under which place one more agent is best: the one with the fewest children.

        A tree with junctions gets it at one of those that have agents.

        Example:
            >>> kary(5, 2).parent_for_more(), flat(3).parent_for_more()
            (8, 0)
        """
        spares = set(self.spares)
        found = [rank for rank in self.junctions if rank not in spares and self._has_agents(rank)]
        return min(found, key=lambda rank: (len(self.children(rank)), rank), default=ROOT)

    def _has_agents(self, rank: int) -> bool:
        children = self.children(rank)
        return not children or any(self.is_agent(child) for child in children)

    # --- its shape -------------------------------------------------------------------------------

    @cached_property
    def _children(self) -> list[list[int]]:
        """Places that have or had their home at each rank, from left to right."""
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
        removed = self._removed
        return [child for child in self._children[rank] if child not in removed]

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
        found, removed = self._order(self._children, rank), self._removed
        return [one for one in found if one not in removed] if removed else found

    def leaves(self, rank: int) -> tuple[int, ...]:
        """Agents that can be at or below a rank, in order; also those that left.

        So which agents a rank stands for changes with no epoch but that in which one is added.
        """
        found = self._leaves.get(rank)
        if found is None:
            tops = [rank]
            if rank in self.spares:
                beside = self._children[self.parents[rank]]
                tops = [one for one in beside if self.spare_beside(one) == rank]
            below = [one for top in tops for one in self._order(self._children, top)]
            found = tuple(sorted(filter(self.is_agent, below)))
            self._leaves[rank] = found
        return found

    @cached_property
    def _leaves(self) -> dict[int, tuple[int, ...]]:
        """What :meth:`leaves` worked out before."""
        return {}


def flat(agents: int) -> Tree:
    """Return the tree in which every agent is a child of the client.

    Example:
        >>> flat(3).children(0)
        [1, 2, 3]
    """
    if agents < 0:
        raise ConfigurationError(
            "a tree cannot have fewer than no agents",
            where="agents",
            hint="give a number from 0 on",
        )
    return Tree(agents, (-1, *([ROOT] * agents)))


def kary(agents: int, fanout: int, *, spares: bool = False) -> Tree:
    """Return the tree of least depth in which no vertex has more than ``fanout`` children.

    With ``spares``, every place with junctions below it has one more, which stands in for them.

    Raises:
        ConfigurationError: ``fanout`` is less than two, or no agent is given.

    Example:
        >>> tree = kary(4, 2)
        >>> [tree.children(rank) for rank in (0, *tree.junctions)]
        [[5, 6], [1, 2], [3, 4]]
    """
    if fanout < 2:
        raise ConfigurationError("a fan-out must be at least 2", where=f"fanout={fanout}")
    if agents < 1:
        raise ConfigurationError("this tree needs at least one agent", where=f"agents={agents}")
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
    tree = Tree(agents, tuple(parents))
    return with_spares(tree) if spares else tree


def with_spares(tree: Tree) -> Tree:
    """Return a planned tree in which every place with junctions below it has a spare one.

    Example:
        >>> with_spares(kary(4, 2)) == kary(4, 2, spares=True)
        True
    """
    over = sorted(set(tree.parents[tree.planned + 1 :]))
    first = tree.size
    return Tree(tree.planned, (*tree.parents, *over), tuple(range(first, first + len(over))))


def knomial(agents: int, k: int = 2, *, spares: bool = False) -> Tree:
    """Return the k-nomial tree: the further to the right a subtree is, the more agents it has.

    In the k-nomial tree over processes that all take part, the process with the number ``i`` has
    the children ``i + j * k**level``. Here only leaves take part, so each agent that would have
    children is itself the first child of a junction that has them. While a place passes a wave to
    its large subtrees, its small ones answer already.

    With ``spares``, every place with junctions below it has one more, which stands in for them.

    Args:
        agents: How many.
        k: Grows from one level to the next: a place whose largest subtree is of level ``m`` has
            at most ``m * (k - 1) + k`` children.
        spares: Whether there are spare junctions.

    Raises:
        ConfigurationError: ``k`` is less than two, or no agent is given.

    Example:
        >>> tree = knomial(8)
        >>> [tree.children(rank) for rank in (0, *tree.junctions)]
        [[1, 2, 9, 10], [3, 4], [5, 6, 11], [7, 8]]
    """
    if k < 2:
        raise ConfigurationError("the k of a k-nomial tree must be at least 2", where=f"k={k}")
    if agents < 1:
        raise ConfigurationError("this tree needs at least one agent", where=f"agents={agents}")
    parents = list(flat(agents).parents)
    todo = [(ROOT, 1, agents)]
    for above, first, count in todo:
        parents[first] = above
        step = 1
        while step < count:
            for start in range(step, min(count, k * step), step):
                share = min(step, count - start)
                if share == 1:
                    parents[first + start] = above
                    continue
                parents.append(above)
                todo.append((len(parents) - 1, first + start, share))
            step *= k
    tree = Tree(agents, tuple(parents))
    return with_spares(tree) if spares else tree


def by_host(agents: Sequence[int], above: Sequence[int] = ()) -> tuple[Tree, tuple[int, ...]]:
    """Return a tree with a junction on each machine, over all its agents, and each rank's host.

    So one contribution leaves a machine, whatever it has of agents, and whatever comes from
    machines below it. A machine with a single agent and none below needs no junction. Machines are
    counted from 1; 0 is the root's.

    Args:
        agents: How many agents each machine has.
        above: The machine above each (:mod:`~sapwood.core.host_tree`); none: all are below the
            root.

    Raises:
        ConfigurationError: No agent is given.

    Example:
        >>> tree, hosts = by_host([2, 1])
        >>> tree.parents, hosts
        ((-1, 4, 4, 0, 0), (0, 1, 1, 2, 1))
        >>> tree, hosts = by_host([1, 1, 1], [0, 1, 1])
        >>> tree.parents, hosts
        ((-1, 4, 4, 4, 0), (0, 1, 2, 3, 1))
    """
    count = sum(agents)
    if count < 1:
        raise ConfigurationError("this tree needs at least one agent", where=f"agents={count}")
    below: list[list[int]] = [[] for _ in range(len(agents) + 1)]
    for host, parent in enumerate(above or [0] * len(agents), start=1):
        below[parent].append(host)
    parents, hosts = list(flat(count).parents), [0] * (count + 1)
    first = 1
    waiting = [(host, ROOT) for host in reversed(below[0])]
    while waiting:  # a machine, then those below it: so a junction covers adjacent agents
        host, top = waiting.pop()
        share = agents[host - 1]
        mine = range(first, first + share)
        first += share
        if share > 1 or below[host]:
            parents.append(top)
            hosts.append(host)
            top = len(parents) - 1
        for rank in mine:
            parents[rank], hosts[rank] = top, host
        waiting += [(child, top) for child in reversed(below[host])]
    return Tree(count, tuple(parents)), tuple(hosts)


def gateways(tree: Tree, hosts: Sequence[int]) -> frozenset[int]:
    """Return the junctions that have places of other machines below them.

    Args:
        tree: The tree.
        hosts: The machine of each place, by rank; none where all are on one.

    Example:
        >>> sorted(gateways(*by_host([2, 2, 2], [0, 1, 0])))
        [7]
    """
    found: set[int] = set()
    for rank, host in enumerate(hosts):
        if rank in tree:
            found.update(one for one in tree.above(rank) if one != ROOT and hosts[one] != host)
    return frozenset(found)


def plan(agents: int, fanout: int, *, spares: bool = False) -> Tree:
    """Return the flat tree for ``fanout`` 0, else the k-ary one."""
    return kary(agents, fanout, spares=spares) if fanout else flat(agents)
