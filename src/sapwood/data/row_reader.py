"""Reads rows out of their files, piece by piece, into arrays: on agents, and here for samples."""

from __future__ import annotations

import itertools
import math
import mmap
import os
import resource
import tempfile
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from sapwood.comm.array_types import dtype_from
from sapwood.content.refs import ContentFolder
from sapwood.core.errors import DataShapeError, DataValueError, ProtocolError, ResourceError
from sapwood.core.shown import shown
from sapwood.data.formats import format_named
from sapwood.data.opened_file import opened
from sapwood.data.stored import StoredField, StoredPiece, StoredRows
from sapwood.environment.memory import available_memory
from sapwood.environment.units import describe_size

Array = np.ndarray[Any, np.dtype[Any]]

IN_MEMORY = 256 * 2**20
"""Bytes of a slice that are kept in memory; a larger one goes into a file and is mapped, so that
the kernel can drop its pages."""

SHARE_OF_LIMIT = 4
"""A slice in memory takes at most this part of what the process may use, and of what is free."""

_NO_CONTENT = ContentFolder()


class ReadRows(msgspec.Struct, frozen=True):
    """Rows that were read.

    Attributes:
        arrays: The fields by name; read-only.
        read_bytes: Bytes that were read of files or by network.
        pieces: Pieces that were read.
    """

    arrays: dict[str, Any]
    read_bytes: int
    pieces: int


def read_rows(
    rows: StoredRows, count: int, content: ContentFolder = _NO_CONTENT, *, first: int = 0
) -> ReadRows:
    """Read rows, in bounded memory besides the arrays themselves.

    Args:
        rows: Which.
        count: How many there are to be.
        content: Where content is that was fetched from another machine.
        first: Index of the first row in the dataset, for messages.

    Raises:
        DataMissingError: A file is gone, cannot be read or has changed.
        DataValueError: A piece is damaged, or holds what it must not; the message says which.
        ResourceError: There is no room for the rows.
    """
    if sum(piece.wanted for piece in rows.pieces) != count:
        raise ProtocolError(f"a slice of {count} rows names other pieces of files")
    arrays = _room(rows.fields, count, content.path)
    at = read_bytes = 0
    for _index, pieces in itertools.groupby(rows.pieces, key=lambda piece: piece.file):
        file = rows.files[_index]
        with opened(file, rows.content, content) as source:
            for piece in pieces:
                begin = at
                for block in _blocks(rows, piece, source):
                    at = _fill(rows, arrays, block, at, first, source.where)
                if at - begin != piece.wanted:
                    raise DataShapeError(
                        f"a piece of the file has {at - begin} rows, and {piece.wanted} were there "
                        "when the dataset was loaded",
                        where=_where(source.where, rows, piece),
                        hint="load it again, and do not write to it during a run",
                    )
            read_bytes += source.read_bytes
    for array in arrays.values():
        array.flags.writeable = False
    return ReadRows(arrays, read_bytes, len(rows.pieces))


def _blocks(rows: StoredRows, piece: StoredPiece, source: Any) -> Iterator[dict[str, Array]]:
    """Yield the wanted rows of a piece, some at a time, by column."""
    columns = tuple(dict.fromkeys(c for field in rows.fields for c in field.columns))
    skip, take = piece.skip, piece.wanted
    for block in format_named(rows.format).read(source, piece, columns, rows.layout):
        length = len(next(iter(block.values())))
        begin = min(skip, length)
        end = min(length, begin + take)
        skip -= begin
        take -= end - begin
        if end > begin:
            yield {name: array[begin:end] for name, array in block.items()}
        if not take:
            return


def _fill(
    rows: StoredRows,
    arrays: dict[str, Array],
    block: dict[str, Array],
    at: int,
    first: int,
    file: str,
) -> int:
    """Put some rows where they belong; return where the next ones do."""
    length = len(next(iter(block.values())))
    for field in rows.fields:
        target = arrays[field.name][at : at + length]
        if len(target) != length:
            raise ProtocolError("a file has more rows than a slice has room for", where=file)
        for index, column in enumerate(field.columns):
            values = block[column]
            into = target[:, index] if field.stacked else target
            if values.shape != into.shape or not np.can_cast(values.dtype, into.dtype, "same_kind"):
                raise DataShapeError(
                    f"{_column(column)} is {values.dtype} of shape {values.shape[1:]} here, and "
                    f"{into.dtype} of shape {into.shape[1:]} in the first file",
                    where=file,
                    hint="all files of a dataset must have the same columns",
                )
            into[...] = values
        if rows.finite:
            _require_finite(target, field, at + first, file)
    return at + length


def _require_finite(rows: Array, field: StoredField, first: int, file: str) -> None:
    if rows.dtype.kind not in "fc":
        return
    bad = ~np.isfinite(rows)
    if not bad.any():
        return
    index = np.unravel_index(int(bad.argmax()), bad.shape)
    column = f", column {shown(field.columns[int(index[1])])}" if field.stacked else ""
    raise DataValueError(
        f"the data hold values that are not finite: field {shown(field.name)} is "
        f"{rows[index]} in row {first + int(index[0])}{column} (counted from 0 over all files)",
        where=file,
        hint="remove these rows, or fill the nulls; if the program can work with NaN, let it: "
        "allow_nan = True in the program, cluster.run(…, allow_nan=True), or "
        "`sapwood run PROGRAM --allow-nan`",
    )


def _room(fields: tuple[StoredField, ...], count: int, folder: str) -> dict[str, Array]:
    """Make arrays for the rows: in memory, or where they are many in a file without a name."""
    shapes = {field.name: (count, *field.item_shape) for field in fields}
    types = {field.name: dtype_from(field.dtype) for field in fields}
    sizes = {name: math.prod(shape) * types[name].itemsize for name, shape in shapes.items()}
    if sum(sizes.values()) <= _in_memory() or not folder:
        try:
            return {name: np.empty(shape, types[name]) for name, shape in shapes.items()}
        except MemoryError as error:
            raise _too_large(sum(sizes.values()), "memory") from error
    return {name: _mapped(shapes[name], types[name], sizes[name], folder) for name in shapes}


def _in_memory() -> int:
    limit, _hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = available_memory() if limit == resource.RLIM_INFINITY else min(limit, available_memory())
    return min(IN_MEMORY, most // SHARE_OF_LIMIT)


def _mapped(shape: tuple[int, ...], dtype: np.dtype[Any], nbytes: int, folder: str) -> Array:
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103 - as the rest of the folder
        with tempfile.TemporaryFile(dir=folder) as file:
            if nbytes:
                os.posix_fallocate(
                    file.fileno(), 0, nbytes
                )  # a full disk is an error here, not later
            mapped = mmap.mmap(file.fileno(), max(1, nbytes)) if nbytes else bytearray()
    except OSError as error:
        raise _too_large(nbytes, f"{folder} ({error.strerror})") from error
    return np.frombuffer(mapped, dtype).reshape(shape)


def _too_large(nbytes: int, place: str) -> ResourceError:
    return ResourceError(
        f"there is no room for {describe_size(nbytes)} of a slice in {place}",
        hint="use more agents, or choose fewer columns",
    )


def _column(name: str) -> str:
    return f"column {shown(name)}" if name else "the array"


def _where(file: str, rows: StoredRows, piece: StoredPiece) -> str:
    return f"{file}, {format_named(rows.format).piece} {piece.number}"
