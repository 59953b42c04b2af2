"""A slice: the part of a dataset that one agent works on, opened without copying.

Agents import this module, so it loads nothing but numpy, msgspec and the rooms below.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np

from sapwood.comm.array_types import dtype_from
from sapwood.comm.shared_memory import MappedBlocks, SharedRef
from sapwood.content.refs import ContentFolder
from sapwood.core.errors import DataMissingError, DataShapeError, ProtocolError
from sapwood.core.shown import shown
from sapwood.data.stored import StoredContent, StoredRows

Array = np.ndarray[Any, np.dtype[Any]]

_NO_CONTENT = ContentFolder()


class FilePlace(msgspec.Struct, frozen=True, array_like=True, tag="file"):
    """Bytes in a file, and what the file looked like when they were measured.

    Attributes:
        path: Absolute path of the file.
        offset: Where the bytes begin, bytes.
        nbytes: How many bytes.
        size: Size of the whole file, bytes.
        mtime_ns: Time of its last change, nanoseconds.
    """

    path: str
    offset: int
    nbytes: int
    size: int
    mtime_ns: int


class MemoryPlace(msgspec.Struct, frozen=True, array_like=True, tag="memory"):
    """Bytes in the shared memory of the process that published the dataset."""

    memory: SharedRef


class ContentPlace(msgspec.Struct, frozen=True, array_like=True, tag="content"):
    """Bytes of content in the folder of the node.

    Attributes:
        sha256: Its hash.
        offset: Where the bytes begin in it.
        nbytes: How many bytes.
    """

    sha256: str
    offset: int
    nbytes: int


class FieldRef(msgspec.Struct, frozen=True, array_like=True):
    """One field of a slice: its name, the type and shape of an item, and its bytes.

    Attributes:
        name: Its name.
        dtype: The type of its elements, with their byte order.
        item_shape: The shape of one row.
        place: Where the bytes lie.
        count: How many rows it has; -1 for one for each item.
        fence: Whether it says where the rows of a sparse matrix begin; from 0 in each slice.
    """

    name: str
    dtype: str
    item_shape: tuple[int, ...]
    place: FilePlace | MemoryPlace | ContentPlace
    count: int = -1
    fence: bool = False


class SliceRef(msgspec.Struct, frozen=True, array_like=True):
    """A slice as plain data, which is sent to an agent instead of the items themselves.

    Attributes:
        start: Index of the first item in the dataset.
        stop: Index after the last item; ``start == stop`` is an empty slice.
        fields: Where the bytes of each field lie; none for a range.
        rows: Which rows of files the agent reads itself; None if all bytes lie ready.
    """

    start: int
    stop: int
    fields: tuple[FieldRef, ...] = ()
    rows: StoredRows | None = None


class Slice:
    """The items ``start`` to ``stop`` of a dataset, as read-only arrays.

    A field is an attribute and an item: ``slice.points`` is ``slice["points"]``.

    Attributes:
        start: Index of the first item in the dataset.
        stop: Index after the last item.
        arrays: The fields by name; the first axis counts the items of the slice.
        read_bytes: Bytes that were read of files to open it, without mappings.

    Example:
        >>> part = Slice(10, 12, {"points": np.array([[1.0, 2.0], [3.0, 4.0]])})
        >>> len(part), part.points.shape
        (2, (2, 2))
    """

    __slots__ = ("arrays", "read_bytes", "start", "stop")

    def __init__(
        self, start: int, stop: int, arrays: Mapping[str, Array], read_bytes: int = 0
    ) -> None:
        self.start: int = start
        self.stop: int = stop
        self.read_bytes: int = read_bytes
        self.arrays: Mapping[str, Array] = MappingProxyType(dict(arrays))

    def __len__(self) -> int:
        return self.stop - self.start

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.start, self.stop))

    def __getitem__(self, name: str) -> Array:
        array = self.arrays.get(name)
        if array is None:
            raise _no_field(name, self.arrays)
        return array

    def __getattr__(self, name: str) -> Array:
        # Reached only for what is not an attribute; names with underscores are Python's own.
        if name.startswith("__") or name in Slice.__slots__:
            raise AttributeError(name)
        array = self.arrays.get(name)
        if array is None:
            raise AttributeError(str(_no_field(name, self.arrays)))
        return array

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.arrays})

    def __repr__(self) -> str:
        fields = ", ".join(
            f"{name}: {array.dtype}{list(array.shape)}" for name, array in self.arrays.items()
        )
        return f"<Slice {self.start}:{self.stop}" + (f" {fields}>" if fields else ">")


def in_content(ref: SliceRef, fetched: Iterable[tuple[bytes, int, str]]) -> SliceRef:
    """Return a slice whose parts of files were fetched as content.

    Args:
        ref: The slice.
        fetched: Path and offset of each such part, and the hash of the content.
    """
    hashes = {(os.fsdecode(path), offset): sha256 for path, offset, sha256 in fetched}

    def moved(field: FieldRef) -> FieldRef:
        place = field.place
        if not isinstance(place, FilePlace) or (place.path, place.offset) not in hashes:
            return field
        sha256 = hashes[place.path, place.offset]
        return msgspec.structs.replace(field, place=ContentPlace(sha256, 0, place.nbytes))

    rows = ref.rows
    if rows is not None:
        content = tuple(
            StoredContent(file.path, offset, nbytes, hashes[file.path, offset])
            for file, offset, nbytes in rows.needed()
            if (file.path, offset) in hashes
        )
        rows = msgspec.structs.replace(rows, content=content)
    fields = tuple(moved(field) for field in ref.fields)
    return msgspec.structs.replace(ref, fields=fields, rows=rows)


def open_slice(ref: SliceRef, blocks: MappedBlocks, content: ContentFolder = _NO_CONTENT) -> Slice:
    """Open a slice whose bytes another process published; see :mod:`sapwood.data.opening`.

    Args:
        ref: The reference.
        blocks: Maps the memory of that process, if it is of this machine. What it maps stays as
            long as it knows of that.
        content: Where content is that was fetched from another machine.

    Raises:
        DataMissingError: A file is gone or has changed since it was published.
        ProtocolError: The reference is malformed or its memory is gone.
    """
    count = ref.stop - ref.start
    if count < 0:
        raise ProtocolError(f"a slice ends before it starts ({ref.start}:{ref.stop})")
    return Slice(
        ref.start,
        ref.stop,
        {field.name: _open_field(field, count, blocks, content) for field in ref.fields},
    )


def _open_field(field: FieldRef, count: int, blocks: MappedBlocks, content: ContentFolder) -> Array:
    try:
        dtype = dtype_from(field.dtype)
    except (TypeError, ValueError, ProtocolError) as error:
        raise ProtocolError(f"a slice has a field of unknown type {shown(field.dtype)}") from error
    if dtype.hasobject or not dtype.itemsize or any(extent < 0 for extent in field.item_shape):
        raise ProtocolError(
            f"a slice has a field of impossible type {shown(field.dtype)} or shape "
            f"{field.item_shape}"
        )
    shape = (count if field.count < 0 else field.count, *field.item_shape)
    nbytes = math.prod(shape) * dtype.itemsize
    place = field.place
    held = place.memory.nbytes if isinstance(place, MemoryPlace) else place.nbytes
    if held != nbytes:
        raise ProtocolError(
            f"field {shown(field.name)} of a slice is {nbytes} bytes, but its reference "
            f"names {held}"
        )
    if not nbytes:
        array = np.zeros(shape, dtype)
        array.flags.writeable = False
        return array
    if isinstance(place, MemoryPlace):
        buffer: memoryview = blocks.view(place.memory)
    elif isinstance(place, ContentPlace):
        buffer = _map_content(place, content)
    else:
        buffer = map_file(place)
    array = np.frombuffer(buffer, dtype).reshape(shape)
    if not dtype.isnative:  # the client's machine has the other byte order
        array = array.astype(dtype.newbyteorder("="))
    if field.fence:
        array = array - array[0]
    array.flags.writeable = False
    return array


def map_file(place: FilePlace) -> memoryview:
    """Return bytes of a file without reading them; the kernel loads what is looked at.

    Raises:
        DataMissingError: The file is gone, cannot be read or has changed.
    """
    try:
        fd = os.open(place.path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise DataMissingError(
            f"a data file cannot be opened any more: {error.strerror}",
            where=place.path,
            hint="keep the file until the run is done",
        ) from error
    try:
        status = os.fstat(fd)
        if status.st_size != place.size or status.st_mtime_ns != place.mtime_ns:
            raise DataMissingError(
                "a data file has changed since the dataset was loaded",
                where=place.path,
                hint="load it again, and do not write to it during a run",
            )
        return _mapped(fd, place.offset, place.nbytes, place.path)
    finally:
        os.close(fd)


def _map_content(place: ContentPlace, content: ContentFolder) -> memoryview:
    if not content.path:
        raise ProtocolError("this process has no folder for fetched slices")
    path = content.path_of(place.sha256)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise DataMissingError(
            f"fetched data cannot be opened any more: {error.strerror}",
            where=path,
            hint="remove nothing from the content cache during a run",
        ) from error
    try:
        return _mapped(fd, place.offset, place.nbytes, path)
    finally:
        os.close(fd)


def _mapped(fd: int, offset: int, nbytes: int, where: str) -> memoryview:
    """Map a part of a file, which need not begin with a page."""
    begin = offset - offset % mmap.ALLOCATIONGRANULARITY
    if begin < 0 or offset + nbytes > os.fstat(fd).st_size:
        raise ProtocolError("a slice points outside its file", where=where)
    length = offset - begin + nbytes
    mapped = mmap.mmap(fd, length, access=mmap.ACCESS_READ, offset=begin)
    return memoryview(mapped)[offset - begin :]


def _no_field(name: str, known: Mapping[str, Array]) -> DataShapeError:
    from sapwood.core.suggest import (  # noqa: PLC0415 - only errors need it; agents load this
        suggestion,
    )

    if not known:
        return DataShapeError(
            f"the slice has no field {shown(name)}: it has no arrays, only indices",
            hint="use slice.start and slice.stop; for arrays name them in the program's inputs, "
            "and give an array, a dictionary of arrays or a file as data",
        )
    return DataShapeError(
        f"the slice has no field {shown(name)}", hint=suggestion(name, known, kind="fields")
    )
