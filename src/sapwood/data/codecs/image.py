"""Images by Pillow: one item a pixel."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sapwood.core.errors import DataError, DataShapeError, DataValueError
from sapwood.data.column import Column, Decoded, check_array

if TYPE_CHECKING:
    from PIL.Image import Image

AS_THEY_ARE = {"L", "RGB", "RGBA"}
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
            with Image.open(path) as opened:
                if getattr(opened, "n_frames", 1) > 1:
                    raise DataShapeError(
                        "the image has several frames", where=str(path), hint="save one of them"
                    )
                image = _eight_bits(ImageOps.exif_transpose(opened), path)
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise DataValueError(
                f"the image cannot be decoded: {error}",
                where=str(path),
                hint="check that it opens elsewhere",
            ) from error
        pixels = np.asarray(image)
        flat = pixels.reshape(image.height * image.width, -1)
        meta = {"height": image.height, "width": image.width, "mode": image.mode}
        return Decoded({fields[0]: Column(check_array(flat, str(path)))}, meta)


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
