"""numpy's own format: memory-mapped here and on the agents, whatever its size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sapwood.core.errors import DataShapeError, DataValueError
from sapwood.data.column import Array, Column, Decoded, check_array
from sapwood.data.slice import FilePlace

MAGIC = b"\x93NUMPY"


class NpyCodec:
    """Reads ``.npy`` files without loading them."""

    suffixes = (".npy",)

    def read(self, path: Path, fields: Sequence[str]) -> Decoded:
        """Map the file.

        Raises:
            DataShapeError: It holds Python objects, a single value or nothing.
            DataValueError: It is damaged.
        """
        with path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise DataValueError(
                    "the file is not a numpy array, whatever its suffix says",
                    where=str(path),
                    hint="write it with numpy.save",
                )
        status = path.stat()
        try:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError, OSError, SyntaxError) as error:
            if "object" in str(error).lower():
                raise DataShapeError(
                    "the file holds Python objects, which native code cannot read",
                    where=str(path),
                    hint="convert the array before saving, for example with astype(float)",
                ) from error
            raise DataValueError(
                f"the file is damaged or cut short: {error}", where=str(path), hint="write it again"
            ) from error
        check_array(array, str(path))
        place = None
        if _usable_in_place(array) and _is_text(str(path)):
            place = FilePlace(
                str(path), array.offset, array.nbytes, status.st_size, status.st_mtime_ns
            )
        return Decoded({fields[0]: Column(array.view(np.ndarray), place)})


def _usable_in_place(array: Array) -> bool:
    """Whether agents can use the bytes of the file as they are: rows together, native order."""
    return bool(array.flags.c_contiguous and array.flags.aligned and array.dtype.isnative)


def _is_text(path: str) -> bool:
    """Whether a path can be sent to agents; others are read here."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
