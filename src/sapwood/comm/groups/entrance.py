"""Before a group has a number: members enter it, and may give up. No I/O."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sized
from typing import Any

import msgspec

from sapwood.comm import events as ev
from sapwood.comm.groups import events as gev
from sapwood.comm.groups.group import Formation, Key, Membership
from sapwood.comm.link import Link
from sapwood.comm.messages import groups as gmsg
from sapwood.comm.neighbourhood import Effects, Neighbourhood
from sapwood.core.errors import ErrorRecord, GroupError, ProtocolError
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
        near: Neighbourhood,
        begin: Callable[[gmsg.GroupNumber, Membership], None],
        open_groups: Sized,
        *,
        is_agent: bool,
    ) -> None:
        self.forming: dict[Key, Formation] = {}
        self._near = near
        self._begin_group = begin
        self._open = open_groups
        self._is_agent = is_agent
        self._count = 0
        self._ended: OrderedDict[Key, ErrorRecord] = OrderedDict()

    def enter(self, _now: float, event: gev.EnterGroup) -> Effects:
        """Member: enter a group."""
        error = self._ended.get((event.members, event.name))
        if error is not None:
            return [gev.GroupBroken(gmsg.NO_GROUP, event.members, event.name, error)]
        return self._entered(self._near.rank, event.members, event.name)

    def on_enter(self, link: Link, message: gmsg.Enter, _payload: Any) -> Effects:
        """All members below a child have entered a group."""
        if not self.are_places(message.members):
            raise ProtocolError(f"rank {link.rank} enters a group of places that there are not")
        return self._entered(link.rank, message.members, message.name)

    def _entered(self, source: int, members: Ranges, name: str) -> Effects:
        key = (members, name)
        forming = self.forming.get(key)
        if forming is None:
            if max(len(self.forming), len(self._open)) >= MAX_GROUPS:
                error = GroupError(f"more than {MAX_GROUPS} groups at one place").to_record()
                effects = self.over(gmsg.GroupEnded(gmsg.NO_GROUP, *key, error))
                if source == self._near.rank:
                    effects.append(gev.GroupBroken(gmsg.NO_GROUP, *key, error))
                return effects
            forming = Formation(self.membership(members, name), self._near.rank)
            self.forming[key] = forming
        where = forming.where
        if source not in where.sources(self._near.rank):
            error = GroupError("the tree changed while the group was formed").to_record()
            return self.over(gmsg.GroupEnded(gmsg.NO_GROUP, *key, error))
        if source not in forming.waiting:
            return []  # they gave up, which is still on its way here, and entered again
        forming.waiting.discard(source)
        if forming.waiting:
            return []
        if not where.turn:
            return self._near.to_parent(gmsg.Enter(members, name))
        self._count += 1
        return self._begin(key, (self._near.rank, self._near.identity.incarnation, self._count))

    def on_entered(self, link: Link, message: gmsg.Entered, _payload: Any) -> Effects:
        """All members have entered a group."""
        self._near.must_be_parent(link)
        key = (message.members, message.name)
        forming = self.forming.get(key)
        if forming is None or forming.waiting:
            # Those who had entered from here have given up meanwhile.
            error = GroupError("a member gave up before all had entered the group").to_record()
            return self._near.to_parent(gmsg.GroupEnded(message.group, *key, error))
        return self._begin(key, message.group)

    def _begin(self, key: Key, number: gmsg.GroupNumber) -> Effects:
        where = self.forming.pop(key).where
        self._begin_group(number, where)
        effects: Effects = []
        links = self._near.links_to(tuple(where.below))
        if links:
            effects.append(ev.Transmit(links, gmsg.Entered(*key, number)))
        if where.here:
            effects.append(gev.GroupEntered(*key, number))
        return effects

    def membership(self, members: Ranges, name: str) -> Membership:
        """Return where the members of a group are."""
        router, rank = self._near.router, self._near.rank
        there: dict[int, list[int]] = {}
        for one in from_ranges(members):
            if router.is_home(one):
                there.setdefault(router.way_to(one), []).append(one)
        below = {child: to_ranges(those) for child, those in sorted(there.items())}
        here = contains(members, rank)
        all_here = sum(map(count, below.values())) + here == count(members)
        # An agent has nothing to put values together with: its parent is the turn of it alone.
        return Membership(members, name, below, here=here, turn=all_here and not self._is_agent)

    def over(self, message: gmsg.GroupEnded) -> Effects:
        """End the wait for members here and below."""
        key = (message.members, message.name)
        if message.name.startswith(ONCE):
            self._ended[key] = message.error
            while len(self._ended) > MAX_REMEMBERED:
                self._ended.popitem(last=False)
        forming = self.forming.pop(key, None)
        where = forming.where if forming is not None else self.membership(*key)
        came = [
            child for child in where.below if forming is not None and child not in forming.waiting
        ]
        effects: Effects = []
        for entered in (True, False):
            children = tuple(child for child in where.below if (child in came) is entered)
            links = self._near.links_to(children)
            if links:
                told = msgspec.structs.replace(message, entered=entered)
                effects.append(ev.Transmit(links, told))
        if forming is None:
            return effects
        if not where.turn and not forming.waiting and not message.entered:
            effects += self._near.to_parent(gmsg.Withdrawn(*key))
        if where.here and self._near.rank not in forming.waiting:
            effects.append(gev.GroupBroken(gmsg.NO_GROUP, *key, message.error))
        return effects

    def on_withdrawn(self, link: Link, message: gmsg.Withdrawn, _payload: Any) -> Effects:
        """What a child entered meanwhile was for what had ended."""
        key = (message.members, message.name)
        forming = self.forming.get(key)
        if forming is None or link.rank not in forming.where.below:
            return []
        sent = not forming.waiting
        forming.waiting.add(link.rank)
        if forming.waiting == set(forming.where.sources(self._near.rank)):
            del self.forming[key]
        return self._near.to_parent(message) if sent else []

    def are_places(self, members: Ranges) -> bool:
        """Whether there are such places."""
        size = self._near.router.size
        # The bounds come from a peer: they are looked at before they are counted out.
        return bool(members) and all(0 <= start < stop <= size for start, stop in members)
