"""Arrow's file format, which Feather is, too: a piece is a record batch."""

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

MAGIC = b"ARROW1"


class ArrowFormat:
    """Arrow and Feather files, version 2."""

    name: ClassVar[str] = "arrow"
    suffixes: ClassVar[tuple[str, ...]] = (".arrow", ".feather", ".ipc")
    piece: ClassVar[str] = "record batch"

    def scan(self, source: ByteSource, choose: Choose) -> Scanned:
        """Count the rows of each batch, for which one column of it is read."""
        ends = source.size >= 2 * len(MAGIC)
        if not ends or source.read_at(source.size - len(MAGIC), len(MAGIC)) != MAGIC:
            raise DataValueError(
                "the file is no Arrow file, or cut short: it does not end with ARROW1",
                where=source.where,
                hint="write it with pyarrow.feather.write_feather or pyarrow.ipc.new_file",
            )
        file = _opened(source, None)
        with damaged(source.where):
            schema = file.schema
            names = tuple(schema.names)
            columns = tuple(choose(names) or ())
            types = {
                name: column_type(schema.field(name).type, name, source.where) for name in columns
            }
        if not columns:
            raise DataShapeError("the file has no columns", where=source.where)
        smallest = min(columns, key=lambda name: types[name].dtype.itemsize)
        pieces: list[StoredPiece] = []
        file = _opened(source, [names.index(smallest)])
        for number in range(file.num_record_batches):
            with damaged(f"{source.where}, {self.piece} {number}"):
                rows = file.get_batch(number).num_rows
            pieces.append(StoredPiece(0, number, rows, ((0, source.size),)))
        return Scanned(tuple(pieces), types, names)

    def read(
        self, source: ByteSource, piece: StoredPiece, columns: Sequence[str], layout: str
    ) -> Iterator[dict[str, Array]]:
        """Yield the rows of a batch."""
        del layout
        where = f"{source.where}, {self.piece} {piece.number}"
        names = tuple(_opened(source, None).schema.names)
        gone = [name for name in columns if name not in names]
        if gone:
            raise DataShapeError(f"the file has no column {shown(gone[0])}", where=source.where)
        included = sorted(names.index(name) for name in columns)
        file = _opened(source, included)
        with damaged(where):
            batch = file.get_batch(piece.number)
            batch.validate(full=True)
            yield {name: as_array(batch.column(name), name, where) for name in columns}


def _opened(source: ByteSource, included: list[int] | None) -> Any:
    """Return the file, of which some columns are read; its table of contents is read once."""
    key = f"arrow {included}"
    if key not in source.kept:
        pa = pyarrow_for(source.where)
        options = pa.ipc.IpcReadOptions(use_threads=False, included_fields=included)
        with damaged(source.where):
            source.kept[key] = pa.ipc.open_file(SourceStream(source), options=options)
    return source.kept[key]
