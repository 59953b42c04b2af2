"""Several arrays in one file, as numpy writes them: one field each."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sapwood.core.errors import DataShapeError, DataValueError
from sapwood.core.shown import shown
from sapwood.core.suggest import suggestion
from sapwood.data.column import Column, Decoded, check_array


class NpzCodec:
    """Reads ``.npz`` files: the arrays that are wanted, by name.

    If one field is wanted and the file holds one array, that is it, whatever its name.
    """

    suffixes = (".npz",)

    def read(self, path: Path, fields: Sequence[str]) -> Decoded:
        """Read the arrays.

        Raises:
            DataShapeError: One that is wanted is not there, holds Python objects or a single
                value, or they have different numbers of items.
            DataValueError: The file is damaged.
        """
        if not zipfile.is_zipfile(path):
            raise _damaged(path, "it has no table of contents")
        try:
            with np.load(path, allow_pickle=False) as file:
                names = {field: _name(field, fields, file.files, path) for field in fields}
                columns = {
                    field: Column(check_array(file[name], f"{path}, array {shown(name)}"))
                    for field, name in names.items()
                }
        except (zipfile.BadZipFile, ValueError, EOFError, OSError) as error:
            if "object" in str(error).lower():
                raise DataShapeError(
                    "the file holds Python objects, which native code cannot read",
                    where=str(path),
                    hint="convert the arrays before saving, for example with astype(float)",
                ) from error
            raise _damaged(path, error) from error
        lengths = {field: len(column.array) for field, column in columns.items()}
        if len(set(lengths.values())) > 1:
            raise DataShapeError(
                "the arrays have different numbers of items: "
                + ", ".join(f"{field} {length}" for field, length in lengths.items()),
                where=str(path),
                hint="the first axis of every array counts the items",
            )
        return Decoded(columns, named=True)


def _damaged(path: Path, reason: object) -> DataValueError:
    return DataValueError(
        f"the file is no .npz, damaged or cut short: {reason}",
        where=str(path),
        hint="write it with numpy.savez",
    )


def _name(field: str, fields: Sequence[str], present: Sequence[str], path: Path) -> str:
    """Return the name of a field in the file."""
    if field in present:
        return field
    if len(fields) == 1 and len(present) == 1:
        return present[0]
    raise DataShapeError(
        f"the file has no array {shown(field)}",
        where=str(path),
        hint=suggestion(field, present, kind="arrays"),
    )
