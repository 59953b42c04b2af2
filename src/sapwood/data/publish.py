"""Makes a dataset visible to the other processes of this machine, copying memory once.

Arrays in memory are copied into one shared block; files are named, and every agent maps them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

import msgspec
import numpy as np

from sapwood.comm.array_types import dtype_text
from sapwood.comm.shared_memory import ALIGNMENT
from sapwood.core.errors import ClosedError, DataShapeError, ResourceError
from sapwood.data.column import Column, SharedCopy
from sapwood.data.slice import FieldRef, FilePlace, MemoryPlace, SliceRef
from sapwood.environment.memory import available_memory

MEMORY_RESERVE = 64 * 2**20
"""Bytes that publishing leaves free, so that the machine does not kill processes instead."""


class _Field(msgspec.Struct, frozen=True):
    """How to cut a reference to some items out of a whole field."""

    name: str
    dtype: str
    item_shape: tuple[int, ...]
    row: int
    """Bytes per item."""
    place: FilePlace | int
    """The file, or the offset in the shared block."""
    bounds: Any = None
    """Where the values of each item begin, if it is not one a row."""
    fence: bool = False
    """Whether an item has a number at its begin, and the last one at its end."""
    copy: Any = None
    """The shared memory in which the column was before it was published."""


class Published:
    """A dataset that agents can open; a context manager that gives the memory back.

    Args:
        items: The indices of the items.
        columns: The fields.

    Raises:
        ResourceError: The machine has not enough memory for the shared copy.
    """

    def __init__(self, items: range, columns: Mapping[str, Column]) -> None:
        self._items = items
        self._closed = False
        fields: list[_Field] = []
        copies: list[tuple[int, Column]] = []
        nbytes = 0
        for name, column in columns.items():
            dtype = column.array.dtype
            place: FilePlace | int
            copy = None
            if column.copy is not None:
                copy, place = column.copy
            elif column.place is None:
                dtype, place = dtype.newbyteorder("="), nbytes
                copies.append((nbytes, column))
                nbytes += -(-column.array.nbytes // ALIGNMENT) * ALIGNMENT
            else:
                place = column.place
            shape = tuple(column.array.shape[1:])
            row = math.prod(shape) * dtype.itemsize
            fields.append(
                _Field(
                    name, dtype_text(dtype), shape, row, place, column.bounds, column.fence, copy
                )
            )
        self._fields = tuple(fields)
        self.nbytes = nbytes
        """Bytes of shared memory that this dataset takes."""
        self._copy = copied(copies, nbytes) if nbytes else None

    def ref(self, start: int, stop: int) -> SliceRef:
        """Return what an agent needs to open the items ``start`` to ``stop``.

        Raises:
            DataShapeError: The dataset does not have these items.
            ClosedError: The dataset was withdrawn.
        """
        if self._closed:
            raise ClosedError("the dataset is not published any more")
        if not self._items.start <= start <= stop <= self._items.stop:
            raise DataShapeError(
                f"the dataset has no items {start}:{stop}",
                hint=f"its items are {self._items.start}:{self._items.stop}",
            )
        first, count = start - self._items.start, stop - start
        return SliceRef(
            start, stop, tuple(self._field_ref(field, first, count) for field in self._fields)
        )

    def _field_ref(self, field: _Field, first: int, count: int) -> FieldRef:
        own_count = -1
        if field.bounds is not None:
            first, end = int(field.bounds[first]), int(field.bounds[first + count])
            own_count = count = end - first
        elif field.fence:
            own_count = count = count + 1
        nbytes = count * field.row
        place: FilePlace | MemoryPlace
        if isinstance(field.place, FilePlace):
            offset = field.place.offset + first * field.row
            place = msgspec.structs.replace(field.place, offset=offset, nbytes=nbytes)
        else:
            copy = field.copy or self._copy
            if copy is None:
                raise ClosedError("the dataset is not published any more")
            place = MemoryPlace(copy.block.ref(field.place + first * field.row, nbytes))
        return FieldRef(field.name, field.dtype, field.item_shape, place, own_count, field.fence)

    def close(self) -> None:
        """Withdraw the dataset; slices that agents have open stay valid."""
        self._closed = True
        self._fields = ()
        if self._copy is not None:
            self._copy.block.close()
            self._copy = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{self.nbytes} bytes shared"
        return f"<Published {self._items.start}:{self._items.stop}, {state}>"


def in_shared_memory(columns: Mapping[str, Column]) -> dict[str, Column]:
    """Return columns whose arrays are copies in shared memory; those in files stay as they are.

    Raises:
        ResourceError: The machine has not enough memory.
    """
    in_memory = {
        name: column
        for name, column in columns.items()
        if column.place is None and column.copy is None and column.array.nbytes
    }
    if not in_memory:
        return dict(columns)
    offsets: dict[str, int] = {}
    nbytes = 0
    for name, column in in_memory.items():
        offsets[name] = nbytes
        nbytes += -(-column.array.nbytes // ALIGNMENT) * ALIGNMENT
    copy = copied([(offsets[name], column) for name, column in in_memory.items()], nbytes)
    found = dict(columns)
    for name, column in in_memory.items():
        array, offset = column.array, offsets[name]
        view = np.frombuffer(copy.block.view, array.dtype.newbyteorder("="), array.size, offset)
        bounds = None if column.bounds is None else np.array(column.bounds)
        found[name] = Column(
            view.reshape(array.shape), bounds=bounds, fence=column.fence, copy=(copy, offset)
        )
    return found


def copied(copies: list[tuple[int, Column]], nbytes: int) -> SharedCopy:
    """Copy arrays into shared memory.

    Args:
        copies: The arrays, each with its offset there.
        nbytes: The size of all of it.

    Raises:
        ResourceError: The machine has not enough memory.
    """
    free = available_memory()
    if nbytes > free - MEMORY_RESERVE:
        raise ResourceError(
            f"the data need {nbytes / 2**20:.1f} MiB of shared memory, and "
            f"{free / 2**20:.1f} MiB are free ({MEMORY_RESERVE / 2**20:.0f} MiB must stay free)",
            hint="save them as an .npy file, which agents map instead of copying, or use less",
        )
    copy = SharedCopy(nbytes)
    for offset, column in copies:
        array = column.array
        target = np.frombuffer(copy.block.view, array.dtype.newbyteorder("="), array.size, offset)
        target.reshape(array.shape)[...] = array
    return copy
