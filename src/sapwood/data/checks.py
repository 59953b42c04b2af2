"""Checks of arrays that a program can ask for before it runs."""

from __future__ import annotations

import numpy as np

from sapwood.core.arguments import text, whole
from sapwood.core.errors import DataShapeError, DataValueError
from sapwood.core.shown import shown
from sapwood.data.column import Array

BLOCK_BYTES = 8 * 2**20
"""Bytes looked at together, so that checking a large file does not take its size in memory."""

KINDS = {
    "f": "floating-point",
    "i": "signed integer",
    "u": "unsigned integer",
    "b": "boolean",
    "c": "complex",
}


def require_kind(
    array: Array, *, ndim: int | None, kind: str, columns: int | None, where: str
) -> None:
    """Check type and shape.

    Raises:
        DataShapeError: They are not as asked for; the message has what was found.
    """
    if ndim is not None and array.ndim != whole(ndim, "ndim", DataShapeError):
        raise DataShapeError(
            f"an array of {ndim} dimension{'s' * (ndim != 1)} is expected, "
            f"and this one has the shape {array.shape}",
            where=where,
            hint="use reshape(-1, 1) to make one column of it"
            if (ndim, array.ndim) == (2, 1)
            else "reshape it; the first axis counts the items",
        )
    if text(kind, "kind", DataShapeError) and array.dtype.kind not in kind:
        wanted = " or ".join(KINDS.get(letter, shown(letter)) for letter in kind)
        raise DataShapeError(
            f"{wanted} numbers are expected, and these are {array.dtype}",
            where=where,
            hint="convert them with astype",
        )
    if columns is None:
        return
    columns = whole(columns, "columns", DataShapeError)
    if array.ndim < 2 or array.shape[1] != columns:
        raise DataShapeError(
            f"items of {columns} numbers are expected, and the shape is {array.shape}", where=where
        )


def find_not_finite(array: Array, *, where: str) -> None:
    """Check block by block that all values are finite; whole numbers always are.

    Raises:
        DataValueError: Some are NaN or infinite.
    """
    for name in array.dtype.names or ():
        find_not_finite(array[name], where=f"{where}, {name}")
    if array.dtype.kind not in "fc":
        return
    row_bytes = max(1, array.nbytes // len(array))
    step = max(1, BLOCK_BYTES // row_bytes)
    nan = infinite = 0
    first: tuple[int, ...] | None = None
    for start in range(0, len(array), step):
        block = array[start : start + step]
        bad = ~np.isfinite(block)
        if not bad.any():
            continue
        if first is None:
            index = np.unravel_index(int(bad.argmax()), bad.shape)
            first = (start + int(index[0]), *(int(axis) for axis in index[1:]))
        nan += (found := int(np.isnan(block).sum()))
        infinite += int(bad.sum()) - found
    if first is None:
        return
    row, *rest = first
    place = f"row {row}" + (f", column {', '.join(map(str, rest))}" if rest else "")
    kinds = [f"{count} {name}" for count, name in ((nan, "NaN"), (infinite, "infinite")) if count]
    raise DataValueError(
        f"the data hold values that are not finite: {' and '.join(kinds)}; "
        f"the first at {place} (counted from 0)",
        where=where,
        hint="remove these rows, or replace the values, for example with numpy.nan_to_num; if the "
        "program can work with them, let it: allow_nan = True in the program, "
        "cluster.run(…, allow_nan=True), or `sapwood run PROGRAM --allow-nan`",
    )
