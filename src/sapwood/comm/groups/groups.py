"""The group protocol of one place: collectives among any places of the tree. No I/O.

A group is a communicator in MPI's sense: its members call *collectives* (barrier, broadcast,
scatter, gather, reduce, allgather, allreduce), each member the same ones in the same order.

* :class:`JoiningGroups`: members enter a group; the *coordinator*, the lowest place that has all of
  them at or below it, gives the group a number.
* :class:`CollectiveRound`, :class:`OpenGroup`: one collective, and a group with its collectives.
* :class:`GroupRecovery`: a group continues when the tree changes.
* :class:`Groups`: what members call, what neighbours send, failures.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sized
from typing import Any

import msgspec

from sapwood.comm import events as ev
from sapwood.comm import plain
from sapwood.comm.groups import events as gev
from sapwood.comm.link import Link
from sapwood.comm.messages import groups as gmsg
from sapwood.comm.messages.groups import (
    FIELD,
    LEAVE,
    LEFT,
    MAX_ROUNDS,
    ONCE,
    GroupCall,
    GroupEnded,
    GroupNumber,
    GroupPart,
    Key,
)
from sapwood.comm.payload import Payload
from sapwood.comm.peers import Effects, PeerTable
from sapwood.comm.routing import Router
from sapwood.comm.streams.wave import NewGathering, Summary
from sapwood.core import typed
from sapwood.core.errors import AgentLostError, ErrorRecord, GroupError, ProtocolError, SapwoodError
from sapwood.core.rankset import Ranges, contains, count, fold, from_ranges, joined, to_ranges
from sapwood.core.topology import ROOT

# === the values of a scatter ===================================================================

Portion = tuple[bytes, Payload | None]
"""Body and payload of one value of a scatter."""

ScatterRow = tuple[int, bytes, int, int]
"""What a scatter sends to one member: its rank, a body, and where its bytes are in the payload.

