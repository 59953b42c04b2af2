"""Makes a dataset out of whatever holds the data: an array, a file, a range."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sapwood.core.arguments import path_text
from sapwood.core.errors import DataMissingError, DataShapeError
from sapwood.core.shown import shown
from sapwood.core.suggest import suggestion
from sapwood.data.codecs import all_codecs, codec_for
from sapwood.data.column import Column, check_array
from sapwood.data.dataset import Dataset
from sapwood.data.formats import format_of
from sapwood.data.stored_sources import check_files, is_pattern, is_url, load_stored
from sapwood.data.tables import CSR_PARTS, frame_columns, is_frame, is_sparse, sparse_columns
from sapwood.environment.folders import expand_user

MAX_INDEX = 2**63 - 1
"""Native functions get indices of items as 64-bit numbers."""


def load(
    source: Any, *, fields: Sequence[str] = ("data",), columns: Sequence[str] | None = None
) -> Dataset:
    """Return a dataset; arrays are looked at but not copied, large files are left where they are.

    Args:
        source: One of

            - a numpy array (or anything numpy makes one of), whose first axis counts the items;
            - a dictionary of such arrays, all of the same length;
            - a data frame of pandas or polars, a table or record batch of pyarrow, or anything
              else that exports Arrow data: its columns by name, or as one field of two
              dimensions;
            - a sparse matrix of scipy, whose rows are the items: the fields ``data``, ``indices``
              and ``indptr``; under the name ``A`` in a dictionary ``A_data``, ``A_indices`` and
              ``A_indptr``;
            - a path: ``.npy`` (memory-mapped), ``.npz`` (one array a field), ``.csv`` (numbers)
              or an image (one item a pixel);
            - a path of a Parquet (``.parquet``) or Arrow file (``.arrow``, ``.feather``), a folder
              or a pattern (``"parts/*.csv"``) of files of one kind, or a URL: agents read the rows
              that they work on;
            - a ``range`` with step 1, whose items are indices without arrays;
            - a dataset.
        fields: The fields that are wanted. Data without names get the first.
        columns: The columns of a table that may be used, and their order in a field that has
            several; all by default.

    Raises:
        DataMissingError: The file is missing, unreadable or of an unknown format.
        DataShapeError: The data are empty, ragged, of different lengths or of Python objects.
        DataValueError: The file is damaged, or a cell is not a number.

    Example:
        >>> data = load(np.zeros((10, 3)), fields=["points"])
        >>> data
        <Dataset 10 items, points: float64[3], 240 bytes, from an array>
        >>> data.split(3)
        [range(0, 4), range(4, 7), range(7, 10)]
    """
    columns = _checked_columns(columns, source)
    if isinstance(source, Dataset):
        return source.renamed(fields[0]) if len(fields) == 1 else source
    if isinstance(source, range):
        return _from_range(source)
    if not fields and not isinstance(source, Mapping):
        raise DataShapeError(
            "the program reads no fields, so these data would reach no agent",
            hint='name the fields, as in inputs = ["data"] of a program; one that only counts '
            "wants range(n) as its data",
        )
    if isinstance(source, str | Path):
        return _from_path(str(source), fields, columns)
    if isinstance(source, Mapping):
        return _from_mapping(source)
    if is_frame(source):
        return _from_frame(source, fields, columns)
    if is_sparse(source):
        return _from_sparse(source, fields)
    array = _as_array(source, "an array")
    _require_one(fields, "an array", hint="give a dictionary with an array for each field")
    return Dataset({fields[0]: Column(array)}, items=range(len(array)), origin="an array")


def check_source(source: str) -> None:
    """Check that the files of a path or a pattern exist, without reading them; no URL is looked up.

    Raises:
        DataMissingError: A file is missing, unreadable or of an unknown format.
        DataShapeError: The files are empty, or of different kinds.

    Example:
        >>> check_source("https://example.org/a.csv")
    """
    source = path_text(source.removeprefix("file://"), "the path of the data", DataMissingError)
    if is_url(source):
        return
    path = expand_user(source)
    if is_pattern(source) or os.path.isdir(path):  # noqa: PTH112 - as in _from_path
        check_files(source)
    else:
        _readable_file(path)


def _from_range(items: range) -> Dataset:
    if items.step != 1:
        raise DataShapeError(
            f"a range with step {items.step} cannot be split",
            where=shown(items),
            hint="use range(start, stop) and compute the rest from the index",
        )
    if not items:
        raise DataShapeError("the range is empty", where=shown(items), hint="give stop > start")
    if not -MAX_INDEX <= items.start <= items.stop <= MAX_INDEX:
        raise DataShapeError(
            "the range is too large",
            where=shown(items),
            hint="indices are 64-bit numbers, at most 2**63 - 1",
        )
    return Dataset({}, items=items, origin=shown(items))


def _from_frame(frame: Any, fields: Sequence[str], chosen: Sequence[str] | None = None) -> Dataset:
    columns, meta = frame_columns(frame, fields, chosen)
    items = range(len(next(iter(columns.values())).array))
    return Dataset(columns, items=items, origin="a data frame", meta=meta, named=not meta)


def _from_sparse(matrix: Any, fields: Sequence[str]) -> Dataset:
    if not set(CSR_PARTS) <= set(fields):
        raise DataShapeError(
            f"the data are a sparse matrix, and the field {shown(fields[0])} wants a plain array",
            hint='name the arrays of its CSR form, inputs = ["data", "indices", "indptr"], or pass '
            "matrix.toarray()",
        )
    columns, rows = sparse_columns(matrix)
    meta = {"shape": tuple(matrix.shape)}
    return Dataset(columns, items=range(rows), origin="a sparse matrix", meta=meta, named=True)


def _from_mapping(source: Mapping[Any, Any]) -> Dataset:
    if not source:
        raise DataShapeError("the dictionary holds no arrays", hint="give at least one field")
    columns: dict[str, Column] = {}
    lengths: dict[str, int] = {}
    meta: dict[str, Any] = {}
    for name, value in source.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise DataShapeError(
                f"{shown(name)} cannot name a field",
                hint="use names like those of Python variables",
            )
        if is_sparse(value):
            parts, lengths[name] = sparse_columns(value, name)
            columns |= parts
            meta[f"{name}_shape"] = tuple(value.shape)
        else:
            columns[name] = Column(_as_array(value, f"field {shown(name)}"))
            lengths[name] = len(columns[name].array)
    if len(set(lengths.values())) > 1:
        raise DataShapeError(
            "the fields have different numbers of items: "
            + ", ".join(f"{name} {length}" for name, length in lengths.items()),
            hint="the first axis of every array counts the items",
        )
    length = next(iter(lengths.values()))
    return Dataset(columns, items=range(length), origin="arrays", meta=meta, named=True)


def _checked_columns(columns: Sequence[str] | None, source: Any) -> Sequence[str] | None:
    if columns is None:
        return None
    if isinstance(columns, str):
        raise DataShapeError(
            f"columns is the text {shown(columns)}", hint=f"give a list: columns=[{shown(columns)}]"
        )
    table = isinstance(source, str | Path) or is_frame(source)
    if not table:
        raise DataShapeError(
            "columns are chosen, and the data are not a table", hint="leave columns out"
        )
    return tuple(columns)


def _from_path(source: str, fields: Sequence[str], columns: Sequence[str] | None) -> Dataset:
    source = path_text(source.removeprefix("file://"), "the path of the data", DataMissingError)
    if is_url(source) or is_pattern(source):
        return load_stored(source, fields, columns)
    path = expand_user(source)
    if os.path.isdir(path):  # noqa: PTH112 - is_dir() raises where the folder is closed to us
        return load_stored(source, fields, columns)
    path = _readable_file(path)
    if columns is not None or not any(path.suffix.lower() in c.suffixes for c in all_codecs()):
        return load_stored(source, fields, columns)
    return _from_file(Path(source), fields)


def _from_file(given: Path, fields: Sequence[str]) -> Dataset:
    path = _readable_file(expand_user(given))
    decoded = codec_for(path).read(path, fields)
    if not decoded.named:
        _require_one(
            fields,
            str(given),
            hint=f"write an .npz file with the arrays {', '.join(fields)}, or from Python give a "
            "dictionary with an array for each field",
        )
    length = len(next(iter(decoded.columns.values())).array)
    return Dataset(
        decoded.columns,
        items=range(length),
        origin=str(given),
        meta=decoded.meta,
        named=decoded.named,
    )


def _readable_file(path: Path) -> Path:
    """Return the absolute path of a file that exists, is not empty and can be read."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise DataMissingError("this is not a regular file", where=str(path))
        if format_of(str(path)) is None:
            codec_for(path)
        with path.open("rb"):
            pass
    except FileNotFoundError as error:
        raise DataMissingError(
            "there is no such file", where=str(path), hint=_nearby(path)
        ) from error
    except OSError as error:
        raise DataMissingError(
            f"the file cannot be read: {error.strerror}",
            where=str(path),
            hint="check the permissions of the file and of its folders",
        ) from error
    if not status.st_size:
        raise DataShapeError("the file is empty", where=str(path), hint="write it again")
    return path.resolve()


def _nearby(path: Path) -> str:
    if not path.parent.is_dir():
        return f"the folder {path.parent} does not exist"
    try:
        names = [entry.name for entry in path.parent.iterdir() if entry.is_file()]
    except OSError:
        return "check the path"
    hint = suggestion(path.name, names, kind="files there")
    return hint if hint.startswith("did you mean") else "check the path"


def _as_array(value: Any, where: str) -> Any:
    try:
        array = value if isinstance(value, np.ndarray) else np.asarray(value)
    except ValueError as error:
        raise DataShapeError(
            "numpy cannot make an array of the data: the rows have different lengths",
            where=where,
            hint="give rows of one length, or several fields",
        ) from error
    return check_array(array, where)


def _require_one(fields: Sequence[str], what: str, *, hint: str) -> None:
    if len(fields) > 1:
        raise DataShapeError(
            f"{len(fields)} fields are wanted ({', '.join(fields)}), but {what} holds one",
            hint=hint,
        )
