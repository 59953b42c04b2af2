"""Which columns of a file become which fields."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from sapwood.core.errors import DataShapeError
from sapwood.core.shown import shown
from sapwood.core.suggest import suggestion

Choose = Callable[[Sequence[str]], Sequence[str] | None]
"""Gets the names of all columns of a file, and returns those to read; None for all it has."""


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """The wanted rows and columns of a table.

    If every field is the name of a column, each is that column. Otherwise one field is wanted, and
    its rows have a number of each column.

    Args:
        fields: The fields that are wanted.
        columns: The columns that may be used; None for all.
        where: The file, for messages.
    """

    fields: Sequence[str]
    columns: Sequence[str] | None
    where: str

    def by_name(self, names: Sequence[str]) -> bool:
        """Whether each field is a column."""
        known = names if self.columns is None else self.columns
        return bool(names) and all(field in known for field in self.fields)

    def __call__(self, names: Sequence[str]) -> Sequence[str] | None:
        """Return the columns to read.

        Raises:
            DataShapeError: A column is missing or named twice, or several fields have none.
        """
        if self.columns is not None and not names:
            raise DataShapeError(
                f"columns are chosen ({', '.join(self.columns)}), and the file names none",
                where=self.where,
                hint="leave columns out, or write a file with named columns",
            )
        for name in self.columns or ():
            self._require(name, names)
        if self.by_name(names):
            for field in self.fields:
                self._require(field, names)
            return tuple(self.fields)
        if len(self.fields) == 1:
            if self.columns is not None:
                return tuple(self.columns)
            return tuple(names) or None
        known = names if self.columns is None else self.columns
        missing = next((field for field in self.fields if field not in known), self.fields[0])
        raise DataShapeError(
            f"the file has no column {shown(missing)}",
            where=self.where,
            hint=suggestion(missing, known, kind="columns")
            if known
            else "give it a header line with the names of its columns",
        )

    def _require(self, name: str, names: Sequence[str]) -> None:
        if name not in names:
            raise DataShapeError(
                f"the file has no column {shown(name)}",
                where=self.where,
                hint=suggestion(name, names, kind="columns"),
            )
        if list(names).count(name) > 1:
            raise DataShapeError(
                f"the file has several columns {shown(name)}",
                where=self.where,
                hint="write it with names that differ",
            )
