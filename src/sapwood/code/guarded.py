"""Arrays for native functions to write to, so placed that a write outside them is found.

An array ends at the end of a page. Behind that page, and before the first one, is address
space without access rights: an access there ends the process, and the crash handler says which
parameter it was (:mod:`sapwood.code.call_record`). The rest of the pages themselves holds a
pattern that is compared after the call.

Arrays of 32 KiB and more are in an agent's shared memory (:mod:`sapwood.code.result_memory`),
which has guards of the same kind.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import resource
import weakref
from typing import Any, Final

import numpy as np

from sapwood.code import result_memory
from sapwood.code.array_address import address_of
from sapwood.comm import address_space
from sapwood.comm.address_space import PAGE, WRITABLE
from sapwood.comm.huge_pages import HUGE_PAGE

Array = np.ndarray[Any, Any]

ALIGNMENT: Final = 64
"""Bytes: arrays begin at multiples of this; up to one less may be free behind their end."""

_UNLIMITED: Final = resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY

GUARD_SPACE: Final = 64 * 2**20 if _UNLIMITED else PAGE
"""Bytes of inaccessible address space on either side of an array's pages; where a process
may have little of it (``ulimit -v``), a page."""

MAX_KEPT_BYTES: Final = 16 * 2**20
"""Memory of arrays that are not used any more and that is kept for the next calls."""

MAX_GUARDED: Final = 2048
"""Largest number of guarded arrays: the kernel allows a process 65,530 mappings. Further
ones, when a program keeps its results, have their own pages and the pattern, but no guards."""

PATTERN: Final = b"\xa5" * PAGE
"""Content of the rest of the pages: neither zero nor a plausible number."""


def reserve(nbytes: int, fd: int = -1) -> int:
    """Map memory, or a file, between guards and return its address.

    Raises:
        MemoryError: There is no room.
    """
    alignment = HUGE_PAGE if nbytes >= HUGE_PAGE else PAGE
    how = mmap.MAP_SHARED if fd >= 0 else mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    try:
        address = address_space.reserve(nbytes, alignment=alignment, margin=GUARD_SPACE)
    except OSError as error:
        raise MemoryError(f"no {nbytes} bytes of address space") from error
    try:
        address_space.map_at(address, nbytes, WRITABLE, how, fd)
    except OSError as error:
        release(address, nbytes)
        raise MemoryError(f"no {nbytes} bytes of memory") from error
    return address


def release(address: int, nbytes: int) -> None:
    """Give back what :func:`reserve` returned, with its guards."""
    address_space.release(address - GUARD_SPACE, nbytes + 2 * GUARD_SPACE)


class _Pages:
    """Some pages between guards, for one array at a time."""

    __slots__ = ("_buffer", "_kept", "_watch", "address", "capacity", "nbytes", "start")

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.capacity = max(PAGE, -(-nbytes // PAGE) * PAGE)
        self.address = reserve(self.capacity)
        self.start = (self.capacity - max(nbytes, 1)) // ALIGNMENT * ALIGNMENT
        self._buffer = address_space.view_of(self.address, self.capacity)
        self._kept = True
        self._watch: weakref.ref[Array] | None = None
        mark(self.address + self.start, nbytes)

    def array(self, dtype: np.dtype[Any], count: int) -> Array:
        """Return the array; when its last reference is gone the pages are free again."""
        array: Array = np.frombuffer(self._buffer, dtype, count, self.start)
        self._watch = weakref.ref(array, self._unused)
        _lent.add(self)
        return array

    def freeze(self) -> None:
        """Have every further write refused."""
        address_space.protect(self.address, self.capacity, mmap.PROT_READ)
        self._kept = False

    def _unused(self, _array: object) -> None:
        _lent.discard(self)
        self._watch = None
        if self._kept and _free_bytes[0] + self.capacity <= MAX_KEPT_BYTES:
            _free_bytes[0] += self.capacity
            _free.setdefault(self.nbytes, []).append(self)
        else:
            release(self.address, self.capacity)


_free: dict[int, list[_Pages]] = {}  # by the size of the array
_free_bytes = [0]
_lent: set[_Pages] = set()
_all = [False]


def guard_all_arrays() -> None:
    """Have native functions of this process see copies of all their arrays, between guards."""
    _all[0] = True


def guards_all_arrays() -> bool:
    """Whether all arrays lie between guards, those that are only read as well."""
    return _all[0]


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an array between guards, without a defined content.

    Raises:
        MemoryError: There is no room.
        ValueError: An extent is negative.

    Example:
        >>> empty((2, 3), np.dtype("f4")).shape
        (2, 3)
    """
    return _flat(shape, dtype).reshape(shape)


def zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an array of zeros between guards; errors as of :func:`empty`."""
    flat = _flat(shape, dtype)
    if dtype.names:
        flat.view(np.uint8).fill(0)
    else:
        flat.fill(0)
    return flat if len(shape) == 1 else flat.reshape(shape)


def copy(array: Array) -> Array:
    """Return a copy between guards; errors as of :func:`empty`."""
    if array.dtype.hasobject:
        return array.copy()  # no native function takes it
    made = empty(array.shape, array.dtype)
    made[...] = array
    return made


def read_only(array: Array) -> Array:
    """Return a copy between guards that cannot be written to; errors as of :func:`empty`."""
    pages = _Pages(array.nbytes)
    made = pages.array(array.dtype, array.size).reshape(array.shape)
    made[...] = array
    pages.freeze()
    return made


def _flat(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    if any(extent < 0 for extent in shape):
        raise ValueError("negative dimensions are not allowed")
    count = math.prod(shape)
    nbytes = count * dtype.itemsize
    shared = result_memory.take((count,), dtype)
    if shared is not None:
        mark(address_of(shared), nbytes)
        return shared
    kept = _free.get(nbytes)
    if not kept and len(_lent) >= MAX_GUARDED:
        return _unguarded(nbytes).view(dtype)
    if kept:
        pages = kept.pop()
        _free_bytes[0] -= pages.capacity
    else:
        pages = _Pages(nbytes)
    return pages.array(dtype, count)


def _unguarded(nbytes: int) -> Array:
    """Return bytes that have their pages for themselves."""
    capacity = max(PAGE, -(-nbytes // PAGE) * PAGE)
    memory = np.empty(capacity + PAGE, np.uint8)
    start = -memory.ctypes.data % PAGE + (capacity - max(nbytes, 1)) // ALIGNMENT * ALIGNMENT
    array: Array = memory[start:][:nbytes]  # in two steps: an empty slice would begin at 0
    mark(array.ctypes.data, nbytes)
    return array


def mark(address: int, nbytes: int) -> None:
    """Write the pattern around an array."""
    before, behind = _rest(address, nbytes)
    ctypes.memset(address - before, PATTERN[0], before)
    ctypes.memset(address + nbytes, PATTERN[0], behind)


def strayed(address: int, nbytes: int) -> int | None:
    """Return where the bytes around an array were changed; None when they were not.

    That is the offset of the first such byte from the begin of the array, negative before it.
    The bytes are marked again, so that the memory can be used for the next array.
    """
    before, behind = _rest(address, nbytes)
    head = ctypes.string_at(address - before, before)
    tail = ctypes.string_at(address + nbytes, behind)
    if PATTERN.startswith(head) and PATTERN.startswith(tail):
        return None
    mark(address, nbytes)
    if not PATTERN.startswith(tail):
        return nbytes + _first_other(tail)
    # Of bytes before the array, the nearest is the first that a wrong index meets.
    return -1 - _first_other(head[::-1])


def around(address: int, nbytes: int) -> tuple[tuple[memoryview, bytes], ...]:
    """Return the bytes around a marked array, as a view, and as they should be.

    They must not be looked at when the array does not exist any more.
    """
    return tuple(
        (address_space.view_of(place, size), PATTERN[:size])
        for place, size in marked(address, nbytes)
    )


def marked(address: int, nbytes: int) -> tuple[tuple[int, int], ...]:
    """Return where the bytes around a marked array are: address and size of each part."""
    before, behind = _rest(address, nbytes)
    parts = ((address - before, before), (address + nbytes, behind))
    return tuple((place, size) for place, size in parts if size)


def _rest(address: int, nbytes: int) -> tuple[int, int]:
    return address % PAGE, -(address + nbytes) % PAGE


def _first_other(data: bytes) -> int:
    return next(place for place, byte in enumerate(data) if byte != PATTERN[0])
