"""The groups of one place: what it does with calls, results and failures. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import msgspec

from sapwood.comm import events as ev
from sapwood.comm import messages as msg
from sapwood.comm.groups import events as gev
from sapwood.comm.groups import portions
from sapwood.comm.groups.group import Formation, OpenGroup, Key, Membership
from sapwood.comm.groups.round import LEAVE, TO_ROOT, Round
from sapwood.comm.link import Link
from sapwood.comm.neighbourhood import Effects, Neighbourhood
from sapwood.comm.payload import Payload
from sapwood.comm.streams.wave import NewGathering
from sapwood.core.errors import AgentLostError, GroupError, ProtocolError, SapwoodError
from sapwood.core.rankset import Ranges, contains, count, fold, from_ranges, to_ranges

MAX_GROUPS = 4096
"""Groups of one place that are open, and that are entered, at a time."""


class Groups:
    """The groups of one place.

    Args:
        near: The neighbours.
        gather: Makes what puts values together.
        is_agent: Whether this place is a leaf.
    """

    def __init__(self, near: Neighbourhood, gather: NewGathering, *, is_agent: bool) -> None:
        self.open: dict[msg.GroupNumber, OpenGroup] = {}
        self.forming: dict[Key, Formation] = {}
        self._near = near
        self._gather = gather
        self._is_agent = is_agent
        self._count = 0
        self.on_event: dict[type[ev.Event], Callable[[float, Any], Effects]] = {
            gev.EnterGroup: self.enter,
            gev.CallGroup: self.call,
            gev.BreakGroup: self.break_group,
        }
        self.on_message: dict[type[Any], Callable[[Link, Any, Payload | None], Effects]] = {
            msg.Enter: self.on_enter,
            msg.Entered: self.on_entered,
            msg.GroupPart: self.on_part,
            msg.GroupResult: self.on_result,
            msg.GroupEnded: self.on_ended,
        }

    # --- entering ------------------------------------------------------------------------------

    def enter(self, _now: float, event: gev.EnterGroup) -> Effects:
        """Member: enter a group."""
        return self._entered(self._near.rank, event.members, event.name)

    def on_enter(self, link: Link, message: msg.Enter, _payload: Any) -> Effects:
        """All members below a child have entered a group."""
        if not self._are_places(message.members):
            raise ProtocolError(f"rank {link.rank} enters a group of places that there are not")
        return self._entered(link.rank, message.members, message.name)

    def _entered(self, source: int, members: Ranges, name: str) -> Effects:
        key = (members, name)
        forming = self.forming.get(key)
        if forming is None:
            if len(self.forming) >= MAX_GROUPS or len(self.open) >= MAX_GROUPS:
                error = GroupError(f"more than {MAX_GROUPS} groups are open or entered")
                return self._refuse(key, error)
            forming = Formation(self._membership(members, name), self._near.rank)
            self.forming[key] = forming
        where = forming.where
        if source not in where.sources(self._near.rank):
            raise ProtocolError(f"rank {source} enters a group without members there")
        if source not in forming.waiting:
            return []  # they gave up, which is still on its way here, and entered again
        forming.waiting.discard(source)
        if forming.waiting:
            return []
        if not where.turn:
            return self._near.to_parent(msg.Enter(members, name))
        self._count += 1
        return self._begin(key, (self._near.rank, self._near.identity.incarnation, self._count))

    def on_entered(self, link: Link, message: msg.Entered, _payload: Any) -> Effects:
        """All members have entered a group."""
        self._near.must_be_parent(link)
        key = (message.members, message.name)
        forming = self.forming.get(key)
        if forming is None or forming.waiting:
            # Those who had entered from here have given up meanwhile.
            error = GroupError("a member gave up before all had entered the group").to_record()
            return self._near.to_parent(msg.GroupEnded(message.group, *key, error))
        return self._begin(key, message.group)

    def _begin(self, key: Key, number: msg.GroupNumber) -> Effects:
        where = self.forming.pop(key).where
        self.open[number] = OpenGroup(number, where, self._near.rank, self._gather)
        effects: Effects = []
        links = self._near.links_to(tuple(where.below))
        if links:
            effects.append(ev.Transmit(links, msg.Entered(*key, number)))
        if where.here:
            effects.append(gev.GroupEntered(*key, number))
        return effects

    def _membership(self, members: Ranges, name: str) -> Membership:
        router, rank = self._near.router, self._near.rank
        below = {}
        for child in router.children:
            there = [one for one in router.covered(child) if contains(members, one)]
            if there:
                below[child] = to_ranges(there)
        here = contains(members, rank)
        all_here = sum(map(count, below.values())) + here == count(members)
        # An agent has nothing to put values together with: its parent is the turn of it alone.
        return Membership(members, name, below, here=here, turn=all_here and not self._is_agent)

    # --- rounds --------------------------------------------------------------------------------

    def call(self, _now: float, event: gev.CallGroup) -> Effects:
        """Member: take part in a round."""
        group = self.open.get(event.group)
        if group is None:
            return [gev.Discarded(event.payload)] if event.payload is not None else []
        rank = self._near.rank
        group.hold(event.round, event.payload)
        ranks = ((rank, rank + 1),)
        part = msg.GroupPart(event.group, event.round, event.call, ranks, event.taken, event.body)
        return self._add(group, rank, part, event.payload)

    def on_part(self, link: Link, message: msg.GroupPart, payload: Payload | None) -> Effects:
        """What the members below a child give to a round."""
        group = self.open.get(message.group)
        if group is None:
            error = GroupError("the group is gone").to_record()
            ended = msg.GroupEnded(message.group, (), "", error)
            return [ev.Transmit((link.number,), ended)]
        expected = group.where.below.get(link.rank)
        if expected is None or expected != message.ranks:
            raise ProtocolError(f"rank {link.rank} gives what is not its to give to a group")
        return self._add(group, link.rank, message, payload)

    def _add(
        self, group: OpenGroup, source: int, part: msg.GroupPart, payload: Payload | None
    ) -> Effects:
        try:
            current = group.round(part.round, part.call)
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
        part = msg.GroupPart(
            group.number, current.number, current.call, current.ranks, current.taken, body
        )
        return self._near.to_parent(part, payload)

    def on_result(self, link: Link, message: msg.GroupResult, payload: Payload | None) -> Effects:
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
        result = msg.GroupResult(group.number, number, confirmed, body)
        if call.operation == "scatter":
            effects = self._scatter(group, result, payload)
        elif call.operation in TO_ROOT:
            effects = self._to_root(group, result, payload, call.root)
        else:
            effects = []
            links = self._near.links_to(tuple(group.where.below))
            if links:
                effects.append(ev.Transmit(links, result, payload))
            if group.where.here:
                effects.append(gev.GroupFinished(group.number, number, body, payload))
        if call == LEAVE:
            del self.open[group.number]
        return effects + [gev.Discarded(kept) for kept in group.release(confirmed)]

    def _to_root(
        self, group: OpenGroup, result: msg.GroupResult, payload: Payload | None, root: int
    ) -> Effects:
        empty = msg.GroupResult(result.group, result.round, result.confirmed, b"")
        below = group.where.below
        wanted = tuple(child for child, members in below.items() if contains(members, root))
        others = tuple(child for child in below if child not in wanted)
        effects: Effects = []
        for children, message in ((wanted, result), (others, empty)):
            links = self._near.links_to(children)
            if links:
                arrays = payload if message is result else None
                effects.append(ev.Transmit(links, message, arrays))
        if group.where.here:
            mine = self._near.rank == root
            body, arrays = (result.body, payload) if mine else (b"", None)
            effects.append(gev.GroupFinished(group.number, result.round, body, arrays))
        return effects

    def _scatter(self, group: OpenGroup, result: msg.GroupResult, payload: Payload | None) -> Effects:
        rows = portions.read(result.body)
        effects: Effects = []
        for child, members in group.where.below.items():
            links = self._near.links_to((child,))
            if links:
                body, arrays = portions.picked(rows, payload, members)
                message = msg.GroupResult(result.group, result.round, result.confirmed, body)
                effects.append(ev.Transmit(links, message, arrays))
        if group.where.here:
            body, arrays = portions.own(rows, payload, self._near.rank)
            effects.append(gev.GroupFinished(group.number, result.round, body, arrays))
        return effects

    # --- failures ------------------------------------------------------------------------------

    def break_group(self, _now: float, event: gev.BreakGroup) -> Effects:
        """Member: end a group, or the wait for one, with an error."""
        ended = msg.GroupEnded(event.group, event.members, event.name, event.error, event.round)
        return self._end(ended)

    def on_ended(self, link: Link, message: msg.GroupEnded, _payload: Any) -> Effects:
        """A group is to end (from below), or has ended (from above)."""
        if link.rank == self._near.router.parent:
            return self._over(message)
        if message.group == msg.NO_GROUP and not self._are_places(message.members):
            raise ProtocolError(f"rank {link.rank} ends a group of places that there are not")
        return self._end(message)

    def _end(self, message: msg.GroupEnded) -> Effects:
        """Pass the wish to end a group on to the turn; there, end it."""
        group = self.open.get(message.group)
        if message.group != msg.NO_GROUP and group is None:
            return []
        where = (
            group.where if group is not None else self._membership(message.members, message.name)
        )
        message = _with_missing(message, where, self._waiting(message, group))
        if not where.turn:
            return self._near.to_parent(message)
        return self._over(_naming_missing(message))

    def _waiting(self, message: msg.GroupEnded, group: OpenGroup | None) -> Collection[int]:
        if not message.round:
            return ()
        if group is None:
            forming = self.forming.get((message.members, message.name))
            return forming.waiting if forming is not None else ()
        current = group.rounds.get(message.round)
        return current.waiting if current is not None else ()

    def _fail(self, group: OpenGroup, error: SapwoodError) -> Effects:
        where = group.where
        ended = msg.GroupEnded(group.number, where.members, where.name, error.to_record())
        return self._end(ended)

    def _over(self, message: msg.GroupEnded) -> Effects:
        """End a group here and below."""
        effects: Effects = []
        if message.group == msg.NO_GROUP:
            forming = self.forming.pop((message.members, message.name), None)
            where = (
                forming.where
                if forming is not None
                else self._membership(message.members, message.name)
            )
            mine = forming is not None and where.here
        else:
            group = self.open.pop(message.group, None)
            if group is None:
                return []
            where = group.where
            mine = where.here
            kept = [payload for payloads in group.held.values() for payload in payloads]
            effects += [gev.Discarded(payload) for payload in kept]
        links = self._near.links_to(tuple(where.below))
        if links:
            effects.append(ev.Transmit(links, message))
        if mine:
            effects.append(gev.GroupBroken(message.group, where.members, where.name, message.error))
        return effects

    def lost(self, ranks: Collection[int], reason: str) -> Effects:
        """End the groups that have members at places that are gone."""
        effects: Effects = []
        for number, where in self._all():
            gone = from_ranges(where.members).intersection(ranks)
            if gone:
                error = AgentLostError(f"{fold('agent', gone)} of the group is gone: {reason}")
                ended = msg.GroupEnded(number, where.members, where.name, error.to_record())
                effects += self._end(ended)
        return effects

    def parent_lost(self, reason: str) -> Effects:
        """End the groups that are put together above this place."""
        effects: Effects = []
        for number, where in self._all():
            if not where.turn:
                error = AgentLostError(f"the way to other members of the group is gone: {reason}")
                ended = msg.GroupEnded(number, where.members, where.name, error.to_record())
                effects += self._over(ended)
        return effects

    def _all(self) -> list[tuple[msg.GroupNumber, Membership]]:
        formed = [(number, group.where) for number, group in self.open.items()]
        return formed + [(msg.NO_GROUP, forming.where) for forming in self.forming.values()]

    def _refuse(self, key: Key, error: SapwoodError) -> Effects:
        return self._end(msg.GroupEnded(msg.NO_GROUP, *key, error.to_record()))

    def _are_places(self, members: Ranges) -> bool:
        size = self._near.router.size
        # The bounds come from a peer: they are looked at before they are counted out.
        return bool(members) and all(0 <= start < stop <= size for start, stop in members)


def _with_missing(
    message: msg.GroupEnded, where: Membership, waiting: Collection[int]
) -> msg.GroupEnded:
    """Note who has not called, as far as this place knows."""
    if not waiting:
        return message
    own = [(rank, rank + 1) for rank in waiting if rank not in where.below]
    below = [one for child in waiting for one in where.below.get(child, ())]
    missing = to_ranges(from_ranges(message.missing) | from_ranges(own + below))
    return msgspec.structs.replace(message, missing=missing)


def _naming_missing(message: msg.GroupEnded) -> msg.GroupEnded:
    """Say in the error who has not called."""
    if not message.missing:
        return message
    missing = from_ranges(message.missing)
    who = fold("member", missing)
    # A junction sends what is below it when all of it is there.
    text = f"{who} has not come" if len(missing) == 1 else f"not all of {who} have come"
    error = msgspec.structs.replace(message.error, what=f"{message.error.what}: {text}")
    return msgspec.structs.replace(message, error=error)
