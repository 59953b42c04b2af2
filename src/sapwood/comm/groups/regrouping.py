"""Groups go on when the tree changes: the front end puts them together again. No I/O.

A place whose parent changes, or that loses a child with members below it, is *disturbed*: it
takes part in no round and says so upwards, up to the front end. That waits until all members can
be reached and begins the next attempt, in which results are made at the front end. On its way down
every place finds out anew where members are attached, and the members give again all that is not
confirmed. What belongs to an earlier attempt is dropped, so nothing is counted twice. A member
that has the result of a round which others still lack gives that result instead of its value.

Only the front end, which outlives the tree, counts attempts. A change during an attempt leads to
the next one; when the tree rests, the last one completes. A member whose process is gone ends
its groups with an error: that the front end tells all places.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import Any

from sapwood.comm import events as ev
from sapwood.comm.groups import events as gev
from sapwood.comm.groups.entrance import MAX_REMEMBERED, Entrance
from sapwood.comm.groups.group import OpenGroup
from sapwood.comm.link import Link
from sapwood.comm.messages import groups as gmsg
from sapwood.comm.peers import Effects, PeerTable
from sapwood.comm.streams.wave import NewGathering
from sapwood.core.errors import ErrorRecord, GroupError, ProtocolError
from sapwood.core.rankset import contains
from sapwood.core.topology import ROOT


class Regrouping:
    """What one place does when the tree changes below or above a group.

    Args:
        near: The neighbours.
        open_groups: The groups of this place.
        entrance: The groups that wait for members.
        gather: Makes what puts values together.
        give_again: Has this member give to the present attempt what is not confirmed.
    """

    def __init__(
        self,
        near: PeerTable,
        open_groups: dict[gmsg.GroupNumber, OpenGroup],
        entrance: Entrance,
        gather: NewGathering,
        give_again: Callable[[OpenGroup], Effects],
    ) -> None:
        self._near = near
        self._open = open_groups
        self._entrance = entrance
        self._gather = gather
        self._give_again = give_again
        self._ended: OrderedDict[gmsg.GroupNumber, ErrorRecord] = OrderedDict()

    # --- disturbance ---------------------------------------------------------------------------

    def disturb(self, group: OpenGroup) -> Effects:
        """The way to members of a group has changed."""
        where = group.where = self._entrance.membership(*group.where.key)
        group.disturbed = True
        group.rounds.clear()
        if self._near.rank == ROOT:
            return self._try_again(group)
        where.turn = False
        effects: Effects = []
        if not group.told:
            wish = group.wish or gmsg.Disturbed(group.number, *where.key, group.attempt)
            effects = self._near.to_parent(wish)
            group.told = bool(effects)
        if not where.attached:
            del self._open[group.number]
            effects += [gev.Discarded(one) for held in group.held.values() for one in held]
        return effects

    def on_disturbed(self, link: Link, message: gmsg.Disturbed, _payload: Any) -> Effects:
        """The way to members below has changed."""
        if not self._entrance.are_places(message.members):
            raise ProtocolError(f"rank {link.rank} has a group of places that there are not")
        group = self._open.get(message.group)
        if group is None:
            error = self._ended.get(message.group)
            if error is None and self._entrance.is_full:
                error = GroupError("too many groups at one place").to_record()
            if error is not None:
                ended = gmsg.GroupEnded(message.group, message.members, message.name, error)
                return [ev.Transmit((link.number,), ended)]
            group = self._new(message)
        elif self._is_on_its_way(group, link.rank, message.attempt):
            return []
        group.attempt = max(group.attempt, message.attempt)
        return self.disturb(group)

    def _is_on_its_way(self, group: OpenGroup, child: int, attempt: int) -> bool:
        """Whether a child will hear of the present attempt, which it had not when it spoke."""
        return not group.disturbed and attempt < group.attempt and child in group.where.below

    def _new(self, message: gmsg.Disturbed | gmsg.Regroup) -> OpenGroup:
        where = self._entrance.membership(message.members, message.name)
        group = self._open[message.group] = OpenGroup(message.group, where, self._gather)
        group.disturbed = True
        return group

    # --- the next attempt ----------------------------------------------------------------------

    def _try_again(self, group: OpenGroup) -> Effects:
        """Root: begin the next attempt if all members can be reached."""
        where = group.where = self._entrance.membership(*group.where.key)
        if not where.is_whole:
            return []
        return self._begin(group, group.attempt + 1)

    def _begin(self, group: OpenGroup, attempt: int) -> Effects:
        group.attempt = attempt
        group.disturbed = group.told = False
        group.rounds.clear()
        links = self._near.links_to(tuple(group.where.below))
        begin = gmsg.Regroup(group.number, *group.where.key, attempt)
        effects: Effects = [ev.Transmit(links, begin)] if links else []
        return effects + self._give_again(group)

    def on_regroup(self, link: Link, message: gmsg.Regroup, _payload: Any) -> Effects:
        """The next attempt of a group begins."""
        self._near.must_be_parent(link)
        number, key = message.group, (message.members, message.name)
        group = self._open.get(number)
        effects: Effects = []
        error = self._ended.get(number)
        if group is None and error is not None:
            return self._near.to_parent(gmsg.GroupEnded(number, *key, error))
        if group is None and contains(message.members, self._near.rank):
            found = self._entrance.found(key, number)
            if found is None:
                # It was a former process of this place that had entered it.
                error = self._entrance.replaced().to_record()
                return self._near.to_parent(gmsg.GroupEnded(number, *key, error))
            effects = found
        where = self._entrance.membership(*key)
        if group is not None and message.attempt <= group.attempt:
            return []
        if not where.attached:
            return []
        if group is None:
            group = self._new(message)
        where.turn = False
        group.where = where
        return effects + self._begin(group, message.attempt)

    # --- the tree changes ----------------------------------------------------------------------

    def places_left(self, ranks: Collection[int]) -> Effects:
        """Places cannot be reached below this one any more."""
        return self._entrance.places_left(ranks) + self._disturbed(ranks)

    def places_moved(self, ranks: Collection[int]) -> Effects:
        """Places are reached by another child: what was sent by the former one may be lost."""
        return self._entrance.places_moved(ranks) + self._disturbed(ranks)

    def _disturbed(self, ranks: Collection[int]) -> Effects:
        effects: Effects = []
        for group in list(self._open.values()):
            if any(contains(group.where.members, rank) for rank in ranks):
                effects += self.disturb(group)
        return effects

    def places_came(self) -> Effects:
        """Root: places can be reached again."""
        if self._near.rank != ROOT:
            return []
        waiting = [group for group in self._open.values() if group.disturbed]
        return [effect for group in waiting for effect in self._try_again(group)]

    def parent_changed(self) -> Effects:
        """Groups that are put together above this place wait for the next attempt."""
        effects = self._entrance.parent_changed()
        for group in list(self._open.values()):
            if not group.where.turn:
                group.told = False
                effects += self.disturb(group)
        return effects

    # --- ends ----------------------------------------------------------------------------------

    def ended(self, number: gmsg.GroupNumber, error: ErrorRecord) -> None:
        """Remember that a group is over, for those who have not heard of it."""
        self._ended[number] = error
        while len(self._ended) > MAX_REMEMBERED:
            self._ended.popitem(last=False)

    def why_ended(self, number: gmsg.GroupNumber) -> ErrorRecord | None:
        """Return why a group that is not known here is over; None if that is not known."""
        return self._ended.get(number)
