"""Which native function is being called with which arrays: what a crash handler can tell of it.

Before a call, names, addresses and sizes are written to memory that the handler of signals
reads (``native/crash.c``). When memory was accessed that cannot be, it writes all that in one
line, of which :func:`describe_access` makes a sentence.
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from sapwood.core import typed

MAX_ARRAYS: Final = 64
"""Array parameters of one call that are recorded; further ones are not named after a crash."""

PLAUSIBLE_DISTANCE: Final = 64 * 2**20
"""Bytes from an array up to which an access outside it is taken for one that was meant for it."""

NULL_PAGES: Final = 64 * 1024
"""Addresses below this are never mapped: they result from a null pointer and an index."""

_NO_CALL: Final = 0
_record = (ctypes.c_uint64 * (2 + 2 * MAX_ARRAYS))()
_LINE: Final = re.compile(
    r"^memory (write|read|access) (\d+) (\d+)((?: \d+)*) (\{.*\})$", re.MULTILINE
)


def address() -> int:
    """Return where the record is, for the crash handler."""
    return ctypes.addressof(_record)


class Names(msgspec.Struct, frozen=True):
    """What a record says of a function beside addresses.

    Attributes:
        function: Its name.
        where: Its place in the source.
        arrays: Its array parameters: name, C type and bytes of an item.
    """

    function: str
    where: str
    arrays: tuple[tuple[str, str, int], ...]


class CallRecord:
    """Notes calls of one function.

    Args:
        names: Its names.
    """

    __slots__ = ("_count", "_names", "_pack", "_text")

    def __init__(self, names: Names) -> None:
        names = msgspec.structs.replace(names, arrays=names.arrays[:MAX_ARRAYS])
        self._count = len(names.arrays)
        self._names = ctypes.create_string_buffer(msgspec.json.encode(names))
        self._text = ctypes.addressof(self._names)
        self._pack = struct.Struct(f"={2 + 2 * self._count}Q").pack_into

    def words(self, places: Sequence[int | str]) -> tuple[int | str, ...]:
        """Return what the record holds during a call; names may stand for addresses."""
        return (self._text, self._count, *places[: 2 * self._count])

    def begin(self, places: Sequence[int]) -> None:
        """Note that a call begins, with address and size of each array."""
        self._pack(_record, 0, self._text, self._count, *places[: 2 * self._count])

    def end(self) -> None:
        """Note that the call is over."""
        _record[0] = _NO_CALL


class BadAccess(msgspec.Struct, frozen=True):
    """An access outside of an array.

    Attributes:
        what: What happened, one sentence.
        where: The function's place in its source.
        hint: What to do.
    """

    what: str
    where: str
    hint: str


def take_access(report: str) -> tuple[BadAccess | None, str]:
    """Return what a crash report says of an access to memory, and the rest of the report."""
    found = _LINE.search(report)
    if found is None:
        return None, report
    rest = report[: found.start()] + report[found.end() + 1 :]
    numbers = [int(number) for number in found[4].split()]
    try:
        names = typed.json_reader(Names)(found[5])
        return describe_access(names, found[1], int(found[2]), numbers), rest
    except (ValueError, ZeroDivisionError):  # user code has overwritten the record, or this text
        return None, report


def describe_access(
    names: Names, kind: str, place: int, numbers: Sequence[int]
) -> BadAccess | None:
    """Return which array an access was meant for; None when no array is near.

    Args:
        names: Names of the function and its arrays.
        kind: ``write``, ``read`` or ``access``.
        place: The address.
        numbers: Address and size of each array.

    Example:
        >>> names = Names("add", "a.c:3", (("out", "double", 8),))
        >>> describe_access(names, "write", 2**20 + 80, [2**20, 16]).what
        'add wrote past the end of parameter out: at item 10 (byte 80) of 2'
    """
    if 0 <= place < NULL_PAGES:
        did = {"write": "wrote to", "read": "read"}.get(kind, "used")
        hint = "a pointer was not set, or what returned it failed"
        what = f"{names.function} {did} memory by a null pointer (address {place})"
        return BadAccess(what, names.where, hint)
    arrays = list(zip(names.arrays, numbers[::2], numbers[1::2], strict=True))
    near = min(arrays, key=lambda each: _distance(place, each[1], each[2]), default=None)
    if near is None or _distance(place, near[1], near[2]) > PLAUSIBLE_DISTANCE:
        return None
    (name, c_type, size), begin, nbytes = near
    offset = place - begin
    if 0 <= offset < nbytes:
        # Memory that is there and still cannot be accessed is memory that others share.
        what = f"{names.function} wrote to parameter {name}, which is read-only"
        hint = f"copy it first, or declare the parameter {c_type} *{name}, without const"
        return BadAccess(f"{what}: at item {offset // size}", names.where, hint)
    did = {"write": "wrote", "read": "read"}.get(kind, "went")
    side = "past the end of" if offset >= nbytes else "before the begin of"
    what = f"{names.function} {did} {side} parameter {name}: {place_text(offset, size, nbytes)}"
    return BadAccess(what, names.where, "correct the index, or the extents in its comment")


def place_text(offset: int, size: int, nbytes: int) -> str:
    """Say which item of an array a byte would belong to.

    Example:
        >>> place_text(80, 8, 16)
        'at item 10 (byte 80) of 2'
    """
    return f"at item {offset // size} (byte {offset}) of {nbytes // size}"


def _distance(place: int, begin: int, nbytes: int) -> int:
    if place < begin:
        return begin - place
    return max(0, place - (begin + nbytes) + 1)


def watch(handler: Any) -> None:
    """Let a loaded crash handler read the record."""
    handler.sapwood_watch_calls.argtypes = [ctypes.c_void_p]
    handler.sapwood_watch_calls(address())
