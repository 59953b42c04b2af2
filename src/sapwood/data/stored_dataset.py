"""A dataset whose rows stay in their files: agents read the ones they work on."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from sapwood.comm.array_types import dtype_from
from sapwood.core.errors import ClosedError, DataShapeError, ResourceError
from sapwood.core.shown import shown
from sapwood.core.suggest import suggestion
from sapwood.data.chunks import split_range
from sapwood.data.column import Array
from sapwood.data.dataset import Dataset
from sapwood.data.publish import MEMORY_RESERVE, Published
from sapwood.data.row_reader import read_rows
from sapwood.data.slice import SliceRef
from sapwood.data.stored import StoredField, StoredRows
from sapwood.environment.memory import available_memory
from sapwood.environment.units import describe_size

SNAP = 1 / 50
"""A cut goes to the border of a piece if that moves it by at most this part of a slice."""


class StoredDataset(Dataset):
    """Rows in files; made by :func:`sapwood.load`.

    This process knows which rows are where. It reads them only when it is asked for their values:
    ``data["x"]`` reads a whole field, :meth:`rows` some rows, :meth:`sample` random ones.

    Args:
        stored: All rows.
        origin: Where they come from, for people.
        meta: What the files say besides.
        named: Whether the files named the fields.
    """

    __slots__ = ("_borders", "_by_name", "stored")

    def __init__(
        self, stored: StoredRows, *, origin: str, meta: Mapping[str, Any], named: bool
    ) -> None:
        self._borders = list(itertools.accumulate(piece.wanted for piece in stored.pieces))
        count = self._borders[-1] if self._borders else 0
        super().__init__({}, items=range(count), origin=origin, meta=meta, named=named)
        self.stored = stored
        self._by_name = {field.name: field for field in stored.fields}

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields, in order."""
        return tuple(self._by_name)

    @property
    def nbytes(self) -> int:
        """Size of all arrays, were they in memory, bytes."""
        return sum(self._bytes_of(field) for field in self._by_name.values())

    @property
    def hashed_bytes(self) -> int:
        """Bytes that :meth:`fingerprint` reads: none."""
        return 0

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def array(self, name: str) -> Array:
        """Read a whole field into the memory of this process.

        Raises:
            DataShapeError: There is no such field.
            DataError: A file is gone, damaged or has changed.
            ResourceError: The memory does not hold it.
        """
        self._require_memory([self._field(name)], self.length)
        return self._read(0, self.length, [name])[name]

    def prototype(self, name: str) -> Array:
        """Return an array of the type and shape of a field, of which nothing is read."""
        field = self._field(name)
        one = np.zeros((), dtype_from(field.dtype))
        return np.broadcast_to(one, (self.length, *field.item_shape))

    def rows(self, start: int, stop: int, fields: Sequence[str] | None = None) -> dict[str, Array]:
        """Read some rows into the memory of this process.

        Args:
            start: The first of them.
            stop: Where they end.
            fields: The fields to read; None for all.

        Raises:
            DataShapeError: There are no such rows or fields.
            DataError: A file is gone, damaged or has changed.
            ResourceError: The memory does not hold them.
        """
        if not 0 <= start <= stop <= self.length:
            raise DataShapeError(
                f"the dataset has no items {start}:{stop}",
                where=self.origin,
                hint=f"its items are 0:{self.length}",
            )
        names = self._names(fields)
        self._require_memory([self._field(name) for name in names], stop - start)
        return self._read(start, stop, names)

    def renamed(self, name: str) -> Dataset:
        """Return the same data with their one field renamed, if the source did not name it."""
        if self.named or len(self._by_name) != 1 or name in self._by_name:
            return self
        field = msgspec.structs.replace(self.stored.fields[0], name=name)
        stored = msgspec.structs.replace(self.stored, fields=(field,))
        return type(self)(stored, origin=self.origin, meta=self.meta, named=False)

    def split(self, parts: int, chunk: int | None = None) -> list[range]:
        """Return which items each of ``parts`` agents gets, as ranges of indices.

        Without a chunk a cut goes to the border of a row group, batch or file, if one is near, so
        that no two agents read it.

        Args:
            parts: How many parts, at least 1.
            chunk: Items per chunk; a part is a run of whole chunks.

        Raises:
            InputError: ``parts`` or ``chunk`` is less than 1.
        """
        even = split_range(self.items, parts, chunk)
        if chunk is not None:
            return even
        near = int(self.length / parts * SNAP)
        borders = np.array([0, *self._borders])
        cuts = [0]
        for part in even[:-1]:
            index = int(np.abs(borders - part.stop).argmin())
            border = int(borders[index])
            cuts.append(border if abs(border - part.stop) <= near else part.stop)
        return [range(*pair) for pair in itertools.pairwise([*cuts, self.length])]

    def fingerprint(self) -> str:
        """Return a text that other data do not have: times and sizes of the files count."""
        plain = msgspec.structs.replace(self.stored, handle="", finite=False)
        return hashlib.sha256(msgspec.msgpack.encode(plain)).hexdigest()

    def publish(self, fields: Sequence[str] | None = None) -> Published:
        """Make the rows known to agents, which read them.

        Raises:
            DataShapeError: There is no such field.
        """
        return self.published_for(fields, finite=False)

    def taken(self, fields: Sequence[str] | None = None) -> Dataset:
        """Return this dataset: its rows are in files."""
        _ = fields
        return self

    def published_for(self, fields: Sequence[str] | None, *, finite: bool) -> Published:
        """Make the rows known to agents, which check them as they read them.

        Args:
            fields: The fields that they read; None for all.
            finite: Whether they refuse values that are NaN or infinite.
        """
        names = self._names(fields)
        chosen = tuple(self._field(name) for name in names)
        return PublishedRows(
            self.items, msgspec.structs.replace(self.stored, fields=chosen, finite=finite)
        )

    def require_finite(self, fields: Sequence[str] | None = None) -> None:
        """Read all values, some at a time, and check that none is NaN or infinite."""
        names = self._names(fields)
        chosen = tuple(self._field(name) for name in names)
        stored = msgspec.structs.replace(self.stored, fields=chosen, finite=True)
        start = 0
        for stop in self._borders:
            read_rows(stored.cut(start, stop), stop - start, first=start)
            start = stop

    def sample(self, count: int, seed: int) -> dict[str, Array]:
        """Draw different items at random; the same seed draws the same items.

        Only the pieces that they are in are read, one after the other.
        """
        if not 0 <= count <= self.length:
            raise DataShapeError(
                f"cannot draw {count} different items out of {self.length}",
                where=self.origin,
                hint="draw fewer, or give more data",
            )
        drawn = np.random.default_rng(seed).choice(self.length, count, replace=False)
        found = {
            name: np.empty((count, *field.item_shape), dtype_from(field.dtype))
            for name, field in self._by_name.items()
        }
        pieces = np.searchsorted(self._borders, drawn, side="right")
        for piece in np.unique(pieces):
            begin = int(self._borders[piece - 1]) if piece else 0
            where = np.flatnonzero(pieces == piece)
            offsets = drawn[where] - begin
            least, most = int(offsets.min()), int(offsets.max()) + 1
            read = self._read(begin + least, begin + most, self.fields)
            for name, array in read.items():
                found[name][where] = array[offsets - least]
        return found

    def _read(self, start: int, stop: int, names: Sequence[str]) -> dict[str, Array]:
        chosen = tuple(self._field(name) for name in names)
        rows = msgspec.structs.replace(self.stored, fields=chosen).cut(start, stop)
        return read_rows(rows, stop - start, first=start).arrays

    def _require_memory(self, fields: Sequence[StoredField], count: int) -> None:
        needed = sum(_row_bytes(field) for field in fields) * count
        free = max(0, available_memory() - MEMORY_RESERVE)
        if needed > free:
            raise ResourceError(
                f"the rows need {describe_size(needed)} of memory here, {describe_size(free)} are "
                "free",
                where=self.origin,
                hint="let the agents work on them, and read only some here: data.rows(start, stop) "
                "or data.sample(count, seed)",
            )

    def _bytes_of(self, field: StoredField) -> int:
        return _row_bytes(field) * self.length

    def _field(self, name: str) -> StoredField:
        field = self._by_name.get(name)
        if field is None:
            raise DataShapeError(
                f"the dataset has no field {shown(name)}",
                where=self.origin,
                hint=suggestion(name, self._by_name, kind="fields"),
            )
        return field

    def _describe(self) -> list[tuple[str, str, str]]:
        return [
            (name, str(dtype_from(field.dtype)), "".join(f"[{n}]" for n in field.item_shape))
            for name, field in self._by_name.items()
        ]

    def __repr__(self) -> str:
        parts = [f"{self.length} items"]
        parts += [f"{name}: {dtype}{shape}" for name, dtype, shape in self._describe()]
        return f"<Dataset {', '.join(parts)}, {self.nbytes} bytes, from {self.origin}>"


class PublishedRows(Published):
    """Rows that agents read themselves.

    Args:
        items: The indices of the items.
        stored: Where they lie.
    """

    def __init__(self, items: range, stored: StoredRows) -> None:
        super().__init__(items, {})
        self._stored = stored

    def ref(self, start: int, stop: int) -> SliceRef:
        """Return what an agent needs to read the items ``start`` to ``stop``; any cut will do.

        Raises:
            DataShapeError: The dataset does not have these items.
            ClosedError: The dataset was withdrawn.
        """
        if self._closed:
            raise ClosedError("the dataset is not published any more")
        plain = super().ref(start, stop)
        first = self._items.start
        rows = self._stored.cut(start - first, stop - first)
        return msgspec.structs.replace(plain, rows=rows)


def _row_bytes(field: StoredField) -> int:
    return math.prod(field.item_shape) * dtype_from(field.dtype).itemsize
