"""A dataset: named arrays of one length, of which agents hold slices."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from sapwood.core.arguments import items, whole
from sapwood.core.errors import DataShapeError
from sapwood.core.html_table import escaped, html_table
from sapwood.core.shown import shown
from sapwood.core.suggest import suggestion
from sapwood.data.checks import find_not_finite, require_kind
from sapwood.data.chunks import split_range
from sapwood.data.column import Array, Column
from sapwood.data.publish import Published, in_shared_memory


class Dataset:
    """Items that a run works on; made by :func:`sapwood.load`.

    Args:
        columns: The fields by name, all of one length; none for a range of indices.
        items: The indices of the items; they begin at 0 except for ranges.
        origin: Where the data come from, for people.
        meta: What the source says besides the arrays, for example height and width.
        named: Whether the source named the fields; otherwise whoever wants the data may.

    Example:
        >>> data = Dataset({"x": Column(np.arange(6.0))}, items=range(6), origin="an array")
        >>> data["x"].sum()
        np.float64(15.0)
    """

    __slots__ = ("_columns", "items", "meta", "named", "origin")

    def __init__(
        self,
        columns: Mapping[str, Column],
        *,
        items: range,
        origin: str,
        meta: Mapping[str, Any] | None = None,
        named: bool = False,
    ) -> None:
        self._columns = dict(columns)
        self.items: range = items
        self.origin: str = origin
        self.meta: Mapping[str, Any] = MappingProxyType(dict(meta or {}))
        self.named: bool = named

    @property
    def length(self) -> int:
        """Number of items."""
        return len(self.items)

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields, in order; empty for a range."""
        return tuple(self._columns)

    @property
    def nbytes(self) -> int:
        """Size of all arrays, bytes."""
        return sum(column.array.nbytes for column in self._columns.values())

    def __len__(self) -> int:
        return self.length

    def array(self, name: str) -> Array:
        """Return a field as a read-only array; the first axis counts the items.

        Raises:
            DataShapeError: There is no such field; the message has the nearest names.
        """
        view = self._column(name).array.view()
        view.flags.writeable = False
        return view

    def __getitem__(self, name: str) -> Array:
        return self.array(name)

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def prototype(self, name: str) -> Array:
        """Return an array that has the type and shape of a field, if not its values."""
        return self.array(name)

    def rows(self, start: int, stop: int, fields: Sequence[str] | None = None) -> dict[str, Array]:
        """Return some rows of fields, by name.

        Args:
            start: The first of them, counted from 0.
            stop: Where they end.
            fields: The fields; None for all.

        Raises:
            DataShapeError: There are no such rows or fields.
        """
        start, stop = whole(start, "start", DataShapeError), whole(stop, "stop", DataShapeError)
        if not 0 <= start <= stop <= self.length:
            raise DataShapeError(
                f"the dataset has no items {start}:{stop}",
                where=self.origin,
                hint=f"its items are 0:{self.length}",
            )
        return {name: self.array(name)[start:stop] for name in self._names(fields)}

    def check(
        self, field: str, *, ndim: int | None = None, kind: str = "", columns: int | None = None
    ) -> None:
        """Check type and shape of a field as :meth:`require` does; its values are not read."""
        array = self.prototype(field)
        require_kind(array, ndim=ndim, kind=kind, columns=columns, where=self._where(field))

    def renamed(self, name: str) -> Dataset:
        """Return the same data with their one field renamed, if the source did not name it."""
        if self.named or len(self._columns) != 1 or name in self._columns:
            return self
        column = next(iter(self._columns.values()))
        return Dataset({name: column}, items=self.items, origin=self.origin, meta=self.meta)

    def split(self, parts: int, chunk: int | None = None) -> list[range]:
        """Return which items each of ``parts`` agents gets, as ranges of indices.

        Args:
            parts: How many parts, at least 1.
            chunk: Items per chunk; a part is a run of whole chunks. None: as even as possible.

        Raises:
            InputError: ``parts`` or ``chunk`` is less than 1.
        """
        return split_range(self.items, parts, chunk)

    def fingerprint(self) -> str:
        """Return a text that identifies the data: arrays in memory are hashed.

        Files that agents map as they are count by the time of their last change and their size.
        """
        hasher = hashlib.sha256(repr((self.items, self.fields)).encode())
        for column in self._columns.values():
            place = column.place
            for array in (column.array, column.bounds):
                if array is None:
                    continue
                hasher.update(repr((array.dtype.str, array.dtype.descr, array.shape)).encode())
                if place is not None and array is column.array:
                    hasher.update(repr((place.offset, place.size, place.mtime_ns)).encode())
                elif array.size:
                    hasher.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        return hasher.hexdigest()

    @property
    def hashed_bytes(self) -> int:
        """Bytes that :meth:`fingerprint` reads."""
        return sum(one.array.nbytes for one in self._columns.values() if one.place is None)

    @property
    def per_item(self) -> bool:
        """Whether each field has one row an item; those of sparse matrices have not."""
        return all(column.per_item for column in self._columns.values())

    def taken(self, fields: Sequence[str] | None = None) -> Dataset:
        """Return the same data, of which later changes of the caller's arrays change nothing.

        Fields in memory are copied into shared memory, where agents read them. Files stay files.

        Args:
            fields: The fields to copy; None for all.

        Raises:
            ResourceError: The machine has not enough memory.
        """
        names = self._names(fields)
        columns = in_shared_memory({name: self._column(name) for name in names})
        taken = copy.copy(self)  # of the same class
        taken._columns = {**self._columns, **columns}  # noqa: SLF001 - it is one of this class
        return taken

    def publish(self, fields: Sequence[str] | None = None) -> Published:
        """Make the data visible to the processes of this machine until the result is closed.

        Args:
            fields: The fields to publish; None for all.

        Raises:
            DataShapeError: There is no such field.
            ResourceError: The machine has not enough memory.
        """
        names = self._names(fields)
        return Published(self.items, {name: self._column(name) for name in names})

    def require(
        self, field: str, *, ndim: int | None = None, kind: str = "", columns: int | None = None
    ) -> Array:
        """Return a field that a program can use, or say why it cannot.

        Args:
            field: Its name.
            ndim: Number of dimensions that the array must have.
            kind: Letters of the kinds of numbers that it may have: ``f`` floating point,
                ``i`` signed, ``u`` unsigned, ``b`` boolean, ``c`` complex. Empty: any.
            columns: Length that the second axis must have.

        Raises:
            DataShapeError: The field is missing or of another type or shape.
        """
        self.check(field, ndim=ndim, kind=kind, columns=columns)
        return self.array(field)

    def published_for(self, fields: Sequence[str] | None, *, finite: bool) -> Published:
        """Check the data that a run wants, and make them visible to agents.

        Args:
            fields: The fields; None for all.
            finite: Whether NaN and infinite values are an error.

        Raises:
            DataShapeError: There is no such field.
            DataValueError: There are values that are not finite.
            ResourceError: The machine has not enough memory.
        """
        if finite:
            self.require_finite(fields)
        return self.publish(fields)

    def require_finite(self, fields: Sequence[str] | None = None) -> None:
        """Check that no value is NaN or infinite.

        Args:
            fields: The fields to look at; None for all.

        Raises:
            DataShapeError: There is no such field.
            DataValueError: There are such values; the message says how many and where the
                first is.
        """
        for name in self._names(fields):
            find_not_finite(self.array(name), where=self._where(name))

    def sample(self, count: int, seed: int) -> dict[str, Array]:
        """Draw different items at random; the same seed draws the same items.

        Args:
            count: How many, at most the number of items.
            seed: Any integer from 0.

        Returns:
            The drawn rows of every field, by name.

        Raises:
            DataShapeError: There are not so many items, or the items are bare indices.
        """
        if not self._columns:
            raise DataShapeError(
                "a range has no rows to sample", where=self.origin, hint="draw indices instead"
            )
        if not all(column.per_item for column in self._columns.values()):
            raise DataShapeError(
                "the rows of a sparse matrix cannot be sampled",
                where=self.origin,
                hint="draw row numbers, and take those rows of the matrix before it is data",
            )
        if not 0 <= whole(count, "count", DataShapeError) <= self.length:
            raise DataShapeError(
                f"cannot draw {count} different items out of {self.length}",
                where=self.origin,
                hint="draw fewer, or give more data",
            )
        rows = np.random.default_rng(seed).choice(self.length, count, replace=False)
        return {name: column.array[rows] for name, column in self._columns.items()}

    def _names(self, fields: Sequence[str] | None) -> tuple[str, ...]:
        """Return the names of some fields, or of all."""
        if fields is None:
            return self.fields
        names = items(fields, "fields", DataShapeError)
        wrong = [name for name in names if not isinstance(name, str)]
        if wrong:
            raise DataShapeError(f"{shown(wrong[0])} is not the name of a field", where=self.origin)
        return tuple(names)

    def _column(self, name: str) -> Column:
        known: Any = name  # callers may give something else
        column = self._columns.get(known) if isinstance(known, str) else None
        if column is None:
            raise DataShapeError(
                f"the dataset has no field {shown(name)}",
                where=self.origin,
                hint=suggestion(name, self._columns, kind="fields"),
            )
        return column

    def _where(self, field: str) -> str:
        return f"field {shown(field)} of {self.origin}"

    def _describe(self) -> list[tuple[str, str, str]]:
        """Return name, dtype and shape of an item of each field."""
        return [
            (name, str(column.array.dtype), "".join(map(_extent, column.array.shape[1:])))
            for name, column in self._columns.items()
        ]

    def __repr__(self) -> str:
        parts = [f"{self.length} items"]
        parts += [f"{name}: {dtype}{shape}" for name, dtype, shape in self._describe()]
        if self._columns:
            parts.append(f"{self.nbytes} bytes")
        return f"<Dataset {', '.join(parts)}, from {self.origin}>"

    def _repr_html_(self) -> str:
        rows = [(name, dtype, shape or "one number") for name, dtype, shape in self._describe()]
        table = html_table(rows, ("field", "type", "item")) if rows else ""
        return (
            f"<b>{type(self).__name__}</b>: {self.length} items, {self.nbytes} bytes, "
            f"from {escaped(self.origin)}{table}"
        )


def _extent(extent: int) -> str:
    return f"[{extent}]"