The body of a scatter is a list of rows, in a form that needs no numpy. Places on the way down pick
rows and pass the part of the payload that belongs to them on as a reference.
"""


def rows_for(rows: list[ScatterRow], payload: Payload | None, ranks: Ranges) -> Portion:
    """Return the rows of some members, and what of the payload belongs to them."""
    mine = [row for row in rows if contains(ranks, row[0])]
    first = min((row[2] for row in mine), default=0)
    last = max((row[3] for row in mine), default=0)
    body = plain.encode(
        [(rank, one, start - first, stop - first) for rank, one, start, stop in mine]
    )
    return body, payload.part(first, last) if payload is not None else None


def row_of(rows: list[ScatterRow], payload: Payload | None, rank: int) -> Portion:
    """Return the value of one member.

    Raises:
        ProtocolError: There is none.
    """
    for row in rows:
        if row[0] == rank:
            part = payload.part(row[2], row[3]) if payload is not None else None
            return row[1], part
    raise ProtocolError(f"nothing was scattered to rank {rank}")


def read_rows(body: bytes) -> list[ScatterRow]:
    """Return the rows.

    Raises:
        ProtocolError: The bytes are not rows.
    """
    rows: Any = plain.decode(body)
    try:
        return typed.convert(rows, list[ScatterRow])
    except msgspec.ValidationError as error:
        raise ProtocolError(f"what a scatter sent is malformed: {error}") from error


# === one collective ============================================================================

GATHERED = {"gather": "gather", "allgather": "gather"}
"""Reductions of the operations that always have the same one."""

FROM_ROOT = {"broadcast", "scatter"}
"""Operations in which one member gives the value."""

TO_SERVER = {"gather", "reduce"}
"""Operations in which one member gets the result."""

SETTLING = {"allreduce"}
"""Operations whose result may differ in the last bits when it is made again: it is not."""

OPERATIONS = {"barrier", "allgather", "allreduce", LEAVE.operation} | FROM_ROOT | TO_SERVER


class CollectiveRound:
    """One collective of a group: it waits for the calls of members, or for its result.

    Args:
        number: Counts the rounds of its group from 1.
        call: The operation.
        sources: Children with members at or below them, and this place if it is a member.
        gather: Makes what puts values together.
        coordinator: Whether the result is made here.

    Attributes:
        settled: Whether the result is known, from an earlier attempt.
    """

    __slots__ = (
        "_gathering",
        "_given",
        "_ranks",
        "body",
        "call",
        "number",
        "payload",
        "settled",
        "taken",
        "waiting",
    )

    def __init__(
        self,
        number: int,
        call: GroupCall,
        sources: Iterable[int],
        gather: NewGathering,
        *,
        coordinator: bool,
    ) -> None:
        self.number = number
        self.call = call
        self.waiting = set(sources)
        self.taken = number  # no member can have read this round
        self.body = b""
        self.payload: Payload | None = None
        self._ranks: list[tuple[int, int]] = []
        self._given = False
        self.settled = False
        reduce = GATHERED.get(call.operation, call.reduce)
        # Of a single source, what it sends is passed on as it is.
        several = coordinator or len(self.waiting) > 1
        self._gathering: Summary | None = gather({FIELD: reduce}) if reduce and several else None

    @property
    def ranks(self) -> Ranges:
        """Members that have called."""
        return joined(self._ranks)

    def add(self, source: int, part: GroupPart, payload: Payload | None) -> bool:
        """Take in what a source gives; return whether it was the last one that was missing.

        Raises:
            GroupError: It called something else.
            SapwoodError: What it gives does not fit.
        """
        if part.call != self.call:
            raise self._mismatch(part)
        ranks = part.ranks
        if part.settled:
            self.settled = True
            self.body, self.payload = part.body, payload
        elif self.settled:
            pass  # the result is known
        elif self._gathering is not None and part.body:
            self._given = True
            self._gathering.add(part.body, payload, ranks[0][0], float(count(ranks)))
        elif self._gathering is not None:
            pass  # these members take part without giving a value
        elif self.call.operation not in FROM_ROOT or contains(ranks, self.call.root):
            self.body, self.payload = part.body, payload
        self.waiting.discard(source)
        self._ranks += ranks
        self.taken = min(self.taken, part.taken)
        return not self.waiting

    def _mismatch(self, part: GroupPart) -> GroupError:
        theirs, ours = (
            fold("member", from_ranges(part.ranks)),
            fold("member", from_ranges(self._ranks)),
        )
        if LEAVE in {part.call, self.call}:
            left, other = (theirs, self.call) if part.call == LEAVE else (ours, part.call)
            return GroupError(
                f"{left} left the group before round {self.number}, in which others call {other}",
                hint="all members must call the same operations in the same order",
                details={LEFT: left},
            )
        return GroupError(
            f"{theirs} called {part.call} in round {self.number}, where {ours} called {self.call}",
            hint="all members must call the same operations in the same order",
        )

    def partial(self) -> tuple[bytes, Payload | None, bool]:
        """Return what is passed to the parent, and whether it was computed here.

        Raises:
            SapwoodError: It cannot be made.
        """
        if self._gathering is not None and self._given and not self.settled:
            return *self._gathering.partial(), True
        return self.body, self.payload, False

    def outcome(self) -> tuple[bytes, Payload | None, bool]:
        """Return the result, at the coordinator, and whether it was made here.

        Raises:
            SapwoodError: What the members gave does not fit together.
        """
        if self._gathering is not None and self._given and not self.settled:
            return *self._gathering.outcome(), True
        return self.body, self.payload, False


# === a group at one place ======================================================================

MAX_UNCONFIRMED = 64 * MAX_ROUNDS
"""Rounds of one group that a place keeps until all members have read their results."""


class MemberMap:
    """Where the members of a group are attached, seen from one place.

    Args:
        key: The members, and the name.
        router: Knows who is attached where.
        may_coordinate: Whether values can be put together for good here: not at an agent.

    Attributes:
        members: Agents, and rank 0 for the client.
        name: Tells groups of the same members apart.
        below: Children with members at or below them, with these members.
        here: Whether this place is a member.
        attached: Number of members here and below.
        coordinator: Whether results are made here: all members are here or below, or it is the
            root.
    """

    __slots__ = ("_rank", "attached", "below", "coordinator", "here", "members", "name")

    def __init__(self, key: Key, router: Router, *, may_coordinate: bool) -> None:
        self.members, self.name = key
        there: dict[int, list[int]] = {}
        for one in from_ranges(self.members):
            hop = router.next_hop(one)
            if hop != router.parent and one != router.rank:
                there.setdefault(hop, []).append(one)
        self._rank = router.rank
        self.below = {child: to_ranges(those) for child, those in sorted(there.items())}
        self.here = contains(self.members, router.rank)
        self.attached = sum(map(count, self.below.values())) + self.here
        self.coordinator = may_coordinate and (self.is_whole or router.rank == ROOT)

    @property
    def is_whole(self) -> bool:
        """Whether all members are here or below."""
        return self.attached == count(self.members)

    @property
    def key(self) -> Key:
        """Members and name."""
        return self.members, self.name

    def sources(self) -> tuple[int, ...]:
        """The children, and this place's own rank if it is a member."""
        return (*self.below, self._rank) if self.here else tuple(self.below)

    def disconnected(self) -> set[int]:
        """Return the members that are neither here nor below."""
        found = from_ranges(self.members)
        for one in self.sources():
            found -= self.ranks_of(one)
        return found

    def ranks_of(self, source: int) -> set[int]:
        """Return the members that a source speaks for."""
        return {source} if source == self._rank else from_ranges(self.below.get(source, ()))


