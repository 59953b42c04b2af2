"""Pictures: a piece is a whole one, whose pixels are the rows."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from sapwood.data.byte_source import ByteSource
from sapwood.data.codecs.image import ImageCodec, decode_image, image_header
from sapwood.data.formats.choice import Choose
from sapwood.data.scanned import ColumnType, Scanned
from sapwood.data.stored import StoredPiece

Array = np.ndarray[Any, np.dtype[Any]]


class ImageFormat:
    """Pictures with the same number of channels."""

    name: ClassVar[str] = "image"
    suffixes: ClassVar[tuple[str, ...]] = ImageCodec.suffixes
    piece: ClassVar[str] = "picture"

    def scan(self, source: ByteSource, choose: Choose) -> Scanned:
        """Read the header of a picture."""
        choose(())
        header = image_header(_stream(source), source.where)
        piece = StoredPiece(0, 0, header.height * header.width, ((0, source.size),))
        size = {"height": header.height, "width": header.width}
        types = {"": ColumnType(np.dtype(np.uint8), (header.channels,))}
        return Scanned((piece,), types, meta=size)

    def read(
        self, source: ByteSource, piece: StoredPiece, columns: Sequence[str], layout: str
    ) -> Iterator[dict[str, Array]]:
        """Yield the pixels."""
        del piece, columns, layout
        yield {"": decode_image(_stream(source), source.where)[0]}


def _stream(source: ByteSource) -> io.BytesIO:
    return io.BytesIO(source.read_at(0, source.size))
