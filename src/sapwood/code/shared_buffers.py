"""Large buffers of pickles in files, which many calls open and none copies: the runner's side."""

from __future__ import annotations

import mmap
import os
import pickle
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np

from sapwood.content.refs import ContentFolder, ContentRef
from sapwood.core import typed
from sapwood.core.errors import DataMissingError

_folders: Final = [ContentFolder()]

_decode = typed.unpacker(ContentRef)


def use_folder(folder: ContentFolder) -> None:
    """Say where the content is that the node of this process has fetched."""
    _folders[0] = folder


def packed(ref: ContentRef) -> bytes:
    """Return a reference to a buffer as :func:`call_pickled` takes it."""
    return msgspec.msgpack.encode(ref)


def call_pickled(data: bytes, buffers: Sequence[Any]) -> Any:
    """Call a pickled function that takes no arguments.

    Args:
        data: The pickle.
        buffers: Its buffers in order: arrays of bytes, and references of :func:`packed`. Arrays
            that are stored in files are read-only.

    Raises:
        DataMissingError: The file of a buffer is gone.
        Exception: Whatever the function raises.

    Example:
        >>> call_pickled(pickle.dumps(dict), [])
        {}
    """
    return open_shared(data, buffers)()


def open_shared(data: bytes, buffers: Sequence[Any]) -> Any:
    """Open a pickle whose buffers are beside it, as for :func:`call_pickled`.

    Raises:
        DataMissingError: The file of a buffer is gone.

    Example:
        >>> open_shared(pickle.dumps([1]), [])
        [1]
    """
    found = [_opened(one) if isinstance(one, bytes) else one for one in buffers]
    # A runner exists to run the user's code.
    return pickle.loads(data, buffers=found)  # noqa: S301 - see above


def mapped_array(
    place: tuple[str, str, int, int, int],
    form: tuple[tuple[int, ...], np.dtype[Any], tuple[int, ...]],
) -> np.ndarray[Any, Any]:
    """Map an array that is stored in a file.

    Args:
        place: The file, the mode of :class:`numpy.memmap`, where in the file the array begins,
            its size in bytes, and the bytes of it that are before its first item.
        form: Shape, type and strides of the array.

    Raises:
        DataMissingError: The file cannot be opened.
    """
    file, mode, offset, size, first = place
    shape, dtype, strides = form
    try:
        mapped: Any = np.memmap(file, np.uint8, mode, offset, (size,))  # type: ignore[call-overload] # the mode is one of its modes
    except (OSError, ValueError) as error:
        raise DataMissingError(f"cannot map an array: {error}", where=file) from error
    return np.ndarray.__new__(np.memmap, shape, dtype, mapped, first, strides)


def _opened(reference: bytes) -> Any:
    ref = _decode(reference)
    path = _folders[0].locate(ref)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise DataMissingError(
            f"a shared array no longer exists: {error.strerror}",
            where=os.fsdecode(path),
            hint="use it before the call of joblib.Parallel, or the pool, ends",
        ) from error
    try:
        mapped = mmap.mmap(fd, ref.nbytes, prot=mmap.PROT_READ)
    finally:
        os.close(fd)
    return np.frombuffer(mapped, np.uint8)
