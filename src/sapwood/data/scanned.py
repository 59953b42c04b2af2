"""What a format finds out about a file without reading its rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from sapwood.data.stored import StoredPiece


@dataclasses.dataclass(frozen=True, slots=True)
class ColumnType:
    """What the values of a column are.

    Attributes:
        dtype: The type of its elements.
        item_shape: The shape of one row.
    """

    dtype: np.dtype[Any]
    item_shape: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Scanned:
    """The contents of a file.

    Attributes:
        pieces: In which pieces its rows are.
        columns: The columns that are wanted, by name; one named ``""`` if they have no names.
        names: The names of all columns.
        tail: Where its table of contents lies, offset and bytes.
        layout: What the format has to know when it reads a piece.
        meta: What else the file says.
    """

    pieces: tuple[StoredPiece, ...]
    columns: Mapping[str, ColumnType]
    names: tuple[str, ...] = ()
    tail: tuple[int, int] = (0, 0)
    layout: str = ""
    meta: Mapping[str, Any] = dataclasses.field(default_factory=dict)
