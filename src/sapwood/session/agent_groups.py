"""The agent's side of groups: what user code asks becomes calls of this place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import msgspec

from sapwood.code.runner.group_messages import CALL, ENTER, STAY, CallOrder, EnterOrder
from sapwood.code.runner.rpc_server import RpcCall
from sapwood.comm import plain
from sapwood.comm.groups import events as gev
from sapwood.comm.groups.members import GroupMemberships
from sapwood.comm.messages.groups import GroupNumber, Key
from sapwood.comm.payload import Payload
from sapwood.core import typed
from sapwood.core.errors import ProtocolError

_bytes = typed.unpacker(bytes)
_token = typed.unpacker(int)
_parts = typed.unpacker(Annotated[list[msgspec.Raw], msgspec.Meta(min_length=2)])
_enter = typed.unpacker(EnterOrder)
_call = typed.unpacker(CallOrder)

NOTHING = plain.encode(None)


class Stay:
    """One group of the runner: being entered, or entered."""

    __slots__ = ("key", "number")

    def __init__(self) -> None:
        self.key: Key | None = None
        self.number: GroupNumber | None = None


class AgentGroups:
    """Answers what user code asks of groups.

    Args:
        members: The memberships of this agent.
    """

    def __init__(self, members: GroupMemberships) -> None:
        self._members = members
        self._stays: dict[int, Stay] = {}
        self.handlers: dict[str, Callable[[RpcCall], None]] = {
            STAY: self._stay,
            ENTER: self._enter,
            CALL: self._call,
        }

    def _stay(self, visit: RpcCall) -> None:
        """A group begins; it ends when the runner takes this back, or is gone itself."""
        token = _token(visit.body)
        self._stays[token] = Stay()

        def end() -> bool:
            stay = self._stays.pop(token, None)
            if stay is None:
                return False
            if stay.number is not None:
                self._members.leave(stay.number)
            elif stay.key is not None:
                self._members.give_up(stay.key)
            return True

        visit.on_cancel = end

    def _enter(self, visit: RpcCall) -> None:
        order = _understood(_enter, visit.body)
        stay = self._stays.get(order.token)
        if stay is None:
            raise ProtocolError("a group without a wait for it is entered")
        stay.key = (order.members, order.name)

        def entered(number: GroupNumber) -> None:
            stay.number = number
            if self._stays.get(order.token) is not stay:
                self._members.leave(number)
            visit.answer(plain.encode(number))

        self._members.enter(stay.key, order.timeout, entered, visit.fail)

    def _call(self, visit: RpcCall) -> None:
        parts = _understood(_parts, visit.body)
        call = _understood(_call, parts[0])
        body = bytes(parts[1])
        if call.call.operation == "scatter" and body != NOTHING:
            body = _understood(_bytes, body)
        event = gev.CallGroup(
            call.group,
            call.round,
            call.call,
            call.taken,
            b"" if body == NOTHING else body,
            visit.payload,
        )

        def done(result: bytes, payload: Payload | None) -> None:
            visit.answer(result or NOTHING, payload)

        self._members.call(event, call.timeout, done, visit.fail)


def _understood(decode: Callable[[bytes], Any], data: bytes) -> Any:
    try:
        return decode(data)
    except msgspec.MsgspecError as error:  # user code can ask its agent anything
        raise ProtocolError(f"a malformed request to a group: {error}") from error
