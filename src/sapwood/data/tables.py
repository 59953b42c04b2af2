"""Data frames and sparse matrices as named arrays.

Nothing here imports pandas, polars or scipy: what has their methods is one of theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sapwood.core.errors import DataShapeError
from sapwood.core.suggest import suggestion
from sapwood.data.column import Array, Column, check_array

CSR_PARTS = ("data", "indices", "indptr")
"""The arrays of a sparse matrix in CSR form, as scipy names them."""


def is_frame(value: object) -> bool:
    """Whether a value is a data frame: it has named columns, each of which is an array."""
    return hasattr(value, "columns") and hasattr(value, "to_numpy")


def is_sparse(value: object) -> bool:
    """Whether a value is a sparse matrix or array of scipy."""
    return hasattr(value, "tocsr") and hasattr(value, "nnz")


def frame_columns(frame: Any, fields: Sequence[str]) -> tuple[dict[str, Column], dict[str, Any]]:
    """Return the wanted columns of a data frame, and what else it says.

    If every wanted field is the name of a column, each becomes an array of shape (rows,), and the
    other columns may hold anything. Otherwise the whole frame becomes the one field that is
    wanted, of shape (rows, columns).

    Raises:
        DataShapeError: Several fields are wanted and one is no column, or a column holds objects.
    """
    names = [str(name) for name in frame.columns]
    if all(field in names for field in fields):
        return {
            field: Column(check_array(np.asarray(frame[field]), f"column {field!r}"))
            for field in fields
        }, {}
    if len(fields) > 1:
        missing = [field for field in fields if field not in names]
        raise DataShapeError(
            f"the data frame has no column {', '.join(map(repr, missing))}",
            hint=suggestion(missing[0], names, kind="columns"),
        )
    array = check_array(np.ascontiguousarray(frame.to_numpy()), "a data frame")
    return {fields[0]: Column(array)}, {"columns": tuple(names)}


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