class FormingGroup:
    """A group that waits for members to enter.

    Attributes:
        where: Where the members are.
        version: Of the router, when that was found out.
        entered: Members that have entered, as far as is known here.
        told: Members of which the present parent was notified.
        tellings: How often a parent was notified.
        wish: The requested end of the wait, until it is over.
    """

    __slots__ = ("entered", "tellings", "told", "version", "where", "wish")

    def __init__(self, where: MemberMap, version: int) -> None:
        self.where = where
        self.version = version
        self.entered: set[int] = set()
        self.told: set[int] = set()
        self.tellings = 0
        self.wish: GroupEnded | None = None

    def waiting(self, where: MemberMap) -> set[int]:
        """Return the sources of which not all have entered."""
        return {one for one in where.sources() if not where.ranks_of(one) <= self.entered}


class OpenGroup:
    """A group that all members have entered.

    Args:
        number: Its number.
        where: Where the members are.
        gather: Makes what puts values together.

    Attributes:
        attempt: Counts how often the group was put together.
        disturbed: Whether the tree has changed and the next attempt has not begun.
        told: Whether the present parent was notified.
        wish: The requested end of the group, until it is over.
        rounds: Rounds that wait for calls or for their results.
        calls: What this member gave to rounds that are not confirmed.
        results: What this member got from rounds that are not confirmed.
        held: Payloads of this place that others may still read, by the round they belong to.
        confirmed: The last round whose result all members have read, as far as is known.
    """

    __slots__ = (
        "_gather",
        "attempt",
        "calls",
        "confirmed",
        "disturbed",
        "held",
        "number",
        "results",
        "rounds",
        "told",
        "where",
        "wish",
    )

    def __init__(self, number: GroupNumber, where: MemberMap, gather: NewGathering) -> None:
        self.number = number
        self.where = where
        self.attempt = 0
        self.disturbed = False
        self.told = False
        self.wish: GroupEnded | None = None
        self.rounds: dict[int, CollectiveRound] = {}
        self.calls: dict[int, tuple[GroupPart, Payload | None]] = {}
        self.results: dict[int, tuple[bytes, Payload | None]] = {}
        self.held: dict[int, list[Payload]] = {}
        self.confirmed = 0
        self._gather = gather

    def round(self, number: int, call: GroupCall) -> CollectiveRound:
        """Return a round; create it at its first call.

        Raises:
            GroupError: Too many are under way.
            SapwoodError: The reduction is unknown.
        """
        found = self.rounds.get(number)
        if found is not None:
            return found
        if not self.confirmed < number <= self.confirmed + MAX_UNCONFIRMED:
            raise GroupError(
                f"round {number} of a group was called, and not all have read round "
                f"{self.confirmed + 1}",
                hint=f"read results: at most {MAX_UNCONFIRMED} rounds may wait for that",
            )
        sources = self.where.sources()
        made = CollectiveRound(
            number, call, sources, self._gather, coordinator=self.where.coordinator
        )
        self.rounds[number] = made
        return made

    def again(self) -> list[tuple[GroupPart, Payload | None]]:
        """Return what this member gives to the present attempt: all that is not confirmed."""
        return [self._given(number) for number in sorted(self.calls)]

    def _given(self, number: int) -> tuple[GroupPart, Payload | None]:
        part, payload = self.calls[number]
        result = self.results.get(number)
        if result is None or part.call.operation not in SETTLING:
            return msgspec.structs.replace(part, attempt=self.attempt), payload
        body, payload = result  # as others may have it, too: they must all get the same
        part = msgspec.structs.replace(part, attempt=self.attempt, body=body, settled=True)
        return part, payload

    def hold(self, number: int, payload: Payload | None) -> None:
        """Keep memory of this place until all members have read the result of a round."""
        if payload is not None:
            self.held.setdefault(number, []).append(payload)

    def release(self, confirmed: int) -> list[Payload]:
        """Return the payloads that are no longer needed, and forget them and their rounds."""
        self.confirmed = max(self.confirmed, confirmed)
        freed = [one for number, held in self.held.items() if number <= confirmed for one in held]
        for number, (_, payload) in self.results.items():
            if number <= confirmed and payload is not None and payload.ref is not None:
                freed.append(payload)
        for kept in (self.held, self.calls, self.results, self.rounds):
            for number in [number for number in kept if number <= confirmed]:
                del kept[number]
        return freed

    def __repr__(self) -> str:
        state = "disturbed" if self.disturbed else f"attempt {self.attempt}"
        return f"OpenGroup({self.number}, {state}, {len(self.rounds)} rounds under way)"


