"""The groups of one place: what it does with calls, results and failures. No I/O."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable
from typing import Any

import msgspec

from sapwood.comm import events as ev
from sapwood.comm.groups import events as gev
from sapwood.comm.groups.delivery import deliver
from sapwood.comm.groups.entrance import Entrance
from sapwood.comm.groups.group import Formation, Membership, OpenGroup
from sapwood.comm.groups.regrouping import Regrouping
from sapwood.comm.groups.round import SETTLING, Round
from sapwood.comm.link import Link
from sapwood.comm.messages import groups as gmsg
from sapwood.comm.payload import Payload
from sapwood.comm.peers import Effects, PeerTable
from sapwood.comm.streams.wave import NewGathering
from sapwood.core.errors import AgentLostError, GroupError, ProtocolError, SapwoodError
from sapwood.core.rankset import contains, fold, from_ranges, to_ranges

MAX_ROUND = sys.maxsize
"""After every round."""


class Groups:
    """The groups of one place.

    Args:
        near: The neighbours.
        gather: Makes what puts values together.
        is_agent: Whether this place is a leaf.
    """

    def __init__(self, near: PeerTable, gather: NewGathering, *, is_agent: bool) -> None:
        self.open: dict[gmsg.GroupNumber, OpenGroup] = {}
        self._near = near
        self._gather = gather
        entrance = self._entrance = Entrance(near, self._begin, self.open, is_agent=is_agent)
        again = self._regrouping = Regrouping(near, self.open, entrance, gather, self._give_again)
        self.forming = entrance.forming
        self.on_event: dict[type[ev.Event], Callable[[float, Any], Effects]] = {
            gev.EnterGroup: entrance.enter,
            gev.CallGroup: self.call,
            gev.BreakGroup: self.break_group,
            gev.MissResult: self.miss,
            gev.ForgetGroups: self.forget,
        }
        self.on_message: dict[type[Any], Callable[[Link, Any, Payload | None], Effects]] = {
            gmsg.Enter: entrance.on_enter,
            gmsg.Entered: entrance.on_entered,
            gmsg.GroupPart: self.on_part,
            gmsg.GroupResult: self.on_result,
            gmsg.GroupEnded: self.on_ended,
            gmsg.Withdrawn: entrance.on_withdrawn,
            gmsg.Disturbed: again.on_disturbed,
            gmsg.Regroup: again.on_regroup,
        }
        self.places_left = again.places_left
        self.places_moved = again.places_moved
        self.places_came = again.places_came
        self.parent_changed = again.parent_changed

    def _begin(self, number: gmsg.GroupNumber, where: Membership) -> None:
        self.open[number] = OpenGroup(number, where, self._gather)

    # --- rounds --------------------------------------------------------------------------------

    def call(self, _now: float, event: gev.CallGroup) -> Effects:
        """Member: take part in a round."""
        group = self.open.get(event.group)
        if group is None:
            return [gev.Discarded(event.payload)] if event.payload is not None else []
        rank = self._near.rank
        group.hold(event.round, event.payload)
        part = gmsg.GroupPart(
            event.group,
            event.round,
            event.call,
            ((rank, rank + 1),),
            event.taken,
            event.body,
            group.attempt,
        )
        group.calls[event.round] = (part, event.payload)
        return [] if group.disturbed else self._add(group, rank, part, event.payload)

    def _give_again(self, group: OpenGroup) -> Effects:
        """Member: give to the present attempt what is not confirmed."""
        effects: Effects = []
        for part, payload in group.again():
            if group.number in self.open:  # no mistake has ended it
                effects += self._add(group, self._near.rank, part, payload)
        return effects

    def on_part(self, link: Link, message: gmsg.GroupPart, payload: Payload | None) -> Effects:
        """What the members below a child give to a round."""
        group = self.open.get(message.group)
        if group is None:
            error = self._regrouping.why_ended(message.group)
            if error is None:
                return []  # forgotten when no member was below: the next attempt comes by here
            return [ev.Transmit((link.number,), gmsg.GroupEnded(message.group, (), "", error))]
        if message.attempt != group.attempt or group.disturbed:
            return []
        if group.where.below.get(link.rank) != message.ranks:
            if not self._near.all_below(link, message.ranks):
                raise ProtocolError(f"rank {link.rank} gives what is not its to give to a group")
            return self._regrouping.disturb(group)  # members have moved since the attempt began
        if message.round <= group.confirmed:
            return []
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
            confirmed = current.number if current.call == gmsg.LEAVE else current.taken
            return self._finish(group, current.number, confirmed, body, payload)
        part = gmsg.GroupPart(
            group.number,
            current.number,
            current.call,
            current.ranks,
            current.taken,
            body,
            group.attempt,
            current.settled,
        )
        return self._near.to_parent(part, payload)

    def on_result(self, link: Link, message: gmsg.GroupResult, payload: Payload | None) -> Effects:
        """The result of a round."""
        self._near.must_be_parent(link)
        group = self.open.get(message.group)
        if group is None or message.attempt != group.attempt or group.disturbed:
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
        result = gmsg.GroupResult(group.number, number, confirmed, body, group.attempt)
        effects = deliver(self._near, group.where, call, result, payload)
        if group.where.here:
            if number in group.results:  # of an earlier attempt, which others had not got
                effects = [one for one in effects if not isinstance(one, gev.GroupFinished)]
            else:
                kept = call.operation in SETTLING or (payload is not None and payload.ref)
                group.results[number] = (body, payload) if kept else (b"", None)
        if call == gmsg.LEAVE:
            del self.open[group.number]
            self._regrouping.ended(group.number, GroupError("all have left the group").to_record())
        return effects + [gev.Discarded(kept) for kept in group.release(confirmed)]

    def miss(self, _now: float, event: gev.MissResult) -> Effects:
        """Member: the memory of a result is gone, and with it the place that made it."""
        group = self.open.get(event.group)
        if group is None:
            return []
        group.results.pop(event.round, None)
        return self._regrouping.disturb(group)

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
        forming: Formation | None = None
        if group is not None:
            where = group.where
        elif message.group != gmsg.NO_GROUP:
            return []
        else:
            where = self._entrance.membership(message.members, message.name)
            forming = self.forming.get((message.members, message.name))
        waiting = self._waiting(message, group, forming, where).difference((source,))  # it said
        message = _with_missing(message, where, waiting)
        if where.turn:
            return self._over(_naming_missing(message))
        for one in (group, forming):
            if one is not None:
                one.wish = message  # for the next parent, if this one goes before it is over
        return self._near.to_parent(message)

    def _waiting(
        self,
        message: gmsg.GroupEnded,
        group: OpenGroup | None,
        forming: Formation | None,
        where: Membership,
    ) -> set[int]:
        if not message.round:
            return set()
        if forming is not None:
            return forming.waiting(where)
        current = group.rounds.get(message.round) if group is not None else None
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
        self._regrouping.ended(message.group, message.error)
        if group is None:
            # Forgotten when no member was below; those that are by now may wait for it.
            if not self._entrance.are_places(message.members):
                return []
            below = self._entrance.membership(message.members, message.name).below
            links = self._near.links_to(tuple(below))
            return [ev.Transmit(links, message)] if links else []
        where = self._entrance.membership(*group.where.key)
        effects: Effects = [gev.Discarded(payload) for payload in group.release(MAX_ROUND)]
        links = self._near.links_to({*where.below, *group.where.below})
        if links:
            effects.append(ev.Transmit(links, message))
        if where.here:
            effects.append(gev.GroupBroken(message.group, *where.key, message.error))
        return effects

    def forget(self, _now: float, _event: gev.ForgetGroups) -> Effects:
        """This place ends: give up what it keeps for others."""
        groups = list(self.open.values())
        self.open.clear()
        return [gev.Discarded(held) for group in groups for held in group.release(MAX_ROUND)]

    def gone(self, places: Iterable[tuple[int, int]], reason: str) -> Effects:
        """Turn: end the groups of members whose process, given with its incarnation, is gone.

        Elsewhere it is forgotten that they had entered.
        """
        if not self.open and not self.forming:
            return []
        newest = self._near.router.newest
        lost = {rank for rank, incarnation in places if newest(rank)[0] <= incarnation}
        lost.discard(self._near.rank)  # one that was here before this process
        formed = [(number, group.where) for number, group in self.open.items()]
        forming = [(gmsg.NO_GROUP, forming.where) for forming in self.forming.values()]
        effects: Effects = []
        for number, where in formed + forming:
            members = [rank for rank in lost if contains(where.members, rank)]
            if members and where.turn:
                error = AgentLostError(f"{fold('agent', members)} of the group is gone: {reason}")
                effects += self._over(gmsg.GroupEnded(number, *where.key, error.to_record()))
        return effects + self._entrance.places_left(lost)


def _with_missing(
    message: gmsg.GroupEnded, where: Membership, waiting: Collection[int]
) -> gmsg.GroupEnded:
    """Note who has not called, as far as this place knows."""
    missing = from_ranges(message.missing).union(*map(where.ranks_of, waiting))
    if where.turn and message.round:
        missing |= where.adrift()
    if not missing:
        return message
    return msgspec.structs.replace(message, missing=to_ranges(missing))


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
