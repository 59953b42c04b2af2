import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sapwood.core.errors import (
    DataError,
    DataMissingError,
    DataShapeError,
    DataValueError,
    ResourceError,
)
from sapwood.data import load

PIXELS = (np.arange(4 * 6 * 3) * 3).astype(np.uint8).reshape(4, 6, 3)


def test_every_pixel_is_an_item(tmp_path: Path) -> None:
    Image.fromarray(PIXELS).save(tmp_path / "a.png")
    data = load(tmp_path / "a.png", fields=["pixels"])
    assert data["pixels"].dtype == np.uint8
    assert (data["pixels"].reshape(4, 6, 3) == PIXELS).all()
    assert dict(data.meta) == {"height": 4, "width": 6, "mode": "RGB"}


@pytest.mark.parametrize(
    ("mode", "becomes", "channels"),
    [("L", "L", 1), ("1", "L", 1), ("P", "RGB", 3), ("RGBA", "RGBA", 4), ("LA", "RGBA", 4)],
)
def test_other_modes_are_converted(tmp_path: Path, mode: str, becomes: str, channels: int) -> None:
    Image.fromarray(PIXELS).convert(mode).save(tmp_path / "a.png")
    data = load(tmp_path / "a.png")
    assert data["data"].shape == (24, channels)
    assert data.meta["mode"] == becomes


def test_colours_for_printing_are_converted(tmp_path: Path) -> None:
    Image.fromarray(PIXELS).convert("CMYK").save(tmp_path / "a.tif")
    assert load(tmp_path / "a.tif").meta["mode"] == "RGB"


def test_a_picture_is_turned_upright(tmp_path: Path) -> None:
    image = Image.fromarray(PIXELS)
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(tmp_path / "a.png", exif=exif)
    data = load(tmp_path / "a.png")
    assert (data.meta["height"], data.meta["width"]) == (6, 4)
    assert (data["data"].reshape(6, 4, 3) == np.rot90(PIXELS, -1)).all()


def test_more_than_eight_bits_are_refused(tmp_path: Path) -> None:
    Image.fromarray(np.ones((3, 3), np.uint16)).save(tmp_path / "a.png")
    with pytest.raises(DataShapeError, match="8 bits"):
        load(tmp_path / "a.png")


def test_a_picture_may_be_larger_than_pillow_likes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.fromarray(PIXELS).save(tmp_path / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 5)
    assert load(tmp_path / "a.png")["data"].shape == (24, 3)
    assert Image.MAX_IMAGE_PIXELS == 5


def test_a_picture_that_memory_does_not_hold_is_refused_by_its_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.fromarray(PIXELS).save(tmp_path / "a.png")
    monkeypatch.setattr("sapwood.data.codecs.image.available_memory", lambda: 191)
    with pytest.raises(ResourceError, match="6 times 4 pixels needs about 192 B"):
        load(tmp_path / "a.png")


def test_several_frames_are_refused(tmp_path: Path) -> None:
    first = Image.fromarray(PIXELS)
    second = Image.fromarray(255 - PIXELS)
    first.save(tmp_path / "a.gif", save_all=True, append_images=[second])
    with pytest.raises(DataShapeError, match="several frames"):
        load(tmp_path / "a.gif")


@pytest.mark.parametrize("part", [0.01, 0.5])
def test_a_damaged_picture_is_refused(tmp_path: Path, part: float) -> None:
    path = tmp_path / "a.png"
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    Image.fromarray(noise).save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * part)])
    with pytest.raises(DataValueError, match="cannot be decoded"):
        load(path)


def test_a_text_is_no_picture(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_text("hello")
    with pytest.raises(DataValueError, match="cannot be decoded"):
        load(tmp_path / "a.jpg")


def test_a_missing_package_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.fromarray(PIXELS).save(tmp_path / "a.png")
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(DataError, match="pip install pillow"):
        load(tmp_path / "a.png")


def test_a_missing_picture_is_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DataMissingError, match="no such file"):
        load(tmp_path / "a.png")
