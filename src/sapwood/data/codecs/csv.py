"""Tables of numbers as text: with a header or without, the delimiter found by looking."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from sapwood.core.errors import DataShapeError, DataValueError
from sapwood.core.shown import shown
from sapwood.core.suggest import suggestion
from sapwood.data.column import Array, Column, Decoded, check_array

DELIMITERS = (",", ";", "\t", "|", " ")
"""Separators of cells; a space means any run of spaces and tabs."""

SAMPLE_ROWS = 32
"""Rows that are looked at to find the delimiter and the header."""

ENCODING = "utf-8-sig"

EXACT = 2.0**53
"""From here on a float64 does not hold each integer."""

BLANKS = " \t\n\r\v\f"
"""What a line may have that is none."""


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """How a file is laid out.

    Attributes:
        delimiter: One of :data:`DELIMITERS`.
        header: Names of the columns, or None.
        skip: Lines before the first row of numbers.
    """

    delimiter: str
    header: tuple[str, ...] | None
    skip: int


class CsvCodec:
    """Reads ``.csv`` files as float64.

    If every wanted field is the name of a column, each becomes an array of shape (rows,), and
    the other columns may hold anything.
    Otherwise the whole table becomes the one field that is wanted, shape (rows, columns),
    and ``meta["columns"]`` holds the names that the header gives.
    """

    suffixes = (".csv",)

    def read(self, path: Path, fields: Sequence[str]) -> Decoded:
        """Parse the file.

        Raises:
            DataShapeError: It has no rows, rows of different lengths, or not the columns wanted.
            DataValueError: A cell is not a number; the message has its line and column.
        """
        try:
            layout = find_layout(path)
            names = layout.header or ()
            by_name = bool(names) and all(field in names for field in fields)
            if by_name:
                require_different(names, fields, str(path))
            wanted = [names.index(field) for field in fields] if by_name else None
            table = _parse(path, layout, wanted)
        except UnicodeDecodeError as error:
            raise DataValueError(
                f"the file is not UTF-8 text: {error.reason} at byte {error.start}",
                where=str(path),
                hint="save it as UTF-8",
            ) from error
        check_array(table, str(path))
        if by_name:
            columns = {field: Column(table[:, index]) for index, field in enumerate(fields)}
            return Decoded(columns, {"columns": names}, named=True)
        if len(fields) == 1:
            return Decoded({fields[0]: Column(table)}, {"columns": names} if names else {})
        missing = next(field for field in fields if field not in names)
        raise DataShapeError(
            f"the file has no column {shown(missing)}",
            where=str(path),
            hint=suggestion(missing, names, kind="columns")
            if names
            else "give it a header line with the names of its columns",
        )


def find_layout(path: Path) -> Layout:
    """Find the delimiter and the header of a file by its first rows.

    A first row without any number is a header.

    Raises:
        DataShapeError: The file holds no rows of numbers.
    """
    with path.open(encoding=ENCODING) as file:
        return layout_of(file, str(path))[0]


def layout_of(file: Iterable[str], where: str) -> tuple[Layout, int]:
    """Find the delimiter and the header by the first lines, and how many columns there are.

    Args:
        file: The lines.
        where: The file, for messages.

    Raises:
        DataShapeError: It has no rows of numbers.
    """
    lines: list[tuple[int, str]] = []
    for number, line in enumerate(file, 1):
        if line.strip():
            lines.append((number, line))
        if len(lines) > SAMPLE_ROWS:
            break
    if not lines:
        raise DataShapeError("the file holds no rows", where=where, hint="give at least one")
    texts = [line for _number, line in lines]
    delimiter = max(DELIMITERS, key=lambda one: _fitness(texts, one))
    first = [cell.strip() for cell in _cells(texts[0], delimiter)]
    if texts[0].lstrip().startswith("#") and not first[0].lstrip("#").strip().isidentifier():
        raise _comment(where, lines[0][0])
    if any(_is_number(cell) for cell in first):
        return Layout(delimiter, None, 0), len(first)
    if len(lines) == 1:
        raise DataShapeError(
            "the file holds a header but no rows of numbers",
            where=f"{where}:{lines[0][0]}",
            hint="give at least one row",
        )
    return Layout(delimiter, tuple(first), lines[0][0]), len(first)


def parse_lines(
    text: str, layout: Layout, wanted: list[int], *, width: int, where: str, line: int
) -> Array:
    """Return the wanted columns of some lines of a file.

    Args:
        text: The lines.
        layout: How the file is laid out.
        wanted: Which columns.
        width: How many each line must have.
        where: The file, for messages.
        line: Number of the first line, for messages.

    Raises:
        DataShapeError: A line has more or fewer cells.
        DataValueError: A wanted cell is not a number; the message has its line and column.
    """
    table: Array | None
    try:
        table = _load(io.StringIO(text), layout, None)
    except ValueError:
        table = None
    if table is not None and table.shape[1] == width:
        table = table[:, wanted]
        if not ((table >= EXACT) | (table <= -EXACT)).any():
            return table
    lines = enumerate(io.StringIO(text, newline=None), line)
    rows = [(number, one) for number, one in lines if one.strip(BLANKS)]
    cells = [(number, _cells(one, layout.delimiter)) for number, one in rows]
    _explain(where, cells, layout, wanted, width)
    try:
        table = _load(io.StringIO("".join(one for _number, one in rows)), layout, wanted)
    except ValueError as error:
        raise DataValueError(
            f"the lines cannot be read as numbers: {error}",
            where=f"{where}:{line}",
            hint="every cell must be a number",
        ) from error
    _require_exact(table, where, cells, layout, wanted)
    return table


def _fitness(lines: list[str], delimiter: str) -> tuple[float, float, bool, bool]:
    """Rank a delimiter: how much it turns into numbers, then whether the rows are even."""
    first, *body = [_cells(line, delimiter) for line in lines]
    widths = {len(row) for row in (first, *body)}
    return (
        _numeric([cell for row in body for cell in row]),
        _numeric(first),
        len(widths) == 1,
        max(widths) > 1,
    )


def _numeric(cells: list[str]) -> float:
    """Return the fraction of cells that are numbers."""
    return sum(map(_is_number, cells)) / max(1, len(cells))


def _cells(line: str, delimiter: str) -> list[str]:
    if delimiter == " ":
        return line.split()
    return next(csv.reader([line], delimiter=delimiter), [])


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell  # Python takes 1_000 for a number; a table does not


def _parse(path: Path, layout: Layout, wanted: list[int] | None) -> Array:
    """Return the table, or the wanted columns of it."""
    try:
        table = _load(path, layout, None)
    except UnicodeDecodeError:
        raise
    except ValueError as error:
        _explain(str(path), _rows(path, layout), layout, wanted, len(layout.header or ()))
        table = _columns(path, layout, wanted, error)
        _require_exact(table, str(path), _rows(path, layout), layout, wanted)
        return table
    if layout.header is not None and table.shape[1] != len(layout.header):
        raise _ragged(str(path), layout.skip + 1, table.shape[1], len(layout.header))
    table = table if wanted is None else table[:, wanted]
    _require_exact(table, str(path), _rows(path, layout), layout, wanted)
    return table


def _columns(path: Path, layout: Layout, wanted: list[int] | None, error: ValueError) -> Array:
    """Return columns of a file of which others hold no numbers."""
    try:
        if wanted is not None:
            return _load(path, layout, wanted)
    except ValueError as found:
        error = found
    raise DataValueError(
        f"the file cannot be read as a table of numbers: {error}",
        where=str(path),
        hint="every cell must be a number",
    ) from error


def require_different(names: Sequence[str], fields: Sequence[str], where: str) -> None:
    """Check that no other column has the name of a wanted column.

    Raises:
        DataShapeError: Several columns have the name of a field.
    """
    several = next((field for field in fields if names.count(field) > 1), None)
    if several is not None:
        raise DataShapeError(
            f"the file has several columns {shown(several)}",
            where=where,
            hint="write it with names that differ",
        )


def _require_exact(
    table: Array,
    where: str,
    rows: Iterable[tuple[int, list[str]]],
    layout: Layout,
    wanted: list[int] | None,
) -> None:
    """Check that no integer loses digits as a float64.

    Raises:
        DataValueError: One does; the message has its line and column.
    """
    if not ((table >= EXACT) | (table <= -EXACT)).any():
        return
    for number, cells in rows:
        for column in range(len(cells)) if wanted is None else wanted:
            cell = cells[column].strip()
            if cell.lstrip("+-").isdecimal() and int(cell) != int(float(cell)):
                name = f" ({shown(layout.header[column])})" if layout.header else ""
                raise DataValueError(
                    f"the integer in column {column + 1}{name} has more digits than a float64 "
                    f"holds: {cell[:40]}",
                    where=f"{where}:{number}",
                    hint="save integers above 2**53 as .npy or .parquet, which keep their type",
                )


def _load(file: Path | io.StringIO, layout: Layout, columns: list[int] | None) -> Array:
    return np.loadtxt(
        file,
        delimiter=None if layout.delimiter == " " else layout.delimiter,
        skiprows=layout.skip,
        comments=None,
        quotechar='"',
        ndmin=2,
        encoding=ENCODING,
        usecols=columns,
    )


def _explain(
    where: str,
    rows: Iterable[tuple[int, list[str]]],
    layout: Layout,
    wanted: list[int] | None,
    width: int,
) -> None:
    """Raise the error that names the first bad line and column, reading line by line."""
    for number, cells in rows:
        width = width or len(cells)
        if len(cells) != width:
            raise _ragged(where, number, len(cells), width)
        for column in range(width) if wanted is None else wanted:
            if not _is_number(cells[column]):
                raise _bad_cell(where, layout, number, column + 1, cells[column])


def _rows(path: Path, layout: Layout) -> Iterator[tuple[int, list[str]]]:
    with path.open(encoding=ENCODING) as file:
        for number, line in enumerate(file, 1):
            if number > layout.skip and line.strip():
                yield number, _cells(line, layout.delimiter)


def _comment(where: str, line: int) -> DataValueError:
    return DataValueError(
        "the file begins with a comment",
        where=f"{where}:{line}",
        hint="remove the lines that begin with #; the first line is the header or a row of numbers",
    )


def _ragged(path: str, line: int, found: int, expected: int) -> DataShapeError:
    return DataShapeError(
        f"a row has {found} cells where {expected} are expected",
        where=f"{path}:{line}",
        hint="every row must have as many cells as the first",
    )


def _bad_cell(path: str, layout: Layout, line: int, column: int, cell: str) -> DataValueError:
    name = f" ({shown(layout.header[column - 1])})" if layout.header else ""
    text = cell if len(cell) <= 40 else f"{cell[:40]}…"
    if not cell.strip():
        return DataValueError(
            f"the cell in column {column}{name} is empty",
            where=f"{path}:{line}",
            hint="write nan for a missing value, or remove the row",
        )
    comma = cell.count(",") == 1 and math.isfinite(_or_nan(cell.replace(",", ".")))
    return DataValueError(
        f"the cell in column {column}{name} is not a number: {shown(text)}",
        where=f"{path}:{line}",
        hint="write numbers with a decimal point" if comma else "every cell must be a number",
    )


def _or_nan(text: str) -> float:
    return float(text) if _is_number(text) else math.nan
