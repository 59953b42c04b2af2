"""The groups of one place: what it does with calls, results and failures. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import msgspec

from sapwood.comm import events as ev
from sapwood.comm.groups import events as gev
from sapwood.comm.groups.delivery import deliver
from sapwood.comm.groups.entrance import Entrance
from sapwood.comm.groups.group import Membership, OpenGroup
from sapwood.comm.groups.round import LEAVE, Round
from sapwood.comm.link import Link
from sapwood.comm.messages import groups as gmsg
from sapwood.comm.neighbourhood import Effects, Neighbourhood
from sapwood.comm.payload import Payload
from sapwood.comm.streams.wave import NewGathering
from sapwood.core.errors import AgentLostError, GroupError, ProtocolError, SapwoodError
from sapwood.core.rankset import fold, from_ranges, to_ranges


class Groups:
    """The groups of one place.

    Args:
        near: The neighbours.
        gather: Makes what puts values together.
        is_agent: Whether this place is a leaf.
    """

    def __init__(self, near: Neighbourhood, gather: NewGathering, *, is_agent: bool) -> None:
        self.open: dict[gmsg.GroupNumber, OpenGroup] = {}
        self._near = near
        self._gather = gather
        entrance = self._entrance = Entrance(near, self._begin, self.open, is_agent=is_agent)
        self.forming = entrance.forming
        self.on_event: dict[type[ev.Event], Callable[[float, Any], Effects]] = {
            gev.EnterGroup: entrance.enter,
            gev.CallGroup: self.call,
            gev.BreakGroup: self.break_group,
            gev.ForgetGroups: self.forget,
        }
        self.on_message: dict[type[Any], Callable[[Link, Any, Payload | None], Effects]] = {
            gmsg.Enter: entrance.on_enter,
            gmsg.Entered: entrance.on_entered,
            gmsg.GroupPart: self.on_part,
            gmsg.GroupResult: self.on_result,
            gmsg.GroupEnded: self.on_ended,
            gmsg.Withdrawn: entrance.on_withdrawn,
        }

    def _begin(self, number: gmsg.GroupNumber, where: Membership) -> None:
        self.open[number] = OpenGroup(number, where, self._near.rank, self._gather)

    # --- rounds --------------------------------------------------------------------------------

    def call(self, _now: float, event: gev.CallGroup) -> Effects:
        """Member: take part in a round."""
        group = self.open.get(event.group)
        if group is None:
            return [gev.Discarded(event.payload)] if event.payload is not None else []
        rank = self._near.rank
        group.hold(event.round, event.payload)
        ranks = ((rank, rank + 1),)
        part = gmsg.GroupPart(event.group, event.round, event.call, ranks, event.taken, event.body)
        return self._add(group, rank, part, event.payload)

    def on_part(self, link: Link, message: gmsg.GroupPart, payload: Payload | None) -> Effects:
        """What the members below a child give to a round."""
        group = self.open.get(message.group)
        if group is None:
            error = GroupError("the group is gone").to_record()
            ended = gmsg.GroupEnded(message.group, (), "", error)
            return [ev.Transmit((link.number,), ended)]
        expected = group.where.below.get(link.rank)
        if expected is None or expected != message.ranks:
            raise ProtocolError(f"rank {link.rank} gives what is not its to give to a group")
        return self._add(group, link.rank, message, payload)

    def _add(
        self, group: OpenGroup, source: int, part: gmsg.GroupPart, payload: Payload | None
    ) -> Effects:
        try:
            current = group.round(part.round, part.call)
        except SapwoodError as error:
            return self._fail(group, error)
        try:
            if source not in current.waiting:
                raise ProtocolError(f"rank {source} gives twice to round {part.round} of a group")
            if not current.add(source, part, payload):
                return []
            return self._all_called(group, current)
        except ProtocolError:
            raise  # not to be read, or its memory is gone: the child is cut off and replaced
        except SapwoodError as error:
            return self._fail(group, error)

    def _all_called(self, group: OpenGroup, current: Round) -> Effects:
        if group.where.turn:
            body, payload, made = current.outcome()
        else:
            body, payload, made = current.partial()
        if made:
            group.hold(current.number, payload)
        if group.where.turn:
            confirmed = current.number if current.call == LEAVE else current.taken
            return self._finish(group, current.number, confirmed, body, payload)
        part = gmsg.GroupPart(
            group.number, current.number, current.call, current.ranks, current.taken, body
        )
        return self._near.to_parent(part, payload)

    def on_result(self, link: Link, message: gmsg.GroupResult, payload: Payload | None) -> Effects:
        """The result of a round."""
        self._near.must_be_parent(link)
        group = self.open.get(message.group)
        if group is None:
            return []
        current = group.rounds.get(message.round)
        if current is None or current.waiting:
            raise ProtocolError(f"round {message.round} of a group ended before it was called")
        return self._finish(group, message.round, message.confirmed, message.body, payload)

    def _finish(
        self, group: OpenGroup, number: int, confirmed: int, body: bytes, payload: Payload | None
    ) -> Effects:
        """End a round here, and below."""
        call = group.rounds.pop(number).call
        group.finished = max(group.finished, number)
        result = gmsg.GroupResult(group.number, number, confirmed, body)
        effects = deliver(self._near, group.where, call, result, payload)
        if call == LEAVE:
            del self.open[group.number]
        return effects + [gev.Discarded(kept) for kept in group.release(confirmed)]

    # --- failures ------------------------------------------------------------------------------

    def break_group(self, _now: float, event: gev.BreakGroup) -> Effects:
        """Member: end a group, or the wait for one, with an error."""
        ended = gmsg.GroupEnded(event.group, event.members, event.name, event.error, event.round)
        return self._end(ended)

    def on_ended(self, link: Link, message: gmsg.GroupEnded, _payload: Any) -> Effects:
        """A group is to end (from below), or has ended (from above)."""
        if link.rank == self._near.router.parent:
            return self._over(message)
        if message.group == gmsg.NO_GROUP and not self._entrance.are_places(message.members):
            raise ProtocolError(f"rank {link.rank} ends a group of places that there are not")
        return self._end(message, link.rank)

    def _end(self, message: gmsg.GroupEnded, source: int = -1) -> Effects:
        """Pass the wish to end a group on to the turn; there, end it."""
        group = self.open.get(message.group)
        if message.group != gmsg.NO_GROUP and group is None:
            return []
        where = (
            group.where
            if group is not None
            else self._entrance.membership(message.members, message.name)
        )
        waiting = self._waiting(message, group).difference((source,))  # it said who is missing
        message = _with_missing(message, where, waiting)
        if not where.turn:
            return self._near.to_parent(message)
        return self._over(_naming_missing(message))

    def _waiting(self, message: gmsg.GroupEnded, group: OpenGroup | None) -> set[int]:
        if not message.round:
            return set()
        if group is None:
            forming = self.forming.get((message.members, message.name))
            return forming.waiting if forming is not None else set()
        current = group.rounds.get(message.round)
        return current.waiting if current is not None else set()

    def _fail(self, group: OpenGroup, error: SapwoodError) -> Effects:
        where = group.where
        ended = gmsg.GroupEnded(group.number, where.members, where.name, error.to_record())
        return self._end(ended)

    def _over(self, message: gmsg.GroupEnded) -> Effects:
        """End a group here and below."""
        if message.group == gmsg.NO_GROUP:
            return self._entrance.over(message)
        group = self.open.pop(message.group, None)
        if group is None:
            return []
        where = group.where
        kept = [payload for payloads in group.held.values() for payload in payloads]
        effects: Effects = [gev.Discarded(payload) for payload in kept]
        links = self._near.links_to(tuple(where.below))
        if links:
            effects.append(ev.Transmit(links, message))
        if where.here:
            effects.append(gev.GroupBroken(message.group, where.members, where.name, message.error))
        return effects

    def forget(self, _now: float, _event: gev.ForgetGroups) -> Effects:
        """This place ends: give up what it keeps for others."""
        groups = list(self.open.values())
        self.open.clear()
        kept = [held for group in groups for payloads in group.held.values() for held in payloads]
        return [gev.Discarded(payload) for payload in kept]

    def lost(self, ranks: Collection[int], reason: str) -> Effects:
        """End the groups that have members at places that are gone."""
        effects: Effects = []
        for number, where in self._all():
            gone = from_ranges(where.members).intersection(ranks)
            if gone:
                error = AgentLostError(f"{fold('agent', gone)} of the group is gone: {reason}")
                ended = gmsg.GroupEnded(number, where.members, where.name, error.to_record())
                effects += self._end(ended)
        return effects

    def parent_lost(self, reason: str) -> Effects:
        """End the groups that are put together above this place."""
        effects: Effects = []
        for number, where in self._all():
            if not where.turn:
                error = AgentLostError(f"the way to other members of the group is gone: {reason}")
                ended = gmsg.GroupEnded(number, where.members, where.name, error.to_record())
                effects += self._over(ended)
        return effects

    def _all(self) -> list[tuple[gmsg.GroupNumber, Membership]]:
        formed = [(number, group.where) for number, group in self.open.items()]
        return formed + [(gmsg.NO_GROUP, forming.where) for forming in self.forming.values()]


def _with_missing(
    message: gmsg.GroupEnded, where: Membership, waiting: Collection[int]
) -> gmsg.GroupEnded:
    """Note who has not called, as far as this place knows."""
    if not waiting:
        return message
    own = [(rank, rank + 1) for rank in waiting if rank not in where.below]
    below = [one for child in waiting for one in where.below.get(child, ())]
    missing = to_ranges(from_ranges(message.missing) | from_ranges(own + below))
    return msgspec.structs.replace(message, missing=missing)


def _naming_missing(message: gmsg.GroupEnded) -> gmsg.GroupEnded:
    """Say in the error who has not called."""
    if not message.missing:
        return message
    missing = from_ranges(message.missing)
    who = fold("member", missing)
    # A junction sends what is below it when all of it is there.
    text = f"{who} has not come" if len(missing) == 1 else f"not all of {who} have come"
    error = msgspec.structs.replace(message.error, what=f"{message.error.what}: {text}")
    return msgspec.structs.replace(message, error=error)
