"""Parquet by pyarrow: a piece is a row group, of which only the wanted columns are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from sapwood.core.errors import DataShapeError, DataValueError
from sapwood.core.shown import shown
from sapwood.data.arrow_columns import as_array, column_type, damaged, pyarrow_for
from sapwood.data.byte_source import ByteSource, SourceStream
from sapwood.data.formats.choice import Choose
from sapwood.data.scanned import Scanned
from sapwood.data.stored import StoredPiece

Array = np.ndarray[Any, np.dtype[Any]]

MAGIC = b"PAR1"

TRAILER = 8
"""Bytes at the end: the length of the table of contents, and :data:`MAGIC`."""

BATCH_ROWS = 65_536
"""Rows that are decoded at a time, so that a large row group takes little memory."""

BUFFER_BYTES = 2**20
"""Bytes of a column that are read at a time."""

GAP = 64 * 2**10
"""Bytes between two ranges that are rather read than skipped."""


class ParquetFormat:
    """Parquet files."""

    name: ClassVar[str] = "parquet"
    suffixes: ClassVar[tuple[str, ...]] = (".parquet", ".pq")
    piece: ClassVar[str] = "row group"

    def scan(self, source: ByteSource, choose: Choose) -> Scanned:
        """Read the table of contents."""
        tail = _tail(source)
        file = _opened(source)
        with damaged(source.where):
            schema = file.schema_arrow
            names = tuple(schema.names)
            columns = tuple(choose(names) or ())
            types = {
                name: column_type(schema.field(name).type, name, source.where) for name in columns
            }
            pieces = []
            for number in range(file.metadata.num_row_groups):
                group = file.metadata.row_group(number)
                ranges = _ranges(group, columns, source)
                pieces.append(StoredPiece(0, number, group.num_rows, ranges))
        return Scanned(tuple(pieces), types, names, tail)

    def read(
        self, source: ByteSource, piece: StoredPiece, columns: Sequence[str], layout: str
    ) -> Iterator[dict[str, Array]]:
        """Yield the rows of a row group."""
        del layout
        where = f"{source.where}, {self.piece} {piece.number}"
        first = 0
        file = _opened(source)
        with damaged(where):
            if piece.number >= file.metadata.num_row_groups:
                raise DataShapeError("the file has no such row group any more", where=where)
            batches = file.iter_batches(
                BATCH_ROWS, row_groups=[piece.number], columns=list(columns), use_threads=False
            )
            for batch in batches:
                yield {name: as_array(batch.column(name), name, where, first) for name in columns}
                first += batch.num_rows


def _opened(source: ByteSource) -> Any:
    """Return the file with its table of contents, which is read once."""
    if "parquet" not in source.kept:
        pa = pyarrow_for(source.where)
        from pyarrow import parquet  # noqa: PLC0415 - an optional package

        with damaged(source.where):
            # By itself pyarrow reads more of the end than that, which is not everywhere at hand.
            contents = parquet.read_metadata(pa.BufferReader(source.read_at(*_tail(source))))
            source.kept["parquet"] = parquet.ParquetFile(
                SourceStream(source),
                metadata=contents,
                buffer_size=BUFFER_BYTES,
                pre_buffer=False,
                page_checksum_verification=True,
            )
    return source.kept["parquet"]


def _tail(source: ByteSource) -> tuple[int, int]:
    """Return where the table of contents lies."""
    trailer = source.read_at(source.size - TRAILER, TRAILER) if source.size > TRAILER else b""
    if not trailer.endswith(MAGIC):
        raise DataValueError(
            "the file is no Parquet, or cut short: it does not end with PAR1",
            where=source.where,
            hint="write it again",
        )
    length = int.from_bytes(trailer[:4], "little") + TRAILER
    if length > source.size:
        raise DataValueError(
            f"the file is damaged: its table of contents is said to be {length} bytes of "
            f"{source.size}",
            where=source.where,
            hint="write it again",
        )
    return source.size - length, length


def _ranges(group: Any, columns: Sequence[str], source: ByteSource) -> tuple[tuple[int, int], ...]:
    """Return which bytes hold some columns of a row group."""
    wanted = set(columns)
    found: list[tuple[int, int]] = []
    for index in range(group.num_columns):
        column = group.column(index)
        if column.path_in_schema.partition(".")[0] not in wanted and (
            column.path_in_schema not in wanted
        ):
            continue
        begin = column.data_page_offset
        if column.dictionary_page_offset is not None:
            begin = min(begin, column.dictionary_page_offset)
        nbytes = column.total_compressed_size
        if begin < 0 or nbytes < 0 or begin + nbytes > source.size:
            raise DataValueError(
                f"the file is damaged: column {shown(column.path_in_schema)} is said to end at "
                f"byte {begin + nbytes} of {source.size}",
                where=source.where,
                hint="write it again",
            )
        found.append((begin, nbytes))
    joined: list[tuple[int, int]] = []
    for begin, nbytes in sorted(found):
        if joined and begin - sum(joined[-1]) <= GAP:
            first = joined[-1][0]
            joined[-1] = (first, max(sum(joined[-1]), begin + nbytes) - first)
        else:
            joined.append((begin, nbytes))
    return tuple(joined)