# === members enter a group =====================================================================

MAX_GROUPS = 4096
"""Groups of one place that wait for members, and that are open, at a time."""

MAX_REMEMBERED = 1024
"""Ends of such groups that a place remembers."""


class JoiningGroups:
    """Before a group has a number: members of this place and below join it, and may give up.

    Each place knows who has entered at or below it. It tells its parent when all members that are
    attached there have. A new parent is notified again, so no member that moves is forgotten.

    Args:
        near: The neighbours.
        begin: Told the number of a group that all members have entered, and where they are.
        open_groups: The groups that all members have entered.
        is_agent: Whether this place is a leaf.
    """

    def __init__(
        self,
        near: PeerTable,
        begin: Callable[[GroupNumber, MemberMap], None],
        open_groups: Sized,
        *,
        is_agent: bool,
    ) -> None:
        self.forming: dict[Key, FormingGroup] = {}
        self._near = near
        self._begin_group = begin
        self._open = open_groups
        self._is_agent = is_agent
        self._count = 0
        self._ended: OrderedDict[Key, ErrorRecord] = OrderedDict()

    def enter(self, _now: float, event: gev.EnterGroup) -> Effects:
        """Member: enter a group."""
        return self._entered({self._near.rank}, event.members, event.name, 0)

    def on_enter(self, link: Link, message: gmsg.GroupJoin, _payload: Any) -> Effects:
        """Members below a child have entered a group."""
        next_hop = self._near.router.next_hop
        ranks = {rank for rank in self._from_below(link, message) if next_hop(rank) == link.rank}
        # Members that are attached elsewhere by now enter there again.
        return self._entered(ranks, message.members, message.name, link.number) if ranks else []

    def _from_below(
        self, link: Link, message: gmsg.GroupJoin | gmsg.GroupJoinCancelled
    ) -> set[int]:
        if not self.are_places(message.members) or not self._near.all_below(link, message.ranks):
            raise ProtocolError(f"rank {link.rank} enters a group of ranks that do not exist")
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
            return [ev.Transmit((link,), GroupEnded(gmsg.NO_GROUP, members, name, error))]
        if forming is None:
            router = self._near.router
            forming = self.forming[key] = FormingGroup(
                self.membership(members, name), router.version
            )
        forming.entered |= ranks
        return self._go_on(key, forming)

    def _go_on(self, key: Key, forming: FormingGroup) -> Effects:
        """Begin the group if all have entered and that is decided here, or tell the parent."""
        version = self._near.router.version
        if forming.version != version:
            forming.where, forming.version = self.membership(*key), version
        where, entered = forming.where, forming.entered
        if where.coordinator and not forming.told:
            if len(entered) < count(where.members):
                return []
            self._count += 1
            number = (self._near.rank, self._near.identity.incarnation, self._count)
            return self._begin(key, number, where)
        if len(entered) < where.attached or entered == forming.told:
            return []
        if forming.waiting(where):
            return []
        told = self._near.to_parent(gmsg.GroupJoin(*key, to_ranges(entered)))
        if told:
            forming.told = set(entered)
            forming.tellings += 1
        return told

    def on_entered(self, link: Link, message: gmsg.GroupJoined, _payload: Any) -> Effects:
        """All members have entered a group."""
        self._near.must_be_parent(link)
        key = (message.members, message.name)
        where = self.membership(*key)
        if where.here and key not in self.forming:
            what = f"member {self._near.rank} gave up before all had entered"
            is_first = self._near.identity.incarnation <= 1
            error = (GroupError(what) if is_first else self.replaced()).to_record()
            return self._near.to_parent(GroupEnded(message.group, *key, error))
        if not where.attached:
            return []  # they are lost or elsewhere by now, which the parent hears
        where.coordinator = (
            False  # who gave the number has the group, too: members may have moved since
        )
        return self._begin(key, message.group, where)

    def _begin(self, key: Key, number: GroupNumber, where: MemberMap) -> Effects:
        forming = self.forming.pop(key, None)
        self._begin_group(number, where)
        effects: Effects = []
        if forming is not None and forming.tellings > 1:
            # It may have been counted before the last time: no process may wait for more.
            effects += self._withdrawn(key, forming.told)
        links = self._near.links_to(tuple(where.below))
        if links:
            effects.append(ev.Transmit(links, gmsg.GroupJoined(*key, number)))
        if where.here:
            effects.append(gev.GroupEntered(*key, number))
        return effects

    def found(self, key: Key, number: GroupNumber) -> Effects | None:
        """This member waits for a group that has begun; None if it does not wait."""
        forming = self.forming.pop(key, None)
        if forming is None:
            return None
        return [*self._withdrawn(key, forming.told), gev.GroupEntered(*key, number)]

    def replaced(self) -> SapwoodError:
        """Return why this place is not in a group that it is a member of."""
        rank = self._near.rank
        return AgentLostError(f"agent {rank} of the group is gone: its process was replaced")

    def membership(self, members: Ranges, name: str) -> MemberMap:
        """Return where the members of a group are."""
        # An agent has nothing to put values together with: of it alone, its parent is coordinator.
        return MemberMap((members, name), self._near.router, may_coordinate=not self._is_agent)

    # --- ends ----------------------------------------------------------------------------------

    def over(self, message: GroupEnded) -> Effects:
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
        # The last notice to the parent may still be on its way, and look like a new start.
        effects += self._withdrawn(key, forming.told)
        if self._near.rank in forming.entered:
            effects.append(gev.GroupBroken(gmsg.NO_GROUP, *key, message.error))
        return effects

    def on_withdrawn(self, link: Link, message: gmsg.GroupJoinCancelled, _payload: Any) -> Effects:
        """Members below a child have not entered after all."""
        ranks = self._from_below(link, message)
        key = (message.members, message.name)
        forming = self.forming.get(key)
        if forming is not None:
            self._forget(key, forming, ranks)
        # Also if this process sent no notice: a member that has moved may have sent one elsewhere.
        return self._near.to_parent(message)

    def _forget(self, key: Key, forming: FormingGroup, ranks: Collection[int]) -> None:
        forming.entered.difference_update(ranks)
        forming.told.difference_update(ranks)
        if not forming.entered:
            del self.forming[key]

    def _withdrawn(self, key: Key, ranks: set[int]) -> Effects:
        return (
            self._near.to_parent(gmsg.GroupJoinCancelled(*key, to_ranges(ranks))) if ranks else []
        )

    # --- the tree changes ----------------------------------------------------------------------

    def places_left(self, ranks: Collection[int]) -> Effects:
        """Forget members that were below: survivors enter again where they attach next."""
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


