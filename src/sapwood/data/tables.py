"""Data frames, Arrow tables and sparse matrices as named arrays.

Nothing here imports pandas, polars or scipy: objects with their methods count as theirs. Only
tables that export Arrow data need pyarrow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sapwood.core.errors import DataShapeError
from sapwood.core.shown import shown
from sapwood.data.arrow_columns import as_array, pyarrow_for
from sapwood.data.column import Array, Column, check_array
from sapwood.data.formats.choice import Choice

CSR_PARTS = ("data", "indices", "indptr")
"""The arrays of a sparse matrix in CSR form, as scipy names them."""


ARROW_METHODS = ("__arrow_c_stream__", "__arrow_c_array__", "__dataframe__")
"""Methods by which tables of any package export their columns: as Arrow data by a capsule, or by
the older interchange protocol of data frames."""


def is_frame(value: object) -> bool:
    """Whether a value is a table: it has named columns, as data frames and Arrow tables have."""
    if hasattr(value, "columns") and hasattr(value, "to_numpy"):
        return True
    if not any(hasattr(value, method) for method in ARROW_METHODS):
        return False
    # Arrow's arrays are not tables; its tables and record batches have __array__, too.
    return hasattr(value, "column_names") or not hasattr(value, "__array__")


def is_sparse(value: object) -> bool:
    """Whether a value is a sparse matrix or array of scipy."""
    return hasattr(value, "tocsr") and hasattr(value, "nnz")


def frame_columns(
    frame: Any, fields: Sequence[str], chosen: Sequence[str] | None = None
) -> tuple[dict[str, Column], dict[str, Any]]:
    """Return the wanted columns of a table, and what else it says.

    If every wanted field is the name of a column, each becomes an array of shape (rows,), and the
    other columns may hold anything. Otherwise the whole table becomes the one field that is
    wanted, of shape (rows, columns).

    Args:
        frame: A data frame, or anything that exports Arrow data.
        fields: The fields that are wanted.
        chosen: The columns that may be used; None for all.

    Raises:
        DataShapeError: Several fields are wanted and one is not a column, a column holds no
        numbers,
            or is chosen and missing.
        DataValueError: A column of whole numbers has nulls.
    """
    if hasattr(frame, "columns") and hasattr(frame, "to_numpy"):
        names = [str(name) for name in frame.columns]
        choice = Choice(fields, chosen, "the data frame")
        read = choice(names) or ()
        if choice.by_name(names):
            return {
                field: Column(check_array(np.asarray(frame[field]), f"column {shown(field)}"))
                for field in read
            }, {}
        part = frame if chosen is None else frame[list(chosen)]
        array = check_array(np.ascontiguousarray(part.to_numpy()), "a data frame")
        return {fields[0]: Column(array)}, {"columns": tuple(read)}
    return _arrow_columns(_arrow_table(frame), fields, chosen)


def _arrow_table(frame: Any) -> Any:
    """Return a table of Arrow that shares the memory of another table, where it can."""
    where = f"a {type(frame).__module__.partition('.')[0]} {type(frame).__name__}"
    pa = pyarrow_for(where)
    try:
        if isinstance(frame, pa.Table):
            return frame
        if isinstance(frame, pa.RecordBatch):
            return pa.Table.from_batches([frame])
        if hasattr(frame, "__arrow_c_stream__") or hasattr(frame, "__arrow_c_array__"):
            return pa.table(frame)
        from pyarrow.interchange import from_dataframe  # noqa: PLC0415 - an optional package

        return from_dataframe(frame)
    except (pa.ArrowException, ValueError, TypeError, RuntimeError) as error:
        raise DataShapeError(
            f"the data are not an Arrow table: {error}",
            where=where,
            hint="give a table with named columns, or an array",
        ) from error


def _arrow_columns(
    table: Any, fields: Sequence[str], chosen: Sequence[str] | None
) -> tuple[dict[str, Column], dict[str, Any]]:
    where = "an Arrow table"
    names = list(table.column_names)
    choice = Choice(fields, chosen, where)
    read = choice(names) or ()
    arrays = {name: as_array(table.column(name), name, where) for name in read}
    if choice.by_name(names):
        return {
            name: Column(check_array(arrays[name], f"column {shown(name)}")) for name in read
        }, {}
    parts = list(arrays.values())
    if not parts:
        raise DataShapeError("the table has no columns", where=where)
    wide = [name for name, array in arrays.items() if array.ndim > 1]
    if len(parts) == 1 and wide:
        whole = parts[0]
    elif wide:
        raise DataShapeError(
            f"column {shown(wide[0])} has several numbers a row, and cannot stand beside others in "
            "one field",
            where=where,
            hint=f"choose it alone with columns=[{shown(wide[0])}], or name it in "
            "the program's inputs",
        )
    else:
        whole = np.stack(parts, axis=1)
    return {fields[0]: Column(check_array(whole, where))}, {"columns": tuple(read)}


def sparse_columns(matrix: Any, name: str = "") -> tuple[dict[str, Column], int]:
    """Return the three arrays of a sparse matrix as fields, and the number of its rows.

    Args:
        matrix: The matrix; it is brought into CSR form.
        name: Begins the names: field ``A`` becomes ``A_data``, ``A_indices`` and ``A_indptr``.

    Raises:
        DataShapeError: It has no rows, or more than two dimensions.
    """
    if len(matrix.shape) != 2 or not matrix.shape[0]:
        raise DataShapeError(
            f"a sparse matrix of shape {matrix.shape} has no rows to split",
            hint="give a matrix of two dimensions with at least one row",
        )
    arrays = csr_arrays(matrix, name)
    values, indices, indptr = arrays.values()
    bounds = np.asarray(indptr)
    columns = [Column(values, bounds=bounds), Column(indices, bounds=bounds)]
    fence = Column(indptr, fence=True)
    return dict(zip(arrays, [*columns, fence], strict=True)), int(matrix.shape[0])


def csr_arrays(matrix: Any, name: str = "") -> dict[str, Array]:
    """Return the three arrays of a sparse matrix in CSR form by name."""
    csr = matrix.tocsr()
    prefix = f"{name}_" if name else ""
    return {prefix + part: np.asarray(getattr(csr, part)) for part in CSR_PARTS}


def native_arguments(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return keyword arguments of a native function with arrays for what holds arrays.

    A column of a data frame becomes an array. A sparse matrix ``A`` becomes the arguments
    ``A_data``, ``A_indices`` and ``A_indptr``.
    """
    found: dict[str, Any] = {}
    for name, value in kwargs.items():
        if is_sparse(value):
            found |= csr_arrays(value, name)
        else:
            found[name] = native_argument(value)
    return found


def native_argument(value: Any) -> Any:
    """Return an array for a column of a data frame, and anything else as it is."""
    if hasattr(value, "to_numpy") and not is_frame(value):
        return np.ascontiguousarray(value.to_numpy())
    return value
