"""The result of a round on its way down: who gets it, who gets which part of it."""

from __future__ import annotations

import msgspec

from sapwood.comm import events as ev
from sapwood.comm.groups import events as gev
from sapwood.comm.groups import portions
from sapwood.comm.groups.group import Membership
from sapwood.comm.groups.round import TO_ROOT
from sapwood.comm.messages import groups as gmsg
from sapwood.comm.payload import Payload
from sapwood.comm.peers import Effects, PeerTable
from sapwood.core.rankset import contains


def deliver(
    near: PeerTable,
    where: Membership,
    call: gmsg.GroupCall,
    result: gmsg.GroupResult,
    payload: Payload | None,
) -> Effects:
    """Return what hands the result of a round on, and to this place if it is a member.

    Raises:
        ProtocolError: A scatter does not hold what it should.
    """
    if call.operation == "scatter":
        return _portions(near, where, result, payload)
    if call.operation in TO_ROOT:
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
    where: Membership,
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
    near: PeerTable, where: Membership, result: gmsg.GroupResult, payload: Payload | None
) -> Effects:
    rows = portions.read(result.body)
    effects: Effects = []
    for child, members in where.below.items():
        links = near.links_to((child,))
        if links:
            body, arrays = portions.picked(rows, payload, members)
            message = msgspec.structs.replace(result, body=body)
            effects.append(ev.Transmit(links, message, arrays))
    if where.here:
        body, arrays = portions.own(rows, payload, near.rank)
        effects.append(gev.GroupFinished(result.group, result.round, body, arrays))
    return effects