# === the tree changes ==========================================================================


class GroupRecovery:
    """Groups continue when the tree changes: the client makes them start another attempt.

    A place whose parent changes, or that loses a child with members below it, is *disturbed*: it
    takes part in no round and says so upwards, up to the client. That waits until all members
    can be reached and begins the next attempt (epoch), in which results are made at the client.
    On its way down every place finds out anew where members are attached, and the members give
    again all that is not confirmed. What belongs to an earlier attempt is dropped, so nothing is
    counted twice. A member that has the result of a round which others still lack gives that
    result instead of its value.

    Only the client, which outlives the tree, counts attempts. A change during an attempt leads
    to the next one; when the tree rests, the last one completes. A member whose process is gone
    ends its groups with an error: that the client tells all places.

    Args:
        near: The neighbours.
        open_groups: The groups of this place.
        joining: The groups that wait for members.
        gather: Makes what puts values together.
        give_again: Has this member give to the present attempt what is not confirmed.
    """

    def __init__(
        self,
        near: PeerTable,
        open_groups: dict[GroupNumber, OpenGroup],
        joining: JoiningGroups,
        gather: NewGathering,
        give_again: Callable[[OpenGroup], Effects],
    ) -> None:
        self._near = near
        self._open = open_groups
        self._joining = joining
        self._gather = gather
        self._give_again = give_again
        self._ended: OrderedDict[GroupNumber, ErrorRecord] = OrderedDict()

    # --- disturbance ---------------------------------------------------------------------------

    def disturb(self, group: OpenGroup) -> Effects:
        """The way to members of a group has changed."""
        where = group.where = self._joining.membership(*group.where.key)
        group.disturbed = True
        group.rounds.clear()
        if self._near.rank == ROOT:
            return self._try_again(group)
        where.coordinator = False
        effects: Effects = []
        if not group.told:
            wish = group.wish or gmsg.GroupDisturbed(group.number, *where.key, group.attempt)
            effects = self._near.to_parent(wish)
            group.told = bool(effects)
        if not where.attached:
            del self._open[group.number]
            effects += [gev.Discarded(one) for held in group.held.values() for one in held]
        return effects

    def on_disturbed(self, link: Link, message: gmsg.GroupDisturbed, _payload: Any) -> Effects:
        """The way to members below has changed."""
        if not self._joining.are_places(message.members):
            raise ProtocolError(f"rank {link.rank} has a group of ranks that do not exist")
        group = self._open.get(message.group)
        if group is None:
            error = self._ended.get(message.group)
            if error is None and self._joining.is_full:
                error = GroupError("too many groups go through one process").to_record()
            if error is not None:
                ended = GroupEnded(message.group, message.members, message.name, error)
                return [ev.Transmit((link.number,), ended)]
            group = self._new(message)
        elif self._is_on_its_way(group, link.rank, message.attempt):
            return []
        group.attempt = max(group.attempt, message.attempt)
        return self.disturb(group)

    def _is_on_its_way(self, group: OpenGroup, child: int, attempt: int) -> bool:
        """Whether a child will hear of the present attempt, which it had not when it spoke."""
        return not group.disturbed and attempt < group.attempt and child in group.where.below

    def _new(self, message: gmsg.GroupDisturbed | gmsg.GroupRestart) -> OpenGroup:
        where = self._joining.membership(message.members, message.name)
        group = self._open[message.group] = OpenGroup(message.group, where, self._gather)
        group.disturbed = True
        return group

    # --- the next attempt ----------------------------------------------------------------------

    def _try_again(self, group: OpenGroup) -> Effects:
        """Root: begin the next attempt if all members can be reached."""
        where = group.where = self._joining.membership(*group.where.key)
        if not where.is_whole:
            return []
        return self._begin(group, group.attempt + 1)

    def _begin(self, group: OpenGroup, attempt: int) -> Effects:
        group.attempt = attempt
        group.disturbed = group.told = False
        group.rounds.clear()
        links = self._near.links_to(tuple(group.where.below))
        begin = gmsg.GroupRestart(group.number, *group.where.key, attempt)
        effects: Effects = [ev.Transmit(links, begin)] if links else []
        return effects + self._give_again(group)

    def on_regroup(self, link: Link, message: gmsg.GroupRestart, _payload: Any) -> Effects:
        """The next attempt of a group begins."""
        self._near.must_be_parent(link)
        number, key = message.group, (message.members, message.name)
        group = self._open.get(number)
        effects: Effects = []
        error = self._ended.get(number)
        if group is None and error is not None:
            return self._near.to_parent(GroupEnded(number, *key, error))
        if group is None and contains(message.members, self._near.rank):
            found = self._joining.found(key, number)
            if found is None:
                # It was a former process of this place that had entered it.
                error = self._joining.replaced().to_record()
                return self._near.to_parent(GroupEnded(number, *key, error))
            effects = found
        where = self._joining.membership(*key)
        if group is not None and message.attempt <= group.attempt:
            return []
        if not where.attached:
            return []
        if group is None:
            group = self._new(message)
        where.coordinator = False
        group.where = where
        return effects + self._begin(group, message.attempt)

    # --- the tree changes ----------------------------------------------------------------------

    def places_left(self, ranks: Collection[int]) -> Effects:
        """Places cannot be reached below this one any more."""
        return self._joining.places_left(ranks) + self._disturbed(ranks)

    def places_moved(self, ranks: Collection[int]) -> Effects:
        """Places are reached by another child: messages of the former one may be lost."""
        return self._joining.places_moved(ranks) + self._disturbed(ranks)

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
        effects = self._joining.parent_changed()
        for group in list(self._open.values()):
            if not group.where.coordinator:
                group.told = False
                effects += self.disturb(group)
        return effects

    # --- ends ----------------------------------------------------------------------------------

    def ended(self, number: GroupNumber, error: ErrorRecord) -> None:
        """Remember that a group is over, for those who have not heard of it."""
        self._ended[number] = error
        while len(self._ended) > MAX_REMEMBERED:
            self._ended.popitem(last=False)

    def why_ended(self, number: GroupNumber) -> ErrorRecord | None:
        """Return why a group that is not known here is over; None if that is not known."""
        return self._ended.get(number)


