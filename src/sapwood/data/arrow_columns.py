"""Columns of Arrow as arrays of numpy: which types have numbers, and how nulls are treated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from sapwood.core.errors import DataError, DataShapeError, DataValueError, SapwoodError
from sapwood.core.shown import shown
from sapwood.data.scanned import ColumnType

Array = np.ndarray[Any, np.dtype[Any]]


def pyarrow_for(where: str) -> Any:
    """Return the package pyarrow.

    Raises:
        DataError: It is not installed.
    """
    try:
        import pyarrow as pa  # noqa: PLC0415 - an optional package
    except ImportError as error:
        raise DataError(
            "Parquet and Arrow need the package pyarrow, which is not installed",
            where=where,
            hint="pip install 'sapwood[parquet]' or pip install pyarrow",
        ) from error
    return pa


def column_type(kind: Any, name: str, where: str) -> ColumnType:
    """Return what the values of a column of Arrow are for numpy.

    Args:
        kind: Its Arrow type.
        name: Its name.
        where: The file, for messages.

    Raises:
        DataShapeError: They are not numbers; the message says what to do.
    """
    pa = pyarrow_for(where)
    types = pa.types
    if types.is_fixed_size_list(kind):
        inner = column_type(kind.value_type, name, where)
        return ColumnType(inner.dtype, (kind.list_size, *inner.item_shape))
    if types.is_boolean(kind):
        return ColumnType(np.dtype(np.bool_))
    if types.is_integer(kind) or types.is_floating(kind):
        return ColumnType(np.dtype(kind.to_pandas_dtype()))
    if types.is_dictionary(kind):
        hint = (
            "leave it out with columns=…, or write the numbers of its categories: "
            "column.dictionary_encode().indices"
        )
    elif types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        hint = (
            "leave it out with columns=…, or write numbers instead: "
            "column.dictionary_encode().indices"
        )
    elif types.is_temporal(kind):
        hint = "leave it out with columns=…, or cast it: column.cast('int64')"
    elif types.is_decimal(kind):
        hint = "leave it out with columns=…, or cast it: column.cast('float64')"
    elif types.is_list(kind) or types.is_large_list(kind):
        hint = "leave it out with columns=…, or cast it to a list of one fixed size"
    else:
        hint = "leave it out with columns=…, or cast it to numbers"
    raise DataShapeError(
        f"column {shown(name)} is of the Arrow type {kind}, which native code cannot read",
        where=where,
        hint=hint,
    )


def as_array(column: Any, name: str, where: str, first: int = 0) -> Array:
    """Return the values of a column; a null becomes NaN, where its type has that.

    Args:
        column: An array or chunked array of Arrow.
        name: Its name.
        where: The file, for messages.
        first: Number of its first row, for messages.

    Raises:
        DataValueError: A column of whole numbers or truths has nulls.
        DataShapeError: It holds no numbers.
    """
    pa = pyarrow_for(where)
    found = column_type(column.type, name, where)
    if isinstance(column, pa.ChunkedArray):
        chunks = [as_array(chunk, name, where, first) for chunk in column.chunks]
        if len(chunks) == 1:
            return chunks[0]
        return np.concatenate([np.empty((0, *found.item_shape), found.dtype), *chunks])
    if found.item_shape:
        if column.null_count:
            raise _nulls(column, name, where, first)
        flat = as_array(column.flatten(), name, where, first)
        return flat.reshape(len(column), *found.item_shape)
    if column.null_count:
        if found.dtype.kind != "f":
            raise _nulls(column, name, where, first)
        filled = _values(column, found.dtype).copy()
        filled[_values(column.is_null(), np.dtype(np.bool_))] = np.nan
        return filled
    return _values(column, found.dtype)


def _values(column: Any, dtype: np.dtype[Any]) -> Array:
    """Return the values of an array, whatever a null has: pyarrow's own way imports pandas."""
    begin, end = column.offset, column.offset + len(column)
    if begin == end:
        return np.empty(0, dtype)
    values = column.buffers()[1]
    if dtype == np.bool_:
        bits = np.unpackbits(np.frombuffer(values, np.uint8), count=end, bitorder="little")
        return bits[begin:].astype(np.bool_)
    return np.frombuffer(values, dtype, end)[begin:]


@contextmanager
def damaged(where: str) -> Iterator[None]:
    """Turn what pyarrow says about a damaged file into an error that says where that is."""
    pa = pyarrow_for(where)
    try:
        yield
    except SapwoodError:
        raise
    except (pa.ArrowException, OSError, ValueError, EOFError) as error:
        cause = error.__cause__ or error.__context__
        if isinstance(cause, SapwoodError):
            raise cause from error
        text = " ".join(str(error).split())
        raise DataValueError(
            f"the file is damaged or cut short: {text[:200]}", where=where, hint="write it again"
        ) from error


def _nulls(column: Any, name: str, where: str, first: int) -> DataValueError:
    at = column.is_null().index(True).as_py()
    return DataValueError(
        f"column {shown(name)} has {column.null_count} nulls, the first in row {first + at} of the "
        f"piece, and values of type {column.type} have no NaN",
        where=where,
        hint="fill them (column.fill_null), drop those rows, or cast the column to float64",
    )
