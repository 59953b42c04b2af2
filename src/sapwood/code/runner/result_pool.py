"""The pool of memory for results: lent to the agent until it gives it back, then used again."""

import math
import operator
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from sapwood.code.array_address import address_of
from sapwood.code.runner import calls
from sapwood.code.runner.arena import Arena
from sapwood.code.runner.result_codec import Parts, ResultCodec
from sapwood.comm import values
from sapwood.comm.address_space import PAGE
from sapwood.comm.shared_memory import ALIGNMENT
from sapwood.core.errors import DataValueError

Array = np.ndarray[Any, Any]

MAX_FREE_BYTES = 256 * 2**20
"""Bytes of blocks that a runner keeps for results to come."""

ALWAYS_FREE = 2
"""Blocks that it keeps for them however large they are: a result needs two or three in turn."""

MAX_CONTEXTS = 256
"""Runs, streams and functions of which it keeps in mind how large their results are."""


class ResultPool:
    """The shared blocks of a runner, and the one in which arrays of the current call are made.

    Attributes:
        context: Procedure and context of the current call: those that have the same tend to need
            the same memory.
        pickles: Whether a result that cannot travel as a value may travel pickled.
    """

    def __init__(self) -> None:
        self._free: dict[int, Arena] = {}  # by inode, those that were used last at the end
        self._lent: dict[int, Arena] = {}
        self._arena: Arena | None = None
        self._made: list[Array] = []
        self._wanted: dict[tuple[str, str], int] = {}
        self.context = ("", "")
        self.pickles = False
        self._check: Callable[[Any], object] | None = None
        self._codec = ResultCodec()
        self._allocating = threading.RLock()

    def expect(
        self,
        context: tuple[str, str],
        check: Callable[[Any], object] | None,
        *,
        pickles: bool = False,
    ) -> None:
        """Expect the results of another procedure or context.

        Args:
            context: Procedure and context.
            check: Raises an error about a result that is wrong; asked of each that is not like
                the one before it.
            pickles: Whether what cannot travel as a value may travel pickled.
        """
        self.context = context
        self.pickles = pickles
        self._check = check
        self._codec = ResultCodec()

    def take_back(self, inodes: tuple[int, ...]) -> None:
        """Reuse blocks that are not read any more."""
        for inode in inodes:
            self._keep(self._lent.pop(inode))

    def allocate(self, shape: Any, dtype: Any) -> Array | None:
        """Return an array in the arena of this call; None where it is small or does not fit.

        User code may call this from several threads.

        Args:
            shape: Extents of the array, or its only one.
            dtype: Type of its items, or what numpy makes one of.
        """
        with self._allocating:
            extents = _extents(shape)
            kind: np.dtype[Any] = np.dtype(dtype)
            nbytes = math.prod(extents) * kind.itemsize
            if nbytes <= calls.INLINE or kind.hasobject:
                return None
            arena = self._arena
            if arena is None:
                arena = self._arena = self._take(
                    max(nbytes + PAGE, self._wanted.get(self.context, 0))
                )
                flat = arena.array(kind, nbytes, first=True)
            else:
                flat = arena.array(kind, nbytes)
            if flat is None:
                return None
            self._made.append(flat)
            return flat[:] if len(extents) == 1 else flat.reshape(extents)

    def abandon(self) -> None:
        """The call failed: what it made is not wanted."""
        arena, self._arena = self._arena, None
        self._made = []
        if arena is not None:
            self._keep(arena)

    def lend(self, result: Any) -> Parts:
        """Encode a result; return its body and its arrays, large ones in shared memory.

        Raises:
            SapwoodError: The result is wrong.
            DataValueError: It cannot travel.
            ResourceError: The machine has not that much memory left.
        """
        arena = self._arena
        if arena is None:
            parts = self._codec.encode(result)
            if parts is not None:
                return parts
            if self._check is not None:
                self._check(result)
            return self._elsewhere(result)
        if self._check is not None:
            self._check(result)
        self._arena = None
        made, self._made = self._made, []
        parts = self._codec.encode_placed(result, made, arena)
        if parts is not None:
            self._lent[arena.inode] = arena
            return parts
        try:
            return self._in_place(arena, made, result) or self._elsewhere(result)
        finally:
            if arena.inode not in self._lent:  # until now arrays of the result were in it
                self._keep(arena)

    def _in_place(self, arena: Arena, made: list[Array], result: Any) -> Parts | None:
        """Lend the arena in which arrays of the result were made; None if there are none."""
        layout = _ArenaLayout(arena)
        try:
            encoded = values.encode(result, layout.add)
        except _NoRoomError:
            return None
        except DataValueError:
            if not self.pickles:
                raise
            return None
        if not layout.found:
            return None
        self._want(layout.end)
        layout.copy_rest()
        body = self._bytes(encoded.body)
        parts = body, calls.Bulk(shared=arena.ref(layout.end))
        self._lent[arena.inode] = arena
        if body.shared is None:
            self._codec.learn_placed(result, made, body, layout.end)
        return parts

    def _elsewhere(self, result: Any) -> Parts:
        """Copy the arrays of a result to where they can travel."""
        try:
            encoded = values.encode(result)
        except DataValueError:
            if not self.pickles:
                raise
            encoded = values.encode(_pickled(result))
        if encoded.nbytes <= calls.INLINE:
            if len(encoded.body) <= calls.INLINE:
                self._codec.learn(result, encoded)
            return self._bytes(encoded.body), calls.Bulk(bytes(encoded.payload()))
        # The next time the arrays may be made in place, each with a guard behind it.
        self._want(encoded.nbytes + 2 * PAGE * len(encoded.arrays))
        block = self._take(encoded.nbytes)
        encoded.write_into(block.open())
        self._lent[block.inode] = block
        return self._bytes(encoded.body), calls.Bulk(shared=block.ref(encoded.nbytes))

    def close(self) -> None:
        """Give all memory back; arrays in it must not be used afterwards."""
        self.abandon()
        for arena in (*self._lent.values(), *self._free.values()):
            arena.close()
        self._lent.clear()
        self._free.clear()

    def _bytes(self, data: bytes) -> calls.Bulk:
        if len(data) <= calls.INLINE:
            return calls.Bulk(data)
        block = self._take(len(data))
        block.open()[: len(data)] = data
        self._lent[block.inode] = block
        return calls.Bulk(shared=block.ref(len(data)))

    def _take(self, nbytes: int) -> Arena:
        best: Arena | None = None
        for arena in self._free.values():
            if (
                nbytes <= arena.capacity <= 2 * nbytes
                and (best is None or arena.capacity <= best.capacity)
                and not arena.is_held
            ):
                best = arena
        if best is None:
            return Arena(nbytes)
        del self._free[best.inode]
        return best

    def _keep(self, arena: Arena) -> None:
        """Keep an unread arena for results to come; free arenas beyond the limit."""
        free = self._free
        free[arena.inode] = arena
        while (
            len(free) > ALWAYS_FREE
            and sum(each.capacity for each in free.values()) > MAX_FREE_BYTES
        ):
            free.pop(next(iter(free))).close()

    def _want(self, nbytes: int) -> None:
        """Note how large results of this context are."""
        self._wanted.pop(self.context, None)
        while len(self._wanted) >= MAX_CONTEXTS:
            del self._wanted[next(iter(self._wanted))]
        self._wanted[self.context] = nbytes


def _pickled(result: Any) -> values.Pickled:
    """Return a result that cannot travel as a value, pickled."""
    from sapwood.code import pickling  # noqa: PLC0415 - few runners need it

    return pickling.dump(
        result,
        f"a result of type {type(result).__qualname__}",
        "return what can be pickled: no open files, locks, connections or generators",
    )


def _extents(shape: Any) -> tuple[int, ...]:
    """Return a shape as numpy understands it: one whole number or several, of any type."""
    try:
        return (operator.index(shape),)
    except TypeError:
        return tuple(map(operator.index, shape))


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

    def add(self, array: Array) -> int:
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
