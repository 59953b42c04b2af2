"""The client as a member of groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sapwood.comm import events as ev
from sapwood.comm import values
from sapwood.comm.groups import events as gev
from sapwood.comm.groups.handle import Group, GroupOptions, group_time
from sapwood.comm.groups.members import GroupMemberships
from sapwood.comm.messages.groups import GroupCall, GroupNumber
from sapwood.comm.payload import Payload
from sapwood.comm.pool import BlockPool
from sapwood.core.arguments import text
from sapwood.core.errors import SapwoodError
from sapwood.core.failures import as_error
from sapwood.core.rankset import to_ranges
from sapwood.core.request import Request
from sapwood.core.topology import ROOT
from sapwood.session.loop_thread import LoopThread


class ClientGroups:
    """The groups that the client takes part in, as rank 0.

    Args:
        thread: The loop's thread.
        post: Gives the client's node an event; to be called on the loop's thread.
        pool: Where large values are put.
    """

    def __init__(
        self, thread: LoopThread, post: Callable[[ev.Event], None], pool: BlockPool
    ) -> None:
        self._thread = thread
        self._pool = pool
        self._post = post
        self._members = GroupMemberships(ROOT, post, thread.loop.call_later)
        self.handlers = self._members.handlers
        self.failure_handlers = self._members.failure_handlers
        self._closed: SapwoodError | None = None

    def enter(
        self, agents: list[int], name: str, options: GroupOptions, enter_timeout: float | None
    ) -> Request:
        """Enter a group with some agents; the request is the :class:`Group`.

        Raises:
            ConfigurationError: The name is not a text, or a time-out is not a number.
        """
        text(name, "name")
        enter_timeout = group_time(enter_timeout)
        group_time(options.timeout)
        ranks = [ROOT, *agents]
        request = Request()
        key = (to_ranges(ranks), name)

        def entered(number: GroupNumber) -> None:
            request.set_result(Group(ROOT, ranks, number, self, options))

        def begin() -> None:
            if self._closed is not None:
                request.set_exception(self._closed)
                return
            self._members.enter(key, enter_timeout, entered, request.set_exception)

        self._thread.post_for(request.set_exception, begin)
        return request

    def call(self, order: dict[str, Any], value: Any, convert: Callable[[Any], Any]) -> Request:
        """Make a call; the request is its converted result."""
        request = Request()
        if isinstance(value, tuple):  # the rows of a scatter: a body, and its arrays as one
            body, arrays = value[0], values.encode(value[1]).owned()
        elif value is None:
            body, arrays = b"", values.encode(None)
        else:
            arrays = values.encode(value).owned()
            body = arrays.body

        def done(result: bytes, payload: Payload | None) -> None:
            try:
                # A copy: the memory goes back when all members have read it.
                data = bytearray(payload.view) if payload is not None else b""
                request.set_result(convert(values.decode(result, data) if result else None))
            except Exception as error:  # noqa: BLE001 - it is about this call only
                request.set_exception(as_error(error, "the result of a group"))

        def begin() -> None:
            try:
                if self._closed is not None:
                    raise self._closed
                payload = self._pool.store(arrays)
            except SapwoodError as error:
                request.set_exception(error)
                return
            call = GroupCall(*order["call"])
            event = gev.CallGroup(
                (*order["group"],), order["round"], call, order["taken"], body, payload
            )
            self._members.call(event, order["timeout"], done, request.set_exception)

        self._thread.post_for(request.set_exception, begin)
        return request

    def leave(self, number: GroupNumber) -> None:
        """Leave a group."""
        self._thread.post(self._members.leave, number)

    def abandon(self, reason: SapwoodError) -> None:
        """Fail what is under way, and all that comes; on the loop's thread."""
        self._closed = reason
        self._members.abandon(reason)
        self._post(gev.ForgetGroups())
