"""How places learn of the tree of another epoch: the client decides, and tells all. No I/O.

The tree of an epoch goes down each link before any wave, stream or place of that epoch, in order
with everything else; a process that attaches first receives the tree. So a process never
hears of an agent that its tree does not have, and one that missed an epoch receives the last one.

A place that was removed stays where it is attached until the client says that its process is
gone: what it was asked for before it can still give. Then its parent dismisses it, and no place
takes it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from sapwood.comm import events as ev
from sapwood.comm import messages as msg
from sapwood.comm.link import Link
from sapwood.comm.peers import Effects, PeerTable
from sapwood.core.errors import ProtocolError
from sapwood.core.rankset import MAX_RANKS, Ranges, from_ranges, to_ranges
from sapwood.core.topology import ROOT, Tree

MAX_DEPTH = 64
"""Levels of a tree; more than any has, so what has more goes in a circle."""


def tree_message(tree: Tree) -> msg.TreeChanged:
    """Return the message that sends a tree to processes.

    Example:
        >>> from sapwood.core.topology import flat
        >>> told = tree_message(flat(3).with_agents({4: 0}).without([2]))
        >>> told.homes, told.added, told.removed
        (((4, 0),), ((4, 5),), ((2, 3),))
    """
    homes: list[tuple[int, int]] = []
    for parent in tree.parents[1:]:
        if homes and homes[-1][1] == parent:
            homes[-1] = (homes[-1][0] + 1, parent)
        else:
            homes.append((1, parent))
    return msg.TreeChanged(
        tree.epoch,
        tree.planned,
        tuple(homes),
        to_ranges(tree.spares),
        to_ranges(tree.added),
        to_ranges(tree.removed),
    )


def tree_of(message: msg.TreeChanged) -> Tree:
    """Return the tree that a message tells of.

    Raises:
        ProtocolError: There can be no such tree.

    Example:
        >>> from sapwood.core.topology import kary
        >>> tree = kary(4, 2, spares=True).with_agents({8: 5}).without([3])
        >>> tree_of(tree_message(tree)) == tree
        True
    """
    parents = [msg.NOBODY]
    if any(count < 1 for count, _ in message.homes):
        raise ProtocolError("a tree has an empty row of homes")
    if sum(count for count, _ in message.homes) >= MAX_RANKS:
        raise ProtocolError(f"a tree has more than {MAX_RANKS} places")
    for count, parent in message.homes:
        parents += [parent] * count
    size = len(parents)
    several = (message.spares, message.added, message.removed)
    inside = all(_are_inside(ranges, size) for ranges in several)
    if message.epoch < 1 or not 0 <= message.planned < size or not inside:
        raise ProtocolError("a tree has ranks that were not given")
    spares, added, removed = (tuple(sorted(from_ranges(ranges))) for ranges in several)
    if added and added[0] <= message.planned:
        raise ProtocolError("a tree has agents twice")
    tree = Tree(message.planned, tuple(parents), spares, added, removed, message.epoch)
    _check_homes(tree)
    return tree


def _are_inside(ranges: Ranges, size: int) -> bool:
    return all(0 < start < stop <= size for start, stop in ranges)


def _check_homes(tree: Tree) -> None:
    """Raise ProtocolError where the way up from a place does not end at the root."""
    depths: dict[int, int] = {ROOT: 0}
    for rank in range(1, tree.size):
        way: list[int] = []
        place = rank
        while place not in depths:
            way.append(place)
            place = tree.parents[place]
            if not 0 <= place < tree.size or tree.is_agent(place) or len(way) > MAX_DEPTH:
                raise ProtocolError(f"rank {rank} has no home")
        for above, one in enumerate(reversed(way), start=1):
            depths[one] = depths[place] + above
        if depths[rank] > MAX_DEPTH:
            raise ProtocolError(f"rank {rank} has no home")


class Epochs:
    """What one place knows of the epochs of its tree.

    Args:
        near: The neighbours.
        changed: Told of each change, when the neighbours know of it.
    """

    def __init__(self, near: PeerTable, changed: Callable[[], Effects]) -> None:
        self._near = near
        self._changed = changed

    def change(self, _now: float, event: ev.ChangeTree) -> Effects:
        """Root: begin the next epoch.

        Raises:
            ProtocolError: It is none.
        """
        return self._begin(event.tree)

    def on_change(self, link: Link, message: msg.TreeChanged, _payload: Any) -> Effects:
        """The tree is another one."""
        self._near.must_be_parent(link)
        if message.epoch <= self._near.router.tree.epoch:
            return []  # this place has heard it from the parent before
        return self._begin(tree_of(message))

    def tell(self, rank: int) -> Effects:
        """Tell a place that was attached how the tree is now, if it was changed ever."""
        tree = self._near.router.tree
        links = self._near.links_to((rank,)) if tree.epoch else ()
        return [ev.Transmit(links, tree_message(tree))] if links else []

    def dismiss(self, gone: Iterable[tuple[int, int]]) -> Effects:
        """Disconnect processes that were removed from the tree: ranks and incarnations."""
        removed = self._near.router.tree.removed
        effects: Effects = []
        for rank, incarnation in gone:
            if rank in removed:
                effects += self._near.dismiss(rank, incarnation)
        return effects

    def _begin(self, tree: Tree) -> Effects:
        router = self._near.router
        old = router.tree
        same = tree.planned == old.planned and tree.spares == old.spares
        if (
            not same
            or tree.epoch <= old.epoch
            or tree.parents[: old.size] != old.parents
            or not set(old.removed) <= set(tree.removed)
        ):
            raise ProtocolError(f"epoch {tree.epoch} does not follow epoch {old.epoch}")
        router.change(tree)
        links = self._near.links_to(router.children)
        effects: Effects = [ev.Transmit(links, tree_message(tree))] if links else []
        if self._near.rank != ROOT:
            effects.append(ev.EpochBegun(tree))
        return effects + self._changed()
