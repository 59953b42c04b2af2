"""What agents and places are told of user code in streams, and what their runners answer."""

from collections.abc import Callable
from typing import Any

import msgspec

from sapwood.comm import plain
from sapwood.core import typed

CALL = "call"
"""Handler of a stream whose waves call user code."""

OPEN = "stream.open"
CALL_ONCE = "stream.call"
NEXT = "stream.next"
CLOSE = "stream.close"
"""Procedures of a runner for what agents do in a stream."""

OPEN_FILTER = "filter.open"
FILTER = "filter.call"
CLOSE_FILTER = "filter.close"
"""Procedures of a runner for own filters."""

END: Any = {"sapwood:end": None}
"""Answer of a runner whose generator has ended, or whose filter passes nothing on."""

END_BODY = plain.encode(END)


CLOSE_GRACE = 0.5
"""Seconds that a call gets to end when its stream is closed, before its process is killed."""


class UserCode(msgspec.Struct, frozen=True):
    """A function or a filter.

    Attributes:
        function: What it is called, for messages.
        code: Pickled, or an encoded :class:`~sapwood.code.image.ProgramImage`.
        native: Name of the native function; empty for Python.
        crash_handlers: Libraries that write a native backtrace, one for each kind of machine.
        steps: Whether it is a generator: each value goes up by itself.
        time_limit: Seconds that one call may take; 0 for no limit.
        reducers: Whether it is what reduces the fields of the program in ``code``.
    """

    function: str
    code: bytes
    native: str = ""
    crash_handlers: list[bytes] = []
    steps: bool = False
    time_limit: float = 0.0
    reducers: bool = False


class FilterCall(msgspec.Struct, frozen=True, array_like=True):
    """One call of a filter.

    Attributes:
        upward: Whether values are put together; else one goes down.
        wave: Number of the wave.
        version: Of the parameters.
        parameters: Encoded parameters.
        child: Where the value goes; -1 for all children.
        values: Encoded values: body, arrays inline, and where the arrays lie in shared memory.
        ranks: The lowest rank behind each value.
        weights: The items behind each value.
    """

    upward: bool
    wave: int
    version: int
    parameters: bytes
    child: int
    values: list[tuple[bytes, bytes, bytes]]
    ranks: list[int] = []
    weights: list[float] = []


encode = msgspec.msgpack.Encoder().encode
decode_code: Callable[[bytes], UserCode] = typed.unpacker(UserCode)
