"""Formats whose rows agents read themselves: the layout of a file, and pieces of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any, ClassVar, Protocol

import numpy as np

from sapwood.data.byte_source import ByteSource
from sapwood.data.formats.arrow import ArrowFormat
from sapwood.data.formats.choice import Choose
from sapwood.data.formats.csv import CsvFormat
from sapwood.data.formats.image import ImageFormat
from sapwood.data.formats.npy import NpyFormat
from sapwood.data.formats.parquet import ParquetFormat
from sapwood.data.scanned import Scanned
from sapwood.data.stored import StoredPiece

Array = np.ndarray[Any, np.dtype[Any]]


class RowFormat(Protocol):
    """One format.

    Attributes:
        name: Its name.
        suffixes: Endings of such files, lower case, with the dot.
        piece: What a piece is called, for messages.
    """

    name: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]]
    piece: ClassVar[str]

    def scan(self, source: ByteSource, choose: Choose) -> Scanned:
        """Find out what is in a file.

        Args:
            source: The file.
            choose: Says which of its columns will be read.

        Raises:
            DataShapeError: It is empty, or a wanted column is missing or of a type without numbers.
            DataValueError: It is damaged.
        """

    def read(
        self, source: ByteSource, piece: StoredPiece, columns: Sequence[str], layout: str
    ) -> Iterator[dict[str, Array]]:
        """Yield the rows of a piece, some at a time, by column.

        Raises:
            DataValueError: It is damaged, or holds what it must not.
        """


def all_formats() -> tuple[RowFormat, ...]:
    """Return every format."""
    return ParquetFormat(), ArrowFormat(), NpyFormat(), CsvFormat(), ImageFormat()


def format_named(name: str) -> RowFormat:
    """Return a format by its name."""
    return next(one for one in all_formats() if one.name == name)


def format_of(path: str) -> RowFormat | None:
    """Return the format of a file by its suffix; None if there is none."""
    suffix = PurePosixPath(path).suffix.lower()
    return next((one for one in all_formats() if suffix in one.suffixes), None)
