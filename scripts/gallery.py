"""Draws the pictures of the gallery: what the examples produce.

``python scripts/gallery.py docs/_static`` needs the extras ``bench`` and ``examples``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import sapwood

EXAMPLES = Path(__file__).parents[1] / "examples"
COLOURS = (2, 4, 8, 16)


def main() -> None:
    """Run the examples and draw what they give."""
    folder = Path(sys.argv[1])
    with sapwood.local(agents=2) as cluster:
        draw_quantized(cluster, folder / "gallery-quantize.png")
        draw_pi(cluster, folder / "gallery-pi.png")
        draw_logistic(cluster, folder / "gallery-logistic.png")
        draw_hull(cluster, folder / "gallery-reducer.png")


def draw_quantized(cluster: sapwood.Cluster, path: Path) -> None:
    """Draw one photograph in more and more colours."""
    figure, axes = plt.subplots(1, len(COLOURS), figsize=(12, 2.4), layout="constrained")
    for axis, colours in zip(axes, COLOURS, strict=True):
        program = sapwood.load_program(EXAMPLES / "quantize", {"colours": colours})
        data = sapwood.load(program.default_data(), fields=program.inputs)
        centres = cluster.run(program, data).result()["centres"]
        pixels = data["pixels"].astype(float)
        distances = ((pixels[:, None, :] - centres[None]) ** 2).sum(axis=2)
        picture = centres[distances.argmin(axis=1)].round().astype(np.uint8)
        axis.imshow(picture.reshape(data.meta["height"], data.meta["width"], -1))
        axis.set_title(f"{colours} colours")
        axis.axis("off")
    save(figure, path)


def draw_pi(cluster: sapwood.Cluster, path: Path) -> None:
    """Draw how the estimate of pi comes closer."""
    samples = [int(10**exponent) for exponent in np.arange(3, 8.01, 0.25)]
    errors = []
    for seed in range(8):
        program = sapwood.load_program(EXAMPLES / "pi", {"seed": seed})
        runs = [cluster.run(program, range(count)).result()["pi"] for count in samples]
        errors.append(np.abs(np.array(runs) - np.pi))
    figure, axis = plt.subplots(figsize=(6, 3.4), layout="constrained")
    for line in errors:
        axis.loglog(samples, line, ".", color="#2b6cb0", alpha=0.5)
    axis.loglog(samples, 1.64 / np.sqrt(samples), color="#b45309", label="standard error")
    axis.set(xlabel="samples", ylabel="distance to pi", title="examples/pi, eight seeds")
    axis.legend()
    save(figure, path)


def draw_logistic(cluster: sapwood.Cluster, path: Path) -> None:
    """Draw the probabilities that the model of examples/logistic gives."""
    program = sapwood.load_program(EXAMPLES / "logistic")
    data: dict[str, Any] = program.default_data()
    model = cluster.run(program, data).result()
    score = ((data["x"] - model["mean"]) / model["scale"]) @ model["coefficients"]
    probability = 1 / (1 + np.exp(-(score + model["intercept"])))
    figure, axis = plt.subplots(figsize=(6, 3.4), layout="constrained")
    for label, colour, name in ((0, "#b45309", "malignant"), (1, "#2b6cb0", "benign")):
        axis.hist(probability[data["y"] == label], np.linspace(0, 1, 41), color=colour, alpha=0.6,
                  label=name)  # fmt: skip
    title = (
        f"examples/logistic: {model['accuracy']:.1%} right after {model['iterations']} iterations"
    )
    axis.set(xlabel="probability of benign", ylabel="items", title=title, yscale="log")
    axis.legend()
    save(figure, path)


def hull(left: Any, right: Any) -> Any:
    """Put two sets of corners together: the corners of the convex hull of both."""
    points = sorted({*map(tuple, np.concatenate([left, right]).tolist())})

    def half(ordered: list[Any]) -> list[Any]:
        kept: list[Any] = []
        for x, y in ordered:
            while len(kept) > 1:
                (ax, ay), (bx, by) = kept[-2:]
                if (bx - ax) * (y - ay) - (by - ay) * (x - ax) > 0:
                    break
                kept.pop()
            kept.append((x, y))
        return kept[:-1]

    return np.array(half(points) + half(points[::-1]))


class Hull(sapwood.Program):
    """The convex hull of points, by a reducer of the program's own."""

    inputs = ("points",)
    reduce = {"corners": hull}  # noqa: RUF012 - as users write it

    def map(self, slice: Any, state: dict[str, Any]) -> dict[str, Any]:  # noqa: A002 - as Program.map
        """Return the corners of one slice."""
        return {"corners": hull(slice.points, slice.points[:1])}


def draw_hull(cluster: sapwood.Cluster, path: Path) -> None:
    """Draw the hulls of a cloud of points and of its slices."""
    points = np.random.default_rng(5).normal(size=(4000, 2))
    points = points[points[:, 0].argsort()]
    corners = cluster.run(Hull, points).result()["corners"]
    figure, axis = plt.subplots(figsize=(6, 3.4), layout="constrained")
    for half, colour in zip(np.array_split(points, 2), ("#2b6cb0", "#2f855a"), strict=True):
        axis.plot(*half.T, ".", color=colour, alpha=0.25, markersize=3)
        axis.plot(*closed(hull(half, half[:1])).T, color=colour, linewidth=1)
    axis.plot(*closed(corners).T, color="#b45309", linewidth=2, label="hull of all")
    axis.set(title="A reducer of one's own: convex hull of two slices", aspect="equal")
    axis.legend(loc="upper left", bbox_to_anchor=(1, 1))
    save(figure, path)


def closed(corners: Any) -> Any:
    """Return corners with the first one again at the end."""
    return np.concatenate([corners, corners[:1]])


def save(figure: Any, path: Path) -> None:
    """Write a picture, small."""
    figure.savefig(path, dpi=90)
    plt.close(figure)


if __name__ == "__main__":
    main()
