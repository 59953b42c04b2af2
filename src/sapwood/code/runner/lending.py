"""The memory of results: lent to the agent until it gives it back, then used again."""

import math
from typing import Any

import numpy as np

from sapwood.code.array_address import address_of
from sapwood.code.runner import calls
from sapwood.code.runner.arena import PAGE, Arena
from sapwood.comm import values
from sapwood.comm.shared_memory import ALIGNMENT

Array = np.ndarray[Any, Any]


class Lending:
    """Shared blocks of a runner, and the one in which arrays of the current call are made."""

    def __init__(self) -> None:
        self._free: dict[int, list[Arena]] = {}
        self._lent: dict[int, Arena] = {}
        self._arena: Arena | None = None
        self._wanted: dict[str, int] = {}
        self._context = ""

    def begin(self, context: str) -> None:
        """A call begins; calls of one context tend to need the same memory."""
        self._context = context

    def take_back(self, inodes: tuple[int, ...]) -> None:
        """Nobody reads these blocks any more."""
        for inode in inodes:
            block = self._lent.pop(inode)
            self._free.setdefault(block.capacity, []).append(block)

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array | None:
        """Return an array in the arena of this call; None where it is small or does not fit."""
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes <= calls.INLINE or dtype.hasobject:
            return None
        arena = self._arena
        if arena is None:
            arena = self._arena = self._take(max(nbytes + PAGE, self._wanted.get(self._context, 0)))
            arena.begin()
        start = arena.allocate(nbytes)
        if start is None:
            return None
        flat = np.frombuffer(arena.view, dtype, nbytes // dtype.itemsize, start)
        return flat if len(shape) == 1 else flat.reshape(shape)

    def lend(self, result: Any) -> tuple[calls.Bulk, calls.Bulk]:
        """Encode a result; return its body and its arrays, large ones in shared memory.

        Raises:
            DataValueError: The result cannot travel.
            ResourceError: The machine has not that much memory left.
        """
        arena, self._arena = self._arena, None
        if arena is not None:
            layout = _ArenaLayout(arena)
            try:
                encoded = values.encode(result, layout.place)
            except _NoRoomError:
                encoded = None
            if encoded is not None and layout.found:
                self._wanted[self._context] = layout.end
                layout.copy_rest()
                self._lent[arena.inode] = arena
                return self._bytes(encoded.body), calls.Bulk(shared=arena.ref(layout.end))
            self._free.setdefault(arena.capacity, []).append(arena)
        encoded = values.encode(result)
        if encoded.nbytes <= calls.INLINE:
            return self._bytes(encoded.body), calls.Bulk(bytes(encoded.payload()))
        # The next time the arrays may be made in place, each with a guard behind it.
        self._wanted[self._context] = encoded.nbytes + 2 * PAGE * len(encoded.arrays)
        block = self._take(encoded.nbytes)
        encoded.write_into(block.open())
        self._lent[block.inode] = block
        return self._bytes(encoded.body), calls.Bulk(shared=block.ref(encoded.nbytes))

    def _bytes(self, data: bytes) -> calls.Bulk:
        if len(data) <= calls.INLINE:
            return calls.Bulk(data)
        block = self._take(len(data))
        block.open()[: len(data)] = data
        self._lent[block.inode] = block
        return calls.Bulk(shared=block.ref(len(data)))

    def _take(self, nbytes: int) -> Arena:
        fitting = [size for size, free in self._free.items() if free and nbytes <= size]
        if fitting and min(fitting) <= 2 * nbytes:
            return self._free[min(fitting)].pop()
        return Arena(nbytes)


class _NoRoomError(Exception):
    """The arrays of a result do not fit into the arena of its call."""


class _ArenaLayout:
    """Finds the arrays of a result in an arena, and makes room for those that are elsewhere."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._rest: list[tuple[int, Array]] = []
        self._next = arena.used
        self.end = arena.end
        self.found = False

    def place(self, array: Array) -> int:
        """Return where an array is or will be, in bytes from the arena's begin."""
        offset = address_of(array) - self._arena.address
        if offset >= 0 and offset + array.nbytes <= self._arena.capacity:
            self.found = True
            return offset
        offset = self._next
        self._next += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
        self.end = self._next
        if self.end > self._arena.capacity:
            raise _NoRoomError
        self._rest.append((offset, array))
        return offset

    def copy_rest(self) -> None:
        """Copy the arrays that were not in the arena."""
        for offset, array in self._rest:
            self._arena.make_room(offset, offset + array.nbytes)
            flat = np.frombuffer(self._arena.view, array.dtype, array.size, offset)
            flat.reshape(array.shape)[...] = array
