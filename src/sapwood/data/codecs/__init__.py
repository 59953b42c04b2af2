"""Readers of data files: one module a format, all behind one small protocol."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from sapwood.core.errors import DataMissingError
from sapwood.core.shown import shown
from sapwood.data.codecs.csv import CsvCodec
from sapwood.data.codecs.image import ImageCodec
from sapwood.data.codecs.npy import NpyCodec
from sapwood.data.codecs.npz import NpzCodec
from sapwood.data.column import Decoded


class Codec(Protocol):
    """Reads one format of data files."""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Endings of the names of such files, lower case, with the dot."""

    def read(self, path: Path, fields: Sequence[str]) -> Decoded:
        """Read a file that exists and can be read.

        Args:
            path: The file.
            fields: The fields that are wanted; a format without names gives its one field
                the first of them.

        Raises:
            DataError: The file does not hold what its suffix says.
        """


def all_codecs() -> tuple[Codec, ...]:
    """Return every codec, in the order in which formats are listed to people."""
    return NpyCodec(), NpzCodec(), CsvCodec(), ImageCodec()


def codec_for(path: Path) -> Codec:
    """Return the codec for a file, by its suffix.

    Raises:
        DataMissingError: No codec reads files of this suffix; the message lists them.
    """
    codecs = all_codecs()
    suffix = path.suffix.lower()
    for codec in codecs:
        if suffix in codec.suffixes:
            return codec
    known = ", ".join(suffix for codec in codecs for suffix in codec.suffixes)
    raise DataMissingError(
        f"files that end in {shown(suffix)} cannot be read" if suffix else "the file has no suffix",
        where=str(path),
        hint=f"use one of {known}, or load it yourself and give the array",
    )
