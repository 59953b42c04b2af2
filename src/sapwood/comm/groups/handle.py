"""A group as its members hold it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol, Self

import msgspec
import numpy as np

from sapwood.comm import plain, values
from sapwood.comm.messages.groups import FIELD, GroupCall, GroupNumber
from sapwood.comm.reductions import make_reduction
from sapwood.core.arguments import items, wait_time
from sapwood.core.errors import ClosedError, ConfigurationError
from sapwood.core.rankset import fold
from sapwood.core.request import Request
from sapwood.core.shown import shown

NOTHING: Any = object()
"""Given to a gather or reduction by a member that takes part without a value."""


BY_ELEMENT = {"sum", "sum:reproducible", "min", "max"}
"""Reductions of which a piece of the result needs the same piece of each array only."""

PIECES_AHEAD = 8
"""Pieces of one array that are under way at a time."""


class GroupCaller(Protocol):
    """How calls get from a member to its place in the tree."""

    def call(
        self,
        order: dict[str, Any],
        value: Any,
        convert: Callable[[Any], Any],
    ) -> Request:
        """Make a call; the request is its converted result.

        Args:
            order: ``group``, ``round``, ``call``, ``taken`` and ``timeout``.
            value: What this member gives: ``{"x": value}``, rows of a scatter, or None.
            convert: Makes the result of what arrives.
        """

    def leave(self, number: GroupNumber) -> None:
        """Leave the group."""


class GroupOptions(msgspec.Struct, frozen=True):
    """How a member works in a group.

    Attributes:
        timeout: Seconds that each call may wait for the others; None for any time.
        piece_bytes: Larger arrays are reduced in pieces of so many bytes; 0 for in one.
    """

    timeout: float | None = None
    piece_bytes: int = 0


class Group:
    """A group of places whose members call operations together; entered, not made by hand.

    Every member calls the same operations in the same order. A call returns when all members
    have made it. Where something does not fit, a member leaves, is lost or, with ``timeout``,
    does not come in time, every member gets an error that says who and why, and the group is
    over: later calls raise that error, too.

    With ``wait=False`` a method returns a :class:`sapwood.types.Request` instead of waiting.

    Attributes:
        rank: This member; 0 is the client.
        members: All members' ranks, in order.

    Example:
        In a function that runs on agents 1 to 4::

            with sapwood.here().group([1, 2, 3, 4]) as group:
                total = group.allreduce(array, "sum")
                everything = group.allgather(len(array))
    """

    def __init__(
        self,
        rank: int,
        members: Sequence[int],
        number: GroupNumber,
        caller: GroupCaller,
        options: GroupOptions,
    ) -> None:
        self.rank = rank
        self.members: tuple[int, ...] = tuple(members)
        self._number = number
        self._caller = caller
        self._options = options
        self._round = 0
        self._taken = 0
        self._read: set[int] = set()
        self._open = True

    @property
    def size(self) -> int:
        """Number of members."""
        return len(self.members)

    def barrier(self, *, timeout: float | None = None, wait: bool = True) -> Any:
        """Return when all members are here.

        Args:
            timeout: Seconds to wait; by default the group's.
            wait: Whether to wait, or to return a request.

        Raises:
            GroupError: Members called something else, left, or did not come in time.
            AgentLostError: A member is gone.
        """
        return self._call(GroupCall("barrier"), None, timeout=timeout, wait=wait)

    def broadcast(
        self,
        value: Any = None,
        *,
        root: int | None = None,
        timeout: float | None = None,
        wait: bool = True,
    ) -> Any:
        """Return the value that ``root`` gives, at every member.

        Args:
            value: The value, at the root; what others give is not looked at.
            root: Rank of the member that gives it; the first by default.
            timeout: Seconds to wait; by default the group's.
            wait: Whether to wait, or to return a request.
        """
        given = self._root(root)
        mine = {FIELD: value} if self.rank == given else None
        return self._call(GroupCall("broadcast", root=given), mine, timeout=timeout, wait=wait)

    def scatter(
        self,
        values: Sequence[Any] | None = None,
        *,
        root: int | None = None,
        timeout: float | None = None,
        wait: bool = True,
    ) -> Any:
        """Return the value that ``root`` has for this member.

        Args:
            values: At the root: one value for each member, in the order of :attr:`members`;
                they may differ in type and size, and be rows of an array.
            root: Rank of the member that gives them; the first by default.
            timeout: Seconds to wait; by default the group's.
            wait: Whether to wait, or to return a request.

        Raises:
            ConfigurationError: There is not one value for each member.
        """
        given = self._root(root)
        mine = None
        if self.rank == given:
            values = None if values is None else items(values, "values")
            if values is None or len(values) != self.size:
                found = "none" if values is None else str(len(values))
                raise ConfigurationError(
                    f"scatter needs {self.size} values, one for each member, and got {found}",
                    hint="np.array_split(array, group.size) cuts an array",
                )
            mine = _rows(self.members, values)
        return self._call(GroupCall("scatter", root=given), mine, timeout=timeout, wait=wait)

    def gather(
        self,
        value: Any,
        *,
        root: int | None = None,
        timeout: float | None = None,
        wait: bool = True,
    ) -> Any:
        """Return the values of all members, in the order of :attr:`members`; None but at ``root``.

        Args:
            value: What this member gives; types and sizes may differ.
            root: Rank of the member that gets the list; the first by default.
            timeout: Seconds to wait; by default the group's.
            wait: Whether to wait, or to return a request.
        """
        call = GroupCall("gather", root=self._root(root))
        return self._call(call, {FIELD: value}, timeout=timeout, wait=wait)

    def allgather(self, value: Any, *, timeout: float | None = None, wait: bool = True) -> Any:
        """Return the values of all members, in the order of :attr:`members`, at every member.

        Args:
            value: What this member gives; types and sizes may differ.
            timeout: Seconds to wait; by default the group's.
            wait: Whether to wait, or to return a request.
        """
        return self._call(GroupCall("allgather"), {FIELD: value}, timeout=timeout, wait=wait)

    def reduce(
        self,
        value: Any,
        reduction: str = "sum",
        *,
        root: int | None = None,
        timeout: float | None = None,
        wait: bool = True,
    ) -> Any:
        """Return what a reduction makes of all members' values, at ``root``; None elsewhere.

        Args:
            value: What this member gives.
            reduction: A reduction by name, as in a program's ``reduce``.
            root: Rank of the member that gets the result; the first by default.
            timeout: Seconds to wait; by default the group's.
            wait: Whether to wait, or to return a request.

        Raises:
            ProgramError: There is no such reduction.
            ExecutionError: The values do not fit together.
        """
        make_reduction(reduction)
        call = GroupCall("reduce", reduction, self._root(root))
        return self._reduce(call, value, timeout=timeout, wait=wait)

    def allreduce(
        self, value: Any, reduction: str = "sum", *, timeout: float | None = None, wait: bool = True
    ) -> Any:
        """Return what a reduction makes of all members' values, at every member.

        Args:
            value: What this member gives.
            reduction: A reduction by name, as in a program's ``reduce``.
            timeout: Seconds to wait; by default the group's.
            wait: Whether to wait, or to return a request.

        Raises:
            ProgramError: There is no such reduction.
            ExecutionError: The values do not fit together.
        """
        make_reduction(reduction)
        call = GroupCall("allreduce", reduction)
        return self._reduce(call, value, timeout=timeout, wait=wait)

    def close(self) -> None:
        """Leave the group; members that call something after that get an error."""
        if self._open:
            self._open = False
            self._caller.leave(self._number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Group of {fold('rank', self.members)}, here {self.rank}>"

    def _root(self, root: int | None) -> int:
        if root is None:
            return self.members[0]
        if root not in self.members:
            raise ConfigurationError(
                f"rank {root} is not in the group", hint=f"its members are {self.members}"
            )
        return root

    def _reduce(self, call: GroupCall, value: Any, *, timeout: float | None, wait: bool) -> Any:
        piece = self._options.piece_bytes
        if not (
            piece
            and wait
            and isinstance(value, np.ndarray)
            and value.nbytes > piece
            and call.reduce in BY_ELEMENT
        ):
            return self._call(call, {FIELD: value}, timeout=timeout, wait=wait)
        whole = f"{value.dtype.str}{value.shape} in pieces of {piece} bytes"
        call = GroupCall(call.operation, call.reduce, call.root, whole)
        flat = np.ascontiguousarray(value).reshape(-1)
        step = max(1, piece // value.itemsize)
        under_way: deque[Request] = deque()
        pieces: list[Any] = []
        for first in range(0, flat.size, step):
            if len(under_way) == PIECES_AHEAD:
                pieces.append(under_way.popleft().result())
            mine = {FIELD: flat[first : first + step]}
            under_way.append(self._call(call, mine, timeout=timeout, wait=False))
        pieces += [request.result() for request in under_way]
        if pieces[0] is None:
            return None
        return np.concatenate(pieces).reshape(value.shape)

    def _call(self, call: GroupCall, value: Any, *, timeout: float | None, wait: bool) -> Any:
        if not self._open:
            raise ClosedError("the group was left", hint="enter it again")
        timeout = group_time(timeout)
        number = self._round = self._round + 1
        if isinstance(value, dict) and value[FIELD] is NOTHING:
            value = None
        order = {
            "group": [*self._number],
            "round": number,
            "call": [call.operation, call.reduce, call.root, call.whole],
            "taken": self._taken,
            "timeout": self._options.timeout if timeout is None else timeout,
        }

        def convert(result: Any) -> Any:
            # From here on the memory of the received result is no longer needed.
            self._read.add(number)
            while self._taken + 1 in self._read:
                self._taken += 1
                self._read.discard(self._taken)
            return result[FIELD] if isinstance(result, dict) else None

        request = self._caller.call(order, value, convert)
        return request.result() if wait else request


def group_time(timeout: float | None) -> float | None:
    """Return a time-out of a group; None for any time.

    Raises:
        ConfigurationError: It is not a number of seconds, or negative: the other members would
            wait for this one.
    """
    seconds = wait_time(timeout)
    if timeout is not None and timeout < 0:
        raise ConfigurationError(
            f"timeout is {shown(timeout)}", hint="give seconds, or None for any time"
        )
    return seconds


def _rows(members: Sequence[int], given: Sequence[Any]) -> tuple[bytes, np.ndarray[Any, Any]]:
    """Return the body of a scatter, and its payload as one array of bytes."""
    encoded = [values.encode({FIELD: value}) for value in given]
    flat = np.empty(sum(one.nbytes for one in encoded), np.uint8)
    rows, start = [], 0
    for rank, one in zip(members, encoded, strict=True):
        one.write_into(memoryview(flat[start : start + one.nbytes].data))
        rows.append((rank, one.body, start, start + one.nbytes))
        start += one.nbytes
    return plain.check_body(plain.encode(rows)), flat
