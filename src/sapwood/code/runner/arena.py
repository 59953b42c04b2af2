"""A block of shared memory in which the arrays of one result are made, each before a guard."""

from functools import partial
from sys import getrefcount
from typing import Any, NamedTuple

import numpy as np

from sapwood.code import guarded
from sapwood.comm import address_space
from sapwood.comm.address_space import NO_ACCESS, PAGE, WRITABLE
from sapwood.comm.shared_memory import ALIGNMENT, SharedBlock, SharedRef

Array = np.ndarray[Any, Any]

ALONE = 2
"""References to an array that only its arena has, as the function that counts sees them."""


class _Placed(NamedTuple):
    """An array in an arena, and how far the arena is used with it."""

    dtype: np.dtype[Any]
    nbytes: int
    used: int
    end: int
    array: Array


class Arena:
    """A shared block, mapped between guards.

    An array ends where a page does; the page behind it cannot be touched.

    Args:
        nbytes: Size.

    Raises:
        ResourceError: The machine has not that much memory left.
        MemoryError: There is no room for it in the address space.

    Attributes:
        capacity: Size in bytes.
        address: Where it is mapped.
        end: Where the last array ends.
    """

    __slots__ = (
        "_arrays",
        "_block",
        "_forgot",
        "_next",
        "_protected",
        "_used",
        "address",
        "capacity",
        "end",
        "inode",
        "view",
    )

    def __init__(self, nbytes: int) -> None:
        block = self._block = SharedBlock(nbytes)
        self.capacity = block.capacity
        self.inode = block.inode
        try:
            self.address = guarded.reserve(block.capacity, block.fd)
        except MemoryError:
            block.close()
            raise
        release = partial(guarded.release, self.address, block.capacity)
        self.view = address_space.owned_view_of(self.address, block.capacity, release)
        self._protected: set[int] = set()
        self._forgot = False
        # The arrays of this result, then the last one's as long as they have the same places.
        self._arrays: list[_Placed] = []
        self._next = 0
        self._used = 0
        self.end = 0

    def open(self) -> memoryview:
        """Return all of its bytes, to be written to without regard to guards."""
        self._arrays.clear()
        if self._protected:
            address_space.protect(self.address, self.capacity, WRITABLE)
            self._protected.clear()
        return self.view

    def array(self, dtype: np.dtype[Any], nbytes: int, *, first: bool = False) -> Array | None:
        """Return a new array, the first of a result or one more; None where it does not fit.

        Where the result has been like the one before so far, so is the array; user code gets a
        view of it, as what it does to that, its shape for example, must not stay.
        """
        if first:
            self._used = self.end = self._next = 0
            self._forgot = False
        if self._next < len(self._arrays):
            placed = self._arrays[self._next]
            if placed.dtype is dtype and placed.nbytes == nbytes:
                self._next += 1
                self._used, self.end = placed.used, placed.end
                return placed.array
            del self._arrays[self._next :]
        start = self.allocate(nbytes)
        if start is None:
            return None
        array: Array = np.frombuffer(self.view, dtype, nbytes // dtype.itemsize, start)
        if self._next == len(self._arrays):
            self._arrays.append(_Placed(dtype, nbytes, self._used, self.end, array))
            self._next += 1
        return array

    def allocate(self, nbytes: int) -> int | None:
        """Return the offset of a new array; None where it does not fit."""
        end = -(-(self._used + nbytes) // PAGE) * PAGE
        if end > self.capacity:
            return None
        self.make_room(self._used, end)
        if end < self.capacity and end not in self._protected:
            address_space.protect(self.address + end, PAGE, NO_ACCESS)
            self._protected.add(end)
        start = (end - nbytes) // ALIGNMENT * ALIGNMENT
        self._used = end + PAGE
        self.end = start + nbytes
        return start

    def make_room(self, start: int, stop: int) -> None:
        """Remove guards of an earlier layout that lie between two offsets."""
        if any(start <= page + PAGE - 1 and page < stop for page in self._protected):
            self._forgot = self._used > 0
            self.open()

    @property
    def is_held(self) -> bool:
        """Whether user code may still have an array of the last result."""
        return self._forgot or any(getrefcount(one.array) > ALONE for one in self._arrays)

    @property
    def used(self) -> int:
        """Where something that needs no guard may begin."""
        return min(self._used, self.capacity)

    def ref(self, nbytes: int) -> SharedRef:
        """Return a reference to its first bytes."""
        return self._block.ref(0, nbytes)

    def close(self) -> None:
        """Give the memory back: all of it now, or when user code has no array in it any more."""
        held = self.is_held
        self._arrays.clear()
        self.view = memoryview(b"")
        if held:
            self._block.close()
        else:
            self._block.discard()