# === the protocol ==============================================================================

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
        self.open: dict[GroupNumber, OpenGroup] = {}
        self._near = near
        self._gather = gather
        joining = self._joining = JoiningGroups(near, self._begin, self.open, is_agent=is_agent)
        again = self._recovery = GroupRecovery(near, self.open, joining, gather, self._give_again)
        self.forming = joining.forming
        self.on_event: dict[type[ev.Event], Callable[[float, Any], Effects]] = {
            gev.EnterGroup: joining.enter,
            gev.CallGroup: self.call,
            gev.BreakGroup: self.break_group,
            gev.MissResult: self.miss,
            gev.ForgetGroups: self.forget,
        }
        self.on_message: dict[type[Any], Callable[[Link, Any, Payload | None], Effects]] = {
            gmsg.GroupJoin: joining.on_enter,
            gmsg.GroupJoined: joining.on_entered,
            GroupPart: self.on_part,
            gmsg.GroupResult: self.on_result,
            GroupEnded: self.on_ended,
            gmsg.GroupJoinCancelled: joining.on_withdrawn,
            gmsg.GroupDisturbed: again.on_disturbed,
            gmsg.GroupRestart: again.on_regroup,
        }
        self.places_left = again.places_left
        self.places_moved = again.places_moved
        self.places_came = again.places_came
        self.parent_changed = again.parent_changed

    def __len__(self) -> int:
        """Return how many groups there are, with those that form."""
        return len(self.open) + len(self.forming)

    def _begin(self, number: GroupNumber, where: MemberMap) -> None:
        self.open[number] = OpenGroup(number, where, self._gather)

    # --- rounds --------------------------------------------------------------------------------

    def call(self, _now: float, event: gev.CallGroup) -> Effects:
        """Member: take part in a round."""
        group = self.open.get(event.group)
        if group is None:
            return [gev.Discarded(event.payload)] if event.payload is not None else []
        rank = self._near.rank
        group.hold(event.round, event.payload)
        part = GroupPart(
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

    def on_part(self, link: Link, message: GroupPart, payload: Payload | None) -> Effects:
        """What the members below a child give to a round."""
        group = self.open.get(message.group)
        if group is None:
            error = self._recovery.why_ended(message.group)
            if error is None:
                return []  # forgotten when no member was below: the next attempt comes by here
            return [ev.Transmit((link.number,), GroupEnded(message.group, (), "", error))]
        if message.attempt != group.attempt or group.disturbed:
            return []
        if group.where.below.get(link.rank) != message.ranks:
            if not self._near.all_below(link, message.ranks):
                raise ProtocolError(f"rank {link.rank} gives what is not its to give to a group")
            return self._recovery.disturb(group)  # members have moved since the attempt began
        if message.round <= group.confirmed:
            return []
        return self._add(group, link.rank, message, payload)

    def _add(
        self, group: OpenGroup, source: int, part: GroupPart, payload: Payload | None
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

    def _all_called(self, group: OpenGroup, current: CollectiveRound) -> Effects:
        if group.where.coordinator:
            body, payload, made = current.outcome()
        else:
            body, payload, made = current.partial()
        if made:
            group.hold(current.number, payload)
        if group.where.coordinator:
            confirmed = current.number if current.call == LEAVE else current.taken
            return self._finish(group, current.number, confirmed, body, payload)
        part = GroupPart(
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
        if call == LEAVE:
            del self.open[group.number]
            self._recovery.ended(group.number, GroupError("all have left the group").to_record())
        return effects + [gev.Discarded(kept) for kept in group.release(confirmed)]

    def miss(self, _now: float, event: gev.MissResult) -> Effects:
        """Member: the memory of a result is gone, and with it the place that made it."""
        group = self.open.get(event.group)
        if group is None:
            return []
        group.results.pop(event.round, None)
        return self._recovery.disturb(group)

    # --- failures ------------------------------------------------------------------------------

    def break_group(self, _now: float, event: gev.BreakGroup) -> Effects:
        """Member: end a group, or the wait for one, with an error."""
        ended = GroupEnded(event.group, event.members, event.name, event.error, event.round)
        return self._end(ended)

    def on_ended(self, link: Link, message: GroupEnded, _payload: Any) -> Effects:
        """A group is to end (from below), or has ended (from above)."""
        if link.rank == self._near.router.parent:
            return self._over(message)
        if message.group == gmsg.NO_GROUP and not self._joining.are_places(message.members):
            raise ProtocolError(f"rank {link.rank} ends a group of ranks that do not exist")
        return self._end(message, link.rank)

    def _end(self, message: GroupEnded, source: int = -1) -> Effects:
        """Pass the wish to end a group on to the coordinator; there, end it."""
        group = self.open.get(message.group)
        forming: FormingGroup | None = None
        if group is not None:
            where = group.where
        elif message.group != gmsg.NO_GROUP:
            return []
        else:
            where = self._joining.membership(message.members, message.name)
            forming = self.forming.get((message.members, message.name))
        waiting = self._waiting(message, group, forming, where).difference((source,))  # it said
        message = _with_missing(message, where, waiting)
        if where.coordinator:
            return self._over(_naming_missing(message))
        for one in (group, forming):
            if one is not None:
                one.wish = message  # for the next parent, if this one goes before it is over
        return self._near.to_parent(message)

    def _waiting(
        self,
        message: GroupEnded,
        group: OpenGroup | None,
        forming: FormingGroup | None,
        where: MemberMap,
    ) -> set[int]:
        if not message.round:
            return set()
        if forming is not None:
            return forming.waiting(where)
        current = group.rounds.get(message.round) if group is not None else None
        return current.waiting if current is not None else set()

    def _fail(self, group: OpenGroup, error: SapwoodError) -> Effects:
        where = group.where
        ended = GroupEnded(group.number, where.members, where.name, error.to_record())
        return self._end(ended)

    def _over(self, message: GroupEnded) -> Effects:
        """End a group here and below."""
        if message.group == gmsg.NO_GROUP:
            return self._joining.over(message)
        group = self.open.pop(message.group, None)
        self._recovery.ended(message.group, message.error)
        if group is None:
            # Forgotten when no member was below; those that are by now may wait for it.
            if not self._joining.are_places(message.members):
                return []
            below = self._joining.membership(message.members, message.name).below
            links = self._near.links_to(tuple(below))
            return [ev.Transmit(links, message)] if links else []
        where = self._joining.membership(*group.where.key)
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
            if members and where.coordinator:
                error = AgentLostError(f"{fold('agent', members)} of the group is gone: {reason}")
                effects += self._over(GroupEnded(number, *where.key, error.to_record()))
        return effects + self._joining.places_left(lost)


def _with_missing(message: GroupEnded, where: MemberMap, waiting: Collection[int]) -> GroupEnded:
    """Note who has not called, as far as this place knows."""
    missing = from_ranges(message.missing).union(*map(where.ranks_of, waiting))
    if where.coordinator and message.round:
        missing |= where.disconnected()
    if not missing:
        return message
    return msgspec.structs.replace(message, missing=to_ranges(missing))


def _naming_missing(message: GroupEnded) -> GroupEnded:
    """Say in the error who has not called."""
    if not message.missing:
        return message
    missing = from_ranges(message.missing)
    who = fold("member", missing)
    # A junction sends what is below it when all of it is there.
    text = f"{who} has not come" if len(missing) == 1 else f"not all of {who} have come"
    error = msgspec.structs.replace(message.error, what=f"{message.error.what}: {text}")
    return msgspec.structs.replace(message, error=error)


# === results on their way down =================================================================


def deliver(
    near: PeerTable,
    where: MemberMap,
    call: GroupCall,
    result: gmsg.GroupResult,
    payload: Payload | None,
) -> Effects:
    """Return what hands the result of a round on, and to this place if it is a member.

    Raises:
        ProtocolError: A scatter does not hold what it should.
    """
    if call.operation == "scatter":
        return _portions(near, where, result, payload)
    if call.operation in TO_SERVER:
        return _to_one(near, where, result, payload, call.root)
    effects: Effects = []
    links = near.links_to(tuple(where.below))
    if links:
        effects.append(ev.Transmit(links, result, payload))
    if where.here:
        effects.append(gev.GroupFinished(result.group, result.round, result.body, payload))
    return effects


def _to_one(
    near: PeerTable,
    where: MemberMap,
    result: gmsg.GroupResult,
    payload: Payload | None,
    root: int,
) -> Effects:
    empty = msgspec.structs.replace(result, body=b"")
    below = where.below
    wanted = tuple(child for child, members in below.items() if contains(members, root))
    others = tuple(child for child in below if child not in wanted)
    effects: Effects = []
    for children, message in ((wanted, result), (others, empty)):
        links = near.links_to(children)
        if links:
            arrays = payload if message is result else None
            effects.append(ev.Transmit(links, message, arrays))
    if where.here:
        mine = near.rank == root
        body, arrays = (result.body, payload) if mine else (b"", None)
        effects.append(gev.GroupFinished(result.group, result.round, body, arrays))
    return effects


def _portions(
    near: PeerTable, where: MemberMap, result: gmsg.GroupResult, payload: Payload | None
) -> Effects:
    rows = read_rows(result.body)
    effects: Effects = []
    for child, members in where.below.items():
        links = near.links_to((child,))
        if links:
            body, arrays = rows_for(rows, payload, members)
            message = msgspec.structs.replace(result, body=body)
            effects.append(ev.Transmit(links, message, arrays))
    if where.here:
        body, arrays = row_of(rows, payload, near.rank)
        effects.append(gev.GroupFinished(result.group, result.round, body, arrays))
    return effects
