"""Before a group has a number: members enter it, and may give up. No I/O.

Each place knows who has entered at or below it. It tells its parent when all members that are
attached there have; a new parent is told again, so nobody who moves in the tree is forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Sized
from typing import Any

from sapwood.comm import events as ev
from sapwood.comm.groups import events as gev
from sapwood.comm.groups.group import Formation, Membership
from sapwood.comm.link import Link
from sapwood.comm.messages import groups as gmsg
from sapwood.comm.peers import Effects, PeerTable
from sapwood.core.errors import AgentLostError, ErrorRecord, GroupError, ProtocolError, SapwoodError
from sapwood.core.rankset import Ranges, contains, count, from_ranges, to_ranges

MAX_GROUPS = 4096
"""Groups of one place that wait for members, and that are open, at a time."""

ONCE = "once:"
"""Begin of the names that are used once: who enters such a group after its end is told of it."""

MAX_REMEMBERED = 1024
"""Ends of such groups that a place remembers."""


class Entrance:
    """The groups of one place that wait for members.

    Args:
        near: The neighbours.
        begin: Told the number of a group that all members have entered, and where they are.
        open_groups: The groups that all members have entered.
        is_agent: Whether this place is a leaf.
    """

    def __init__(
        self,
        near: PeerTable,
        begin: Callable[[gmsg.GroupNumber, Membership], None],
        open_groups: Sized,
        *,
        is_agent: bool,
    ) -> None:
        self.forming: dict[gmsg.Key, Formation] = {}
        self._near = near
        self._begin_group = begin
        self._open = open_groups
        self._is_agent = is_agent
        self._count = 0
        self._ended: OrderedDict[gmsg.Key, ErrorRecord] = OrderedDict()

    def enter(self, _now: float, event: gev.EnterGroup) -> Effects:
        """Member: enter a group."""
        return self._entered({self._near.rank}, event.members, event.name, 0)

    def on_enter(self, link: Link, message: gmsg.Enter, _payload: Any) -> Effects:
        """Members below a child have entered a group."""
        next_hop = self._near.router.next_hop
        ranks = {rank for rank in self._from_below(link, message) if next_hop(rank) == link.rank}
        # Who is elsewhere by now enters there again.
        return self._entered(ranks, message.members, message.name, link.number) if ranks else []

    def _from_below(self, link: Link, message: gmsg.Enter | gmsg.Withdrawn) -> set[int]:
        if not self.are_places(message.members) or not self._near.all_below(link, message.ranks):
            raise ProtocolError(f"rank {link.rank} enters a group of places that there are not")
        ranks = from_ranges(message.ranks)
        if not all(contains(message.members, rank) for rank in ranks):
            raise ProtocolError(f"rank {link.rank} enters a group for others than its members")
        return ranks

    def _entered(self, ranks: set[int], members: Ranges, name: str, link: int) -> Effects:
        key = (members, name)
        error = self._ended.get(key)
        forming = self.forming.get(key)
        if forming is None and error is None and self.is_full:
            error = GroupError(f"more than {MAX_GROUPS} groups at one place").to_record()
        if error is not None:
            if not link:
                return [gev.GroupBroken(gmsg.NO_GROUP, members, name, error)]
            return [ev.Transmit((link,), gmsg.GroupEnded(gmsg.NO_GROUP, members, name, error))]
        if forming is None:
            router = self._near.router
            forming = self.forming[key] = Formation(self.membership(members, name), router.version)
        forming.entered |= ranks
        return self._go_on(key, forming)

    def _go_on(self, key: gmsg.Key, forming: Formation) -> Effects:
        """Begin the group if all have entered and that is decided here, or tell the parent."""
        version = self._near.router.version
        if forming.version != version:
            forming.where, forming.version = self.membership(*key), version
        where, entered = forming.where, forming.entered
        if where.turn and not forming.told:
            if len(entered) < count(where.members):
                return []
            self._count += 1
            number = (self._near.rank, self._near.identity.incarnation, self._count)
            return self._begin(key, number, where)
        if len(entered) < where.attached or entered == forming.told:
            return []
        if forming.waiting(where):
            return []
        told = self._near.to_parent(gmsg.Enter(*key, to_ranges(entered)))
        if told:
            forming.told = set(entered)
            forming.tellings += 1
        return told

    def on_entered(self, link: Link, message: gmsg.Entered, _payload: Any) -> Effects:
        """All members have entered a group."""
        self._near.must_be_parent(link)
        key = (message.members, message.name)
        where = self.membership(*key)
        if where.here and key not in self.forming:
            what = f"member {self._near.rank} gave up before all had entered"
            is_first = self._near.identity.incarnation <= 1
            error = (GroupError(what) if is_first else self.replaced()).to_record()
            return self._near.to_parent(gmsg.GroupEnded(message.group, *key, error))
        if not where.attached:
            return []  # they are lost or elsewhere by now, which the parent hears
        where.turn = False  # who gave the number has the group, too: members may have moved since
        return self._begin(key, message.group, where)

    def _begin(self, key: gmsg.Key, number: gmsg.GroupNumber, where: Membership) -> Effects:
        forming = self.forming.pop(key, None)
        self._begin_group(number, where)
        effects: Effects = []
        if forming is not None and forming.tellings > 1:
            # It may have been counted before the last time: nobody is to wait for more.
            effects += self._withdrawn(key, forming.told)
        links = self._near.links_to(tuple(where.below))
        if links:
            effects.append(ev.Transmit(links, gmsg.Entered(*key, number)))
        if where.here:
            effects.append(gev.GroupEntered(*key, number))
        return effects

    def found(self, key: gmsg.Key, number: gmsg.GroupNumber) -> Effects | None:
        """This member waits for a group that has begun; None if it does not wait."""
        forming = self.forming.pop(key, None)
        if forming is None:
            return None
        return [*self._withdrawn(key, forming.told), gev.GroupEntered(*key, number)]

    def replaced(self) -> SapwoodError:
        """Return why this place is not in a group that it is a member of."""
        rank = self._near.rank
        return AgentLostError(f"agent {rank} of the group is gone: its process was replaced")

    def membership(self, members: Ranges, name: str) -> Membership:
        """Return where the members of a group are."""
        # An agent has nothing to put values together with: its parent is the turn of it alone.
        return Membership((members, name), self._near.router, may_turn=not self._is_agent)

    # --- ends ----------------------------------------------------------------------------------

    def over(self, message: gmsg.GroupEnded) -> Effects:
        """End the wait for members here and below."""
        key = (message.members, message.name)
        if message.name.startswith(ONCE):
            self._ended[key] = message.error
            while len(self._ended) > MAX_REMEMBERED:
                self._ended.popitem(last=False)
        forming = self.forming.pop(key, None)
        where = self.membership(*key)
        links = self._near.links_to(tuple(where.below))
        effects: Effects = [ev.Transmit(links, message)] if links else []
        if forming is None:
            return effects
        # What the parent was told may be on its way still, and be taken for a new beginning.
        effects += self._withdrawn(key, forming.told)
        if self._near.rank in forming.entered:
            effects.append(gev.GroupBroken(gmsg.NO_GROUP, *key, message.error))
        return effects

    def on_withdrawn(self, link: Link, message: gmsg.Withdrawn, _payload: Any) -> Effects:
        """Members below a child have not entered after all."""
        ranks = self._from_below(link, message)
        key = (message.members, message.name)
        forming = self.forming.get(key)
        if forming is not None:
            self._forget(key, forming, ranks)
        # Also where it was not told from here: who has moved may have told it from elsewhere.
        return self._near.to_parent(message)

    def _forget(self, key: gmsg.Key, forming: Formation, ranks: Collection[int]) -> None:
        forming.entered.difference_update(ranks)
        forming.told.difference_update(ranks)
        if not forming.entered:
            del self.forming[key]

    def _withdrawn(self, key: gmsg.Key, ranks: set[int]) -> Effects:
        return self._near.to_parent(gmsg.Withdrawn(*key, to_ranges(ranks))) if ranks else []

    # --- the tree changes ----------------------------------------------------------------------

    def places_left(self, ranks: Collection[int]) -> Effects:
        """Forget who was below: whoever lives enters again where it is attached next."""
        effects: Effects = []
        for key, forming in list(self.forming.items()):
            if not any(contains(key[0], rank) for rank in ranks):
                continue
            self._forget(key, forming, ranks)  # those above hear of it themselves
            if key in self.forming:  # perhaps it was they that were waited for
                effects += self._go_on(key, forming)
        return effects

    def places_moved(self, ranks: Collection[int]) -> Effects:
        """Forget who was below one child and is below another one: there it enters again.

        What it had said of itself may be lost with its former link: that it waits no more.
        """
        effects: Effects = []
        for key, forming in list(self.forming.items()):
            if not forming.entered.isdisjoint(ranks):
                told = forming.told.intersection(ranks)
                self._forget(key, forming, ranks)
                effects += self._withdrawn(key, told)
        return effects

    def parent_changed(self) -> Effects:
        """Tell the new parent who has entered, and who has given up."""
        effects: Effects = []
        for key, forming in list(self.forming.items()):
            forming.told = set()
            effects += self._go_on(key, forming)
            if forming.wish is not None and key in self.forming:
                effects += self._near.to_parent(forming.wish)
        return effects

    @property
    def is_full(self) -> bool:
        """Whether this place takes no more groups."""
        return max(len(self.forming), len(self._open)) >= MAX_GROUPS

    def are_places(self, members: Ranges) -> bool:
        """Whether there are such places."""
        size = self._near.router.size
        # The bounds come from a peer: they are looked at before they are counted out.
        return bool(members) and all(0 <= start < stop <= size for start, stop in members)
