"""Text as columns of numbers: a piece is a block of whole lines."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from sapwood.core.errors import DataValueError
from sapwood.data.byte_source import ByteSource, SourceStream
from sapwood.data.codecs.csv import ENCODING, Layout, layout_of, parse_lines, require_different
from sapwood.data.formats.choice import Choose
from sapwood.data.scanned import ColumnType, Scanned
from sapwood.data.stored import StoredPiece

Array = np.ndarray[Any, np.dtype[Any]]

BLOCK_BYTES = 4 * 2**20
"""Bytes of a block, up to the end of its last line."""

MAX_LINE = 64 * 2**20
"""Bytes of a line."""


class CsvFormat:
    """``.csv`` files with the same columns."""

    name: ClassVar[str] = "csv"
    suffixes: ClassVar[tuple[str, ...]] = (".csv",)
    piece: ClassVar[str] = "block of lines from line"

    def scan(self, source: ByteSource, choose: Choose) -> Scanned:
        """Read the file once, to count its lines; numbers are not read."""
        stream = io.BufferedReader(SourceStream(source), 2**16)
        try:
            layout, width = layout_of(io.TextIOWrapper(stream, ENCODING), source.where)
        except UnicodeDecodeError as error:
            raise _not_text(error, source.where) from error
        names = layout.header or tuple(map(str, range(width)))
        chosen = choose(layout.header or ())
        columns = names if chosen is None else tuple(chosen)
        require_different(names, columns, source.where)
        number = np.dtype(np.float64)
        return Scanned(
            tuple(_blocks(source, layout.skip)),
            {name: ColumnType(number) for name in columns},
            layout.header or (),
            layout=json.dumps([layout.delimiter, layout.header and list(layout.header), width]),
        )

    def read(
        self, source: ByteSource, piece: StoredPiece, columns: Sequence[str], layout: str
    ) -> Iterator[dict[str, Array]]:
        """Yield the rows of a block."""
        delimiter, header, width = json.loads(layout)
        names = header or list(map(str, range(width)))
        ((offset, nbytes),) = piece.ranges
        data = source.read_at(offset, nbytes)
        try:
            text = data.decode("utf-8" if offset else ENCODING)
        except UnicodeDecodeError as error:
            raise _not_text(error, source.where, offset) from error
        table = parse_lines(
            text,
            Layout(delimiter, tuple(header) if header else None, 0),
            [names.index(name) for name in columns],
            width=width,
            where=source.where,
            line=piece.number,
        )
        yield {name: table[:, index] for index, name in enumerate(columns)}


def _blocks(source: ByteSource, skip: int) -> Iterator[StoredPiece]:
    rest = b""
    at = begin = 0
    line = 1
    while at < source.size:
        data = source.read_at(at, min(BLOCK_BYTES, source.size - at))
        at += len(data)
        end = len(data) if at == source.size else data.rfind(b"\n") + 1
        if not end:
            rest += data
            if len(rest) > MAX_LINE:
                raise DataValueError(
                    f"a line has more than {MAX_LINE} bytes",
                    where=f"{source.where}:{line}",
                    hint="end each row with a newline",
                )
            continue
        block, rest = rest + data[:end], data[end:]
        if skip:
            head = list(itertools.islice(block.splitlines(keepends=True), skip))
            block = block[sum(map(len, head)) :]
            begin += sum(map(len, head))
            line += len(head)
            skip -= len(head)
        lines = block.splitlines()
        rows = sum(1 for one in lines if one.strip())
        if rows:
            yield StoredPiece(0, line, rows, ((begin, len(block)),))
        begin += len(block)
        line += len(lines)


def _not_text(error: UnicodeDecodeError, where: str, offset: int = 0) -> DataValueError:
    return DataValueError(
        f"the file is not UTF-8 text: {error.reason} at byte {offset + error.start}",
        where=where,
        hint="save it as UTF-8",
    )
