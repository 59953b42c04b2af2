"""Images by Pillow: one item a pixel."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from sapwood.core.errors import DataError, DataShapeError, DataValueError, ResourceError
from sapwood.core.shown import shown
from sapwood.data.column import Array, Column, Decoded, check_array
from sapwood.environment.memory import available_memory
from sapwood.environment.units import describe_size

if TYPE_CHECKING:
    from PIL.Image import Image

AS_THEY_ARE = {"L", "RGB", "RGBA"}
BYTES_A_PIXEL = 8
"""Memory that a pixel takes while its picture is decoded and converted: four channels, twice."""

CONVERTED = {"1": "L", "LA": "RGBA", "La": "RGBA", "RGBa": "RGBA", "PA": "RGBA", "RGBX": "RGB"}
CHANNELS = {"L": 1, "RGB": 3, "RGBA": 4}
TO_RGB = {"CMYK", "YCbCr", "LAB", "HSV"}


class ImageCodec:
    """Reads pictures as arrays of shape (height * width, channels), uint8.

    Greyscale has 1 channel, colour 3, colour with transparency 4; palettes and other colour
    spaces are converted to these. The picture is turned upright as its camera says.
    """

    suffixes = (
        *(".png", ".jpg", ".jpeg", ".bmp", ".gif"),
        *(".tif", ".tiff", ".webp", ".ppm", ".pgm"),
    )

    def read(self, path: Path, fields: Sequence[str]) -> Decoded:
        """Read the pixels.

        Raises:
            DataError: Pillow is not installed.
            DataShapeError: It has several frames or more than 8 bits per channel.
            DataValueError: It is damaged or not a picture.
            ResourceError: The memory of this machine does not hold it.
        """
        flat, image = decode_image(path, str(path))
        meta = {"height": image.height, "width": image.width, "mode": image.mode}
        return Decoded({fields[0]: Column(check_array(flat, str(path)))}, meta)


@dataclasses.dataclass(frozen=True, slots=True)
class ImageHeader:
    """What a picture says of itself before it is decoded.

    Attributes:
        height: Its height, pixels; perhaps its width, if it has to be turned upright.
        width: Its width.
        channels: Numbers a pixel that it has when it is decoded.
    """

    height: int
    width: int
    channels: int


def image_header(file: Path | BinaryIO, where: str) -> ImageHeader:
    """Return what a picture says of itself.

    Raises:
        DataError: Pillow is not installed, or it is not a picture, or one of more than 8 bits.
    """
    with _opened(file, where) as image:
        mode = image.mode
        if mode == "P":
            mode = "RGBA" if "transparency" in image.info else "RGB"
        mode = "RGB" if mode in TO_RGB else CONVERTED.get(mode, mode)
        if mode not in AS_THEY_ARE:
            raise _too_many_bits(mode, where)
        return ImageHeader(image.height, image.width, CHANNELS[mode])


def decode_image(file: Path | BinaryIO, where: str) -> tuple[Array, Image]:
    """Return the pixels of a picture, and the picture.

    Raises:
        DataError: Pillow is not installed, or it is not a picture, damaged or of more than 8 bits.
        ResourceError: The memory of this machine does not hold it.
    """
    with _opened(file, where) as opened:
        from PIL import ImageOps  # noqa: PLC0415 - an optional package

        _check_memory(opened, where)
        image = _eight_bits(ImageOps.exif_transpose(opened), where)
    return np.asarray(image).reshape(image.height * image.width, -1), image


@contextmanager
def _opened(file: Path | BinaryIO, where: str) -> Iterator[Image]:
    try:
        from PIL import Image  # noqa: PLC0415 - an optional package
    except ImportError as error:
        raise DataError(
            "reading images needs the package Pillow, which is not installed",
            where=where,
            hint="pip install 'sapwood[examples]' or pip install pillow",
        ) from error
    try:
        with _any_size(), Image.open(file) as opened:
            if getattr(opened, "n_frames", 1) > 1:
                raise DataShapeError(
                    "the image has several frames", where=where, hint="save one of them"
                )
            yield opened
    except (OSError, SyntaxError, ValueError) as error:
        raise DataValueError(
            f"the image cannot be decoded: {error}",
            where=where,
            hint="check that it opens elsewhere",
        ) from error


@contextmanager
def _any_size() -> Iterator[None]:
    """Let Pillow open pictures of any size: memory is the limit, see :func:`_check_memory`."""
    from PIL import Image  # noqa: PLC0415 - as above

    limit = Image.MAX_IMAGE_PIXELS
    Image.MAX_IMAGE_PIXELS = None
    try:
        yield
    finally:
        Image.MAX_IMAGE_PIXELS = limit


def _check_memory(image: Image, where: str) -> None:
    """Refuse a picture by the size in its header, before a byte of it is decoded."""
    needed = image.width * image.height * BYTES_A_PIXEL
    free = available_memory()
    if needed > free:
        raise ResourceError(
            f"a picture of {image.width} times {image.height} pixels needs about "
            f"{describe_size(needed)} of memory, {describe_size(free)} are free",
            where=where,
            hint="make it smaller, or cut it into pieces",
        )


def _eight_bits(image: Image, where: str) -> Image:
    """Return the image in one of the modes L, RGB and RGBA."""
    mode = image.mode
    if mode in AS_THEY_ARE:
        image.load()
        return image
    if mode == "P":
        return image.convert("RGBA" if "transparency" in image.info else "RGB")
    if mode in CONVERTED:
        return image.convert(CONVERTED[mode])
    if mode in TO_RGB:
        return image.convert("RGB")
    raise _too_many_bits(mode, where)


def _too_many_bits(mode: str, where: str) -> DataShapeError:
    return DataShapeError(
        f"images of mode {shown(mode)} have more than 8 bits per channel",
        where=where,
        hint="convert the image to 8 bits, or load it yourself and give the array",
    )
