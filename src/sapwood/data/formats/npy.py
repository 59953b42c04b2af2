"""numpy's own format: a piece is a run of rows that is read with one request."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from sapwood.comm.array_types import dtype_from, dtype_text
from sapwood.core.errors import DataShapeError, DataValueError
from sapwood.data.byte_source import ByteSource, SourceStream
from sapwood.data.formats.choice import Choose
from sapwood.data.scanned import ColumnType, Scanned
from sapwood.data.stored import StoredPiece

Array = np.ndarray[Any, np.dtype[Any]]

PIECE_BYTES = 16 * 2**20
"""Bytes of a piece, as long as a row is not larger."""


class NpyFormat:
    """``.npy`` files of one type and shape of item."""

    name: ClassVar[str] = "npy"
    suffixes: ClassVar[tuple[str, ...]] = (".npy",)
    piece: ClassVar[str] = "row group"

    def scan(self, source: ByteSource, choose: Choose) -> Scanned:
        """Read the header."""
        choose(())
        stream = SourceStream(source)
        try:
            version = np.lib.format.read_magic(stream)
            readers = {
                (1, 0): np.lib.format.read_array_header_1_0,
                (2, 0): np.lib.format.read_array_header_2_0,
            }
            shape, fortran, dtype = readers[version](stream)
        except (ValueError, EOFError, SyntaxError, KeyError) as error:
            raise DataValueError(
                f"the file is no .npy, damaged or cut short: {error}",
                where=source.where,
                hint="write it with numpy.save",
            ) from error
        if dtype.hasobject or not shape or (fortran and len(shape) > 1):
            raise DataShapeError(
                f"the file holds an array of {dtype}, shape {shape}"
                f"{', column by column' if fortran else ''}, and rows of numbers are wanted",
                where=source.where,
                hint="write it with numpy.save(path, numpy.ascontiguousarray(array))",
            )
        row = math.prod(shape[1:]) * dtype.itemsize
        begin, count = stream.tell(), shape[0]
        if begin + row * count != source.size:
            raise DataValueError(
                f"the file has {source.size} bytes, and {begin + row * count} are in its header",
                where=source.where,
                hint="it is cut short or damaged; write it again",
            )
        step = max(1, PIECE_BYTES // max(1, row))
        pieces = tuple(
            StoredPiece(0, first, rows, ((begin + first * row, rows * row),))
            for first in range(0, count, step)
            for rows in [min(step, count - first)]
        )
        layout = json.dumps([dtype_text(dtype), list(shape[1:])])
        native = dtype.newbyteorder("=")
        return Scanned(pieces, {"": ColumnType(native, tuple(shape[1:]))}, layout=layout)

    def read(
        self, source: ByteSource, piece: StoredPiece, columns: Sequence[str], layout: str
    ) -> Iterator[dict[str, Array]]:
        """Yield the rows of a piece."""
        del columns
        text, shape = json.loads(layout)
        ((offset, nbytes),) = piece.ranges
        rows = np.frombuffer(source.read_at(offset, nbytes), dtype_from(text))
        yield {"": rows.reshape(piece.rows, *shape)}
