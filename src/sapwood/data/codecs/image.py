"""Images by Pillow: one item a pixel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sapwood.core.errors import DataError, DataShapeError, DataValueError, ResourceError
from sapwood.data.column import Column, Decoded, check_array
from sapwood.environment.memory import available_memory
from sapwood.environment.units import describe_size

if TYPE_CHECKING:
    from PIL.Image import Image

AS_THEY_ARE = {"L", "RGB", "RGBA"}
BYTES_A_PIXEL = 8
"""Memory that a pixel takes while its picture is decoded and converted: four channels, twice."""

CONVERTED = {"1": "L", "LA": "RGBA", "La": "RGBA", "RGBa": "RGBA", "PA": "RGBA", "RGBX": "RGB"}
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
        try:
            from PIL import Image, ImageOps  # noqa: PLC0415 - an optional package
        except ImportError as error:
            raise DataError(
                "reading images needs the package Pillow, which is not installed",
                where=str(path),
                hint="pip install 'sapwood[examples]' or pip install pillow",
            ) from error
        try:
            with _any_size(), Image.open(path) as opened:
                if getattr(opened, "n_frames", 1) > 1:
                    raise DataShapeError(
                        "the image has several frames", where=str(path), hint="save one of them"
                    )
                _check_memory(opened, path)
                image = _eight_bits(ImageOps.exif_transpose(opened), path)
        except (OSError, SyntaxError, ValueError) as error:
            raise DataValueError(
                f"the image cannot be decoded: {error}",
                where=str(path),
                hint="check that it opens elsewhere",
            ) from error
        pixels = np.asarray(image)
        flat = pixels.reshape(image.height * image.width, -1)
        meta = {"height": image.height, "width": image.width, "mode": image.mode}
        return Decoded({fields[0]: Column(check_array(flat, str(path)))}, meta)


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


def _check_memory(image: Image, path: Path) -> None:
    """Refuse a picture by the size in its header, before a byte of it is decoded."""
    needed = image.width * image.height * BYTES_A_PIXEL
    free = available_memory()
    if needed > free:
        raise ResourceError(
            f"a picture of {image.width} times {image.height} pixels needs about "
            f"{describe_size(needed)} of memory, {describe_size(free)} are free",
            where=str(path),
            hint="make it smaller, or cut it into pieces",
        )


def _eight_bits(image: Image, path: Path) -> Image:
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
    raise DataShapeError(
        f"images of mode {mode!r} have more than 8 bits per channel",
        where=str(path),
        hint="convert the image to 8 bits, or load it yourself and give the array",
    )
