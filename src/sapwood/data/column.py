"""One field of a dataset: an array, and the position of its bytes if they are in a file."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np

from sapwood.comm.shared_memory import SharedBlock
from sapwood.core.errors import DataShapeError
from sapwood.data.slice import FilePlace

Array = np.ndarray[Any, np.dtype[Any]]


class SharedCopy:
    """A block of shared memory that lives as long as this object is referenced."""

    __slots__ = ("__weakref__", "block")

    def __init__(self, nbytes: int) -> None:
        self.block = SharedBlock(nbytes)
        weakref.finalize(self, self.block.close).atexit = False  # the kernel frees it then


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """A field's values.

    Attributes:
        array: One item per row; for a file a read-only memory map.
        place: The bytes in the file, if agents can map them as they are; None means that
            publishing copies the array.
        bounds: Of a sparse matrix, where the values of each row begin, and where the last end;
            None where each item is one row of the array.
        fence: Whether this is such an array of bounds itself: of *n* items *n* + 1 numbers, which
            begin with 0 in each slice.
        copy: The shared memory that the array is in already, with its offset there.
    """

    array: Array
    place: FilePlace | None = None
    bounds: Array | None = None
    fence: bool = False
    copy: tuple[SharedCopy, int] | None = None

    @property
    def per_item(self) -> bool:
        """Whether each item is one row of the array."""
        return self.bounds is None and not self.fence


@dataclasses.dataclass(frozen=True, slots=True)
class Decoded:
    """What a codec reads from a file.

    Attributes:
        columns: The fields.
        meta: What else the file says, for example the height and width of an image.
        named: Whether the names of the fields come from the file; otherwise there is one
            field, and whoever wants the data names it.
    """

    columns: Mapping[str, Column]
    meta: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    named: bool = False


def check_array(array: Array, where: str) -> Array:
    """Return the array if a dataset can hold it: at least one item, no Python objects.

    Raises:
        DataShapeError: It cannot; the message says why and what to do.
    """
    if array.ndim == 0:
        raise DataShapeError(
            "the data are a single value, not an array of items",
            where=where,
            hint="give an array whose first axis counts the items",
        )
    if array.dtype.hasobject:
        raise DataShapeError(
            "the array holds Python objects, which native code cannot read",
            where=where,
            hint="convert it, for example with array.astype(float)",
        )
    if isinstance(array, np.ma.MaskedArray):
        raise DataShapeError(
            "the array is masked, and a mask does not reach the agents",
            where=where,
            hint="fill the masked values first: array.filled(value)",
        )
    if array.size == 0:
        raise DataShapeError(
            f"the data are empty (shape {array.shape})",
            where=where,
            hint="give at least one item",
        )
    return array
