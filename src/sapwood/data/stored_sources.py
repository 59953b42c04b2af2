"""Makes a dataset of files that are read where they are worked on: Parquet, folders, URLs."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
import numpy as np

from sapwood.comm.array_types import dtype_text
from sapwood.content.refs import ContentFolder
from sapwood.core.errors import DataError, DataMissingError, DataShapeError
from sapwood.core.shown import shown
from sapwood.data.formats import RowFormat, all_formats, format_of
from sapwood.data.formats.choice import Choice
from sapwood.data.opened_file import opened
from sapwood.data.scanned import ColumnType, Scanned
from sapwood.data.stored import MAX_FILES, MAX_PIECES, StoredField, StoredFile, StoredRows
from sapwood.data.stored_dataset import StoredDataset
from sapwood.environment.folders import expand_user

PATTERN = frozenset("*?[")
"""Signs that make a path a pattern."""


def is_url(source: str) -> bool:
    """Whether a source is a URL."""
    return "://" in source


def is_pattern(source: str) -> bool:
    """Whether a source stands for several files; what exists under this name does not."""
    if is_url(source):
        return "*" in source
    return bool(PATTERN & set(source)) and not os.path.lexists(expand_user(source))


def load_stored(
    source: str, fields: Sequence[str], columns: Sequence[str] | None = None
) -> StoredDataset:
    """Return the rows of a file, of all files in a folder, or of the files that match a pattern.

    Args:
        source: Path, pattern or URL.
        fields: The fields that are wanted.
        columns: The columns that may be used; None for all.

    Raises:
        DataError: The files are missing, of different kinds, damaged, or lack a column.
    """
    if columns is not None and not columns:
        raise DataShapeError("no columns are chosen", hint="name at least one, or leave them out")
    files = _files(source)
    kind = _kind([file.path for file in files], _shown(source))
    first = _shown(files[0].path)
    scans: list[Scanned] = []
    for file in files:
        with opened(file, (), ContentFolder()) as opening:
            scans.append(kind.scan(opening, Choice(fields, columns, opening.where)))
        _require_same(scans[0], scans[-1], first, opening.where)
    pieces = tuple(
        msgspec.structs.replace(piece, file=index)
        for index, scan in enumerate(scans)
        for piece in scan.pieces
    )
    if len(pieces) > MAX_PIECES:
        raise DataShapeError(
            f"the files have {len(pieces)} pieces, and at most {MAX_PIECES} can be sent to agents",
            where=_shown(source),
            hint="write larger row groups",
        )
    if not any(piece.rows for piece in pieces):
        raise DataShapeError(
            "the data hold no rows", where=_shown(source), hint="give at least one"
        )
    by_name = Choice(fields, columns, source).by_name(scans[0].names)
    rows = StoredRows(
        kind.name,
        tuple(
            msgspec.structs.replace(file, tail=scan.tail)
            for file, scan in zip(files, scans, strict=True)
        ),
        pieces,
        _fields(scans[0].columns, fields, first, by_name=by_name),
        layout=scans[0].layout,
    )
    meta: dict[str, Any] = dict(scans[0].meta) if len(files) == 1 else {}
    if scans[0].names:
        meta["columns"] = tuple(scans[0].names)
    if len(files) > 1:
        meta["files"] = tuple(PurePosixPath(_shown(file.path)).name for file in files)
        meta["file_rows"] = tuple(sum(piece.rows for piece in scan.pieces) for scan in scans)
    return StoredDataset(rows, origin=_origin(source, len(files)), meta=meta, named=by_name)


def check_files(source: str) -> None:
    """Check that a folder or a pattern leads to files of one kind, without reading them.

    Raises:
        DataError: The files are missing, or of different kinds.
    """
    _kind([file.path for file in _files(source)], _shown(source))


def _files(source: str) -> list[StoredFile]:
    if is_url(source):
        from sapwood.data import url_source  # noqa: PLC0415 - fsspec is optional

        found = url_source.files_at(source) if is_pattern(source) else [source]
        return [url_source.file_at(url) for url in _some(found, url_source.shown(source))]
    path = expand_user(source)
    if is_pattern(source):
        found = glob.glob(str(path), recursive=True)  # noqa: PTH207 - the pattern may be absolute
        names = [name for name in found if Path(name).is_file()]
    elif path.is_dir():
        names = [
            str(one)
            for one in path.iterdir()
            if one.is_file() and not one.name.startswith((".", "_"))
        ]
    else:
        names = [str(path)]
    return [_local(name) for name in sorted(_some(names, source))]


def _some(names: list[str], source: str) -> list[str]:
    if not names:
        raise DataMissingError(
            "no files match", where=source, hint="check the folder or the pattern"
        )
    if len(names) > MAX_FILES:
        raise DataShapeError(
            f"these are {len(names)} files, and at most {MAX_FILES} make a dataset",
            where=source,
            hint="write fewer, larger files",
        )
    return names


def _local(name: str) -> StoredFile:
    try:
        path = os.path.realpath(name)
        path.encode()
        status = os.stat(path)  # noqa: PTH116 - the names are texts already
    except UnicodeEncodeError as error:
        raise DataMissingError(
            "the path is not UTF-8 and cannot be sent to agents",
            where=shown(name),
            hint="rename the file",
        ) from error
    except OSError as error:
        raise DataMissingError(f"the file cannot be read: {error.strerror}", where=name) from error
    return StoredFile(path, status.st_size, status.st_mtime_ns)


def _kind(paths: Sequence[str], source: str) -> RowFormat:
    """Return the one format of some files."""
    kinds: dict[str, str] = {}
    first: RowFormat | None = None
    for path in paths:
        plain = path.partition("?")[0] if is_url(path) else path
        kind = format_of(plain)
        if kind is None:
            known = ", ".join(s for one in all_formats() for s in one.suffixes)
            raise DataMissingError(
                f"files that end in {shown(PurePosixPath(plain).suffix)} cannot be read in pieces",
                where=_shown(path),
                hint=f"use one of {known}; a pattern such as FOLDER/*.parquet leaves out others",
            )
        kinds.setdefault(kind.name, path)
        first = first or kind
    if len(kinds) > 1:
        raise DataShapeError(
            f"the files are of different kinds: {', '.join(sorted(kinds))}",
            where=source,
            hint="choose one by a pattern, for example FOLDER/*.parquet",
        )
    if first is None:
        raise DataError("no files match", where=source)
    return first


def _require_same(first: Scanned, other: Scanned, first_name: str, where: str) -> None:
    """Check that a file has the same columns as the first one."""
    for name, kind in first.columns.items():
        found = other.columns.get(name)
        if found != kind:
            what = f"column {shown(name)}" if name else "the array"
            raise DataShapeError(
                f"{what} is {_described(found)} here, and {_described(kind)} in {first_name}",
                where=where,
                hint="all files of a dataset must have the same columns",
            )
    if first.layout != other.layout:
        raise DataShapeError(
            f"the file is laid out differently than {first_name}",
            where=where,
            hint="all files of a dataset must have the same header, delimiter and type",
        )


def _described(kind: ColumnType | None) -> str:
    if kind is None:
        return "missing"
    return f"{kind.dtype}{''.join(f'[{extent}]' for extent in kind.item_shape)}"


def _fields(
    columns: Any, fields: Sequence[str], where: str, *, by_name: bool
) -> tuple[StoredField, ...]:
    if by_name:
        return tuple(
            StoredField(f, (f,), dtype_text(columns[f].dtype), columns[f].item_shape)
            for f in fields
        )
    names = tuple(columns)
    if len(names) == 1 and (names == ("",) or columns[names[0]].item_shape):
        only = columns[names[0]]
        return (StoredField(fields[0], names, dtype_text(only.dtype), only.item_shape),)
    wide = next((name for name in names if columns[name].item_shape), None)
    if wide is not None:
        raise DataShapeError(
            f"column {shown(wide)} has several numbers a row, and cannot stand beside others in "
            "one field",
            where=where,
            hint=f"choose it alone with columns=[{shown(wide)}], or name it in "
            "the program's inputs",
        )
    dtype = np.result_type(*(columns[name].dtype for name in names))
    return (StoredField(fields[0], names, dtype_text(dtype), (len(names),), stacked=True),)


def _origin(source: str, files: int) -> str:
    source = _shown(source)
    return source if files == 1 else f"{source} ({files} files)"


def _shown(source: str) -> str:
    """Return a path or a URL for people."""
    if not is_url(source):
        return source
    from sapwood.data.url_source import shown  # noqa: PLC0415 - fsspec is optional

    return shown(source)
