"""Writing a program's result to a file when the program does not say how."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sapwood.core.errors import ProgramError


def write_result(result: Any, path: Path) -> None:
    """Write a result as ``.npz`` (dictionary), ``.npy`` (one array) or ``.json``.

    Raises:
        ProgramError: The suffix is another one, or the result does not fit the format.
    """
    try:
        find_writer(path)(result, path)
    except (TypeError, ValueError) as error:
        raise ProgramError(
            f"the result does not fit a {path.suffix} file: {error}",
            where=str(path),
            hint="use another suffix, or override Program.output",
        ) from error


def keep_result(result: Any, path: Path) -> Path:
    """Write a result that could not be written as it was wanted; return where it is.

    It is a pickle beside the file that was wanted, or in the temporary folder; of a result that
    cannot be pickled it is the text.

    Raises:
        OSError: Nothing can be written.
    """
    import pickle  # noqa: PLC0415 - rarely needed
    import tempfile  # noqa: PLC0415 - as above

    try:
        data, suffix = pickle.dumps(result), ".pickle"
    except Exception:  # noqa: BLE001 - objects of users may raise anything
        data, suffix = repr(result).encode("utf-8", "backslashreplace"), ".txt"
    for folder in (path.absolute().parent, Path(tempfile.gettempdir())):
        try:
            descriptor, name = tempfile.mkstemp(suffix, f"{path.stem}-", folder)
            with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
                file.write(data)
        except OSError as error:
            problem = error
        else:
            return Path(name)
    raise problem


def find_writer(path: Path) -> Callable[[Any, Path], None]:
    """Return what writes files of a suffix.

    Raises:
        ProgramError: Nothing does.
    """
    writer = _WRITERS.get(path.suffix.lower())
    if writer is None:
        raise ProgramError(
            f"do not know how to write {path.suffix or 'a file without suffix'}",
            where=str(path),
            hint=f"use {', '.join(_WRITERS)}, or override Program.output",
        )
    return writer


def _write_npz(result: Any, path: Path) -> None:
    if not isinstance(result, Mapping):
        raise TypeError("it is not a dictionary")
    arrays: dict[str, Any] = {str(name): np.asarray(value) for name, value in result.items()}
    _refuse_objects(*arrays.values())
    np.savez(path, allow_pickle=False, **arrays)


def _write_npy(result: Any, path: Path) -> None:
    array = np.asarray(result)
    _refuse_objects(array)
    np.save(path, array, allow_pickle=False)


def _refuse_objects(*arrays: np.ndarray[Any, Any]) -> None:
    if any(array.dtype.hasobject for array in arrays):
        raise TypeError("it holds Python objects")


def _write_json(result: Any, path: Path) -> None:
    import json  # noqa: PLC0415 - agents import this module and never write a file

    text = json.dumps(result, default=_plain, indent=2, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no JSON form")


_WRITERS: dict[str, Callable[[Any, Path], None]] = {
    ".npz": _write_npz,
    ".npy": _write_npy,
    ".json": _write_json,
}
