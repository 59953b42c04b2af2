"""Colour quantisation: the few colours that stand best for all colours of a picture.

k-means by Lloyd's algorithm over the pixels. A pass assigns every pixel to its nearest centre
(``assign.c``, on the agents), the sums meet in the tree, and ``update`` moves each centre to
the mean of its pixels. The program stops when a pass changes no assignment, or after
``max_iterations``.
"""

from __future__ import annotations

import importlib.util
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from sapwood import Program, native, parameter
from sapwood.errors import DataMissingError, DataShapeError, DataValueError, InputError

if TYPE_CHECKING:
    from PIL.Image import Image

MODES = {1: "L", 3: "RGB", 4: "RGBA"}
"""What Pillow calls a picture, by the number of channels."""

PAPER, INK = (250, 249, 246), (60, 60, 58)


class Quantize(Program):
    """k-means over the colours of a picture."""

    sources = ("assign.c",)
    inputs = ("pixels",)
    map = native("assign")
    reduce: ClassVar = {"sums": "sum", "counts": "sum", "squares": "sum"}

    colours: int = parameter(16, minimum=2, maximum=256, help="colours to keep")
    max_iterations: int = parameter(100, minimum=1, help="moves of the centres, at most")
    seed: int = parameter(0, minimum=0, help="draws the pixels to start from")

    def default_data(self) -> Path:
        """Return the photograph that scikit-learn ships."""
        found = importlib.util.find_spec("sklearn")  # to import it takes a second
        if found is None or found.origin is None:
            raise DataMissingError(
                "the photograph comes with scikit-learn, which is not installed",
                hint="pip install scikit-learn, or name a picture with --data",
            )
        return Path(found.origin).parent / "datasets" / "images" / "china.jpg"

    def init(self, data: Any) -> dict[str, Any]:
        """Draw the first centres."""
        pixels = data.array("pixels")
        if pixels.dtype != np.uint8 or pixels.ndim != 2 or pixels.shape[1] not in MODES:
            raise DataShapeError(
                f"pixels are {pixels.dtype} of shape {pixels.shape}",
                where=data.origin,
                hint="give uint8 of shape (number of pixels, channels) with 1, 3 or 4 channels",
            )
        return {"centres": first_centres(pixels, self.colours, self.seed), "iteration": 0}

    def update(self, state: dict[str, Any], total: dict[str, Any]) -> dict[str, Any]:
        """Measure the centres, and move them unless this was the last pass."""
        centres, sums, counts = state["centres"], total["sums"], total["counts"]
        # The sum of |x - c|^2, multiplied out: only exact sums of whole numbers come up the
        # tree, so the inertia does not depend on how the pixels were split.
        squared = (centres**2).sum(axis=1)
        inertia = float(total["squares"][0] - 2 * (centres * sums).sum() + (squared @ counts))
        last = state.get("last_sums")
        converged = last is not None and np.array_equal(last, sums)
        state = {**state, "inertia": max(inertia, 0.0), "counts": counts, "converged": converged}
        if state["iteration"] == self.max_iterations:
            return {**state, "finished": True}
        # A centre without pixels stays where it is.
        means = sums / np.maximum(counts, 1)[:, np.newaxis]
        return {
            **state,
            "centres": np.where(counts[:, np.newaxis] > 0, means, centres),
            "iteration": state["iteration"] + 1,
            "last_sums": sums,
            "finished": converged,
        }

    def done(self, state: dict[str, Any]) -> bool:
        """Stop when nothing changes any more, or at the limit."""
        return bool(state["finished"])

    def metrics(self, state: dict[str, Any]) -> dict[str, float]:
        """Show the sum of squared distances."""
        return {"inertia": state["inertia"]} if "inertia" in state else {}

    def iterations(self) -> int:
        """Plan one pass more than moves: the last one measures where the centres ended."""
        return self.max_iterations + 1

    def result(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return the centres from dark to light, and how good they are."""
        order = np.argsort(state["centres"].sum(axis=1))
        return {
            "inertia": state["inertia"],
            "iterations": state["iteration"],
            "converged": state["converged"],
            "centres": state["centres"][order],
            "counts": state["counts"][order],
        }

    def check_output(self, path: Path) -> None:
        """Refuse what is neither a picture nor numbers."""
        from PIL import Image  # noqa: PLC0415 - agents do not draw

        if path.suffix.lower() not in {".json", ".npz", *Image.registered_extensions()}:
            raise InputError(
                f"a picture cannot be written as {path.suffix or 'a file without a suffix'}",
                where=str(path),
                hint="use .png or .jpg, or .json or .npz for the numbers",
            )

    def output(self, result: dict[str, Any], data: Any, path: Path) -> None:
        """Write the picture before and after side by side; ``.json`` and ``.npz`` hold numbers."""
        if path.suffix in {".json", ".npz"}:
            super().output(result, data, path)
            return
        self.check_output(path)
        comparison(result, data).save(path)


def first_centres(pixels: np.ndarray[Any, Any], count: int, seed: int) -> np.ndarray[Any, Any]:
    """Draw ``count`` pixels of different colours, and move each by less than half a step.

    Bytes have many pixels that are exactly as far from one byte colour as from another; which
    of the two they belong to would then be an accident of rounding. Off the grid of bytes no
    two distances are equal, and every implementation of k-means takes the same way.
    """
    rng = np.random.default_rng(seed)
    drawn = pixels[rng.choice(len(pixels), min(len(pixels), 16 * count), replace=False)]
    distinct = np.unique(drawn, axis=0)
    if len(distinct) < count:
        distinct = np.unique(pixels, axis=0)
    if len(distinct) < count:
        enough = f"ask for at most {len(distinct)}: -p colours={len(distinct)}"
        raise DataValueError(
            f"colours in the picture: {len(distinct)}, fewer than the {count} to keep",
            hint=enough if len(distinct) > 1 else "give a picture of at least two colours",
        )
    start = rng.permutation(distinct)[:count]
    return start + rng.uniform(-0.5, 0.5, start.shape)


def nearest(pixels: np.ndarray[Any, Any], centres: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the index of the nearest centre of each pixel."""
    # Every colour once: a photograph has far fewer colours than pixels.
    colours, where = np.unique(pixels, axis=0, return_inverse=True)
    half = 0.5 * (centres**2).sum(axis=1)
    blocks = np.array_split(colours, -(-len(colours) // 65536))
    labels = np.concatenate([(half - block @ centres.T).argmin(axis=1) for block in blocks])
    return labels[where.reshape(-1)]


def comparison(result: dict[str, Any], data: Any) -> Image:
    """Draw the picture before and after, and below them the colours with their shares."""
    from PIL import Image, ImageDraw, ImageFont  # noqa: PLC0415 - agents do not draw

    if "width" not in data.meta:
        raise DataShapeError(
            "the data are not a picture and cannot be drawn",
            where=data.origin,
            hint="write to .json or .npz, or give a picture as data",
        )
    width, height = data.meta["width"], data.meta["height"]
    pixels, centres = data.array("pixels"), result["centres"]
    palette = np.rint(centres).astype(np.uint8)
    after = palette[nearest(pixels, centres)]
    shape = (height, width) if pixels.shape[1] == 1 else (height, width, pixels.shape[1])
    gap, text, strip = max(8, width // 40), max(10, width // 42), max(16, width // 14)
    canvas = Image.new("RGB", (2 * width + 3 * gap, height + strip + 5 * gap + 2 * text), PAPER)
    pen = ImageDraw.Draw(canvas)
    font = ImageFont.load_default(text)

    captions = ("original", f"{len(palette)} colours, {result['iterations']} iterations")
    for index, (values, caption) in enumerate(zip((pixels, after), captions, strict=True)):
        picture = Image.fromarray(values.reshape(shape)).convert("RGBA")
        left = gap + index * (width + gap)
        canvas.paste(picture, (left, gap), picture)
        pen.text((left, gap + height + gap // 2), caption, INK, font)

    shares = result["counts"] / result["counts"].sum()
    edges = np.linspace(gap, 2 * width + 2 * gap, len(palette) + 1).round().astype(int)
    top = 3 * gap + height + text
    for index, (left, right) in enumerate(itertools.pairwise(edges)):
        colour = tuple(palette[index]) if palette.shape[1] > 1 else (*palette[index],) * 3
        pen.rectangle((left, top, right - 1, top + strip), colour)
        label = f"{shares[index]:.0%}"
        if pen.textlength(label, font) < right - left:
            pen.text(((left + right) / 2, top + strip + gap // 2), label, INK, font, anchor="mt")
    return canvas
