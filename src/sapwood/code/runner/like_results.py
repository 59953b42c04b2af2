"""Encoding results that are like the one before: what does not change is not made again.

Between two calls of a runner others have used the caches of its core, so every object that
Python looks at comes from memory; here it looks at few.
"""

from __future__ import annotations

from operator import attrgetter
from sys import getrefcount
from typing import Any

import numpy as np

from sapwood.code.runner import calls
from sapwood.code.runner.arena import ALONE, Arena
from sapwood.comm import values
from sapwood.comm.shared_memory import ALIGNMENT

Array = np.ndarray[Any, Any]

Field = tuple[str, np.dtype[Any], tuple[int, ...]]
"""Key, type and shape of an array in a dictionary."""

Parts = tuple[calls.Bulk, calls.Bulk]
"""Body and arrays of an encoded result."""

_looks_of = attrgetter("__class__", "dtype", "shape", "strides")  # all in one go

NO_PARTS: Parts = (calls.Bulk(), calls.Bulk())


def fields_of(result: Any) -> tuple[Field, ...]:
    """Return the fields of a dictionary of contiguous arrays; nothing of anything else."""
    if type(result) is not dict:
        return ()
    for key, array in result.items():
        if type(key) is not str or type(array) is not np.ndarray or not array.size:
            return ()
        if not array.flags.c_contiguous:
            return ()
    return tuple((key, array.dtype, array.shape) for key, array in result.items())


def has_fields(result: Any, fields: tuple[Field, ...]) -> bool:
    """Whether a result is a dictionary of contiguous arrays with just these fields, in order.

    Example:
        >>> fields = fields_of({"a": np.zeros(3)})
        >>> has_fields({"a": np.ones(3)}, fields), has_fields({"a": np.ones(4)}, fields)
        (True, False)
    """
    if type(result) is not dict or len(result) != len(fields) or not fields:
        return False
    for (key, dtype, shape), (name, array) in zip(fields, result.items(), strict=True):
        if (
            name != key
            or type(array) is not np.ndarray
            or array.dtype is not dtype
            or array.shape != shape
            or not array.flags.c_contiguous
        ):
            return False
    return True


class InlineResults:
    """Encodes results that travel in a datagram; sooner when they have the fields of the last one.

    Example:
        >>> results = InlineResults()
        >>> first = {"a": np.arange(2.0), "b": np.arange(3)}
        >>> results.learn(first, values.encode(first))
        >>> body, payload = results.encode({"a": np.ones(2), "b": np.ones(3, int)})
        >>> values.decode(body.inline, payload.inline)
        {'a': array([1., 1.]), 'b': array([1, 1, 1])}
        >>> results.encode({"a": 1}) is None
        True
    """

    __slots__ = ("_body", "_fields", "_gaps")

    def __init__(self) -> None:
        self._fields: tuple[Field, ...] = ()
        self._body = calls.Bulk()
        self._gaps: tuple[bytes, ...] = ()

    def learn(self, result: Any, encoded: values.Encoded) -> None:
        """Note what a result looks like and how it was encoded."""
        self._fields = fields_of(result)
        self._body = calls.Bulk(encoded.body)
        # Behind each array as many bytes as the next one needs to begin where it should.
        gaps = tuple(bytes(-array.nbytes % ALIGNMENT) for array in encoded.arrays)
        self._gaps = gaps if len(gaps) > 1 else (b"",)

    def encode(self, result: Any) -> Parts | None:
        """Return body and arrays of a result; None if it is not like the last one."""
        if not has_fields(result, self._fields):
            return None
        parts: list[bytes] = []
        for array, gap in zip(result.values(), self._gaps, strict=True):
            parts += (array.tobytes(), gap)
        return self._body, calls.Bulk(b"".join(parts))


class PlacedResult:
    """How a result was encoded whose arrays were made in an arena, one after the other.

    Args:
        result: The result.
        made: The arrays that were made in the arena for it.
        parts: What it became.

    Attributes:
        parts: What a result becomes that is like it, in the same arena.
    """

    __slots__ = ("_fields", "parts")

    def __init__(self, result: Any, made: list[Array], parts: Parts) -> None:
        self._fields = fields_of(result)
        self.parts = parts
        if not self.fits(result, made):
            self._fields = ()

    def fits(self, result: Any, made: list[Array]) -> bool:
        """Whether the arrays of a result are those that were made for it, in the same order.

        Those that lie in the same place: all of an array, of whatever shape.
        """
        fields = self._fields
        if type(result) is not dict or not len(result) == len(fields) == len(made) or not fields:
            return False
        for (key, dtype, shape), (name, array), whole in zip(
            fields, result.items(), made, strict=True
        ):
            if array is not whole and (
                type(array) is not np.ndarray
                or array.base is not whole
                or array.nbytes != whole.nbytes
            ):
                return False
            if name != key or array.dtype is not dtype or array.shape != shape:
                return False
            if not array.flags.c_contiguous:
                return False
        return True


class RepeatedArray:
    """A result that was one array in a dictionary, made in an arena, and is expected again.

    That is what most maps with a large result return, so as little as possible is looked at.

    Args:
        asked: Shape and type of the array as user code gave them.
        arena: Where it was made.
        flat: The array that was made there for it.
        result: The result.
        parts: What it became.

    Attributes:
        arena: Where the array is made.
        flat: The array there.
        inodes: The arena's, as it is given back.
        free: The array there, unless this call has it or somebody reads it. Whoever takes it out
            of the list has it, in whichever thread.
        lent: Whether somebody reads it.
    """

    __slots__ = (
        "_kind",
        "_looks",
        "_name",
        "_parts",
        "_type",
        "_wanted",
        "arena",
        "flat",
        "free",
        "inodes",
        "lent",
    )

    def __init__(
        self,
        asked: tuple[Any, Any],
        arena: Arena,
        flat: Array,
        result: dict[str, Array],
        parts: Parts,
    ) -> None:
        self._wanted, self._kind = asked
        self._type = type(self._wanted)
        ((self._name, array),) = result.items()
        self._looks = _looks_of(array)
        self.arena = arena
        self.flat = flat
        self.inodes = (arena.inode,)
        self._parts = parts
        self.free: list[Array] = []
        self.lent = True

    def array(self, shape: Any, kind: Any) -> Array | None:
        """Return the array for the next result; None where it is not free, or not what is asked."""
        if kind is not self._kind or type(shape) is not self._type or shape != self._wanted:
            return None
        try:
            flat = self.free.pop()
        except IndexError:
            return None
        if getrefcount(flat) == ALONE + 2:  # both here
            return flat.reshape(shape)
        self.free.append(flat)  # user code has kept a view of it
        return None

    @property
    def is_taken(self) -> bool:
        """Whether this call has the array."""
        return not self.lent and not self.free

    def lend(self, result: Any) -> Parts | None:
        """Return what a result becomes that is this one again, with other numbers; else None."""
        if self.lent or self.free or type(result) is not dict or len(result) != 1:
            return None
        try:
            array = result[self._name]
            if array.base is not self.flat or _looks_of(array) != self._looks:
                return None
        except (AttributeError, KeyError):
            return None
        self.lent = True
        return self._parts
