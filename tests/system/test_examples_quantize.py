"""Colour quantisation gives what scikit-learn's k-means gives from the same start."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import sapwood
from sapwood.cli.main import app
from sapwood.core.errors import DataMissingError, DataShapeError, DataValueError

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "quantize"


@pytest.fixture(scope="module")
def photograph() -> sapwood.types.Dataset:
    """Every sixteenth pixel."""
    program = quantize()
    pixels = sapwood.load(program.default_data(), fields=program.inputs)["pixels"]
    return sapwood.load(np.ascontiguousarray(pixels[::16]), fields=program.inputs)


@pytest.fixture
def cluster(clusters: list[sapwood.Cluster]) -> sapwood.Cluster:
    """Three agents."""
    return clusters[1]


def quantize(**parameters: Any) -> Any:
    return sapwood.load_program(FOLDER, parameters)


def by_scikit_learn(program: Any, data: sapwood.types.Dataset) -> Any:
    from sklearn.cluster import KMeans  # noqa: PLC0415 - not for every worker

    start = program.init(data)["centres"]
    return KMeans(
        program.colours,
        init=start,
        n_init=1,
        algorithm="lloyd",
        tol=0,
        max_iter=program.max_iterations,
    ).fit(data["pixels"].astype(np.float64))


@pytest.mark.parametrize(
    ("colours", "seed", "max_iterations"),
    [(16, 0, 20), (16, 1, 1), (16, 5, 300), (2, 3, 300), (64, 2, 30), (200, 4, 5)],
)
def test_equals_scikit_learn(
    cluster: sapwood.Cluster,
    photograph: sapwood.types.Dataset,
    colours: int,
    seed: int,
    max_iterations: int,
) -> None:
    program = quantize(colours=colours, seed=seed, max_iterations=max_iterations)
    result = cluster.run(program, photograph).result()
    reference = by_scikit_learn(program, photograph)
    assert result["counts"].all(), "choose another seed: scikit-learn moves empty clusters"
    assert result["inertia"] == pytest.approx(reference.inertia_, rel=1e-9)
    assert result["iterations"] == reference.n_iter_
    expected = reference.cluster_centers_
    expected = expected[np.argsort(expected.sum(axis=1))]
    np.testing.assert_allclose(result["centres"], expected, rtol=1e-9)


def test_the_whole_photograph_equals_scikit_learn(cluster: sapwood.Cluster) -> None:
    program = quantize(colours=16, max_iterations=20)
    whole = sapwood.load(program.default_data(), fields=program.inputs)
    result = cluster.run(program, whole).result()
    assert result["inertia"] == pytest.approx(by_scikit_learn(program, whole).inertia_, rel=1e-9)


def test_is_the_same_for_any_number_of_agents(
    clusters: list[sapwood.Cluster], photograph: sapwood.types.Dataset
) -> None:
    results = [
        cluster.run(quantize(max_iterations=25), photograph).result() for cluster in clusters
    ]
    for result in results[1:]:
        assert result["inertia"] == results[0]["inertia"]
        assert result["iterations"] == results[0]["iterations"]
        np.testing.assert_array_equal(result["centres"], results[0]["centres"])
        np.testing.assert_array_equal(result["counts"], results[0]["counts"])


def test_stops_when_nothing_changes_any_more(cluster: sapwood.Cluster) -> None:
    pixels = np.repeat(np.array([[0, 0, 0], [250, 250, 250]], np.uint8), 50, axis=0)
    result = cluster.run(quantize(colours=2), pixels).result()
    assert result["converged"]
    assert result["inertia"] == 0
    np.testing.assert_array_equal(result["centres"], [[0, 0, 0], [250, 250, 250]])


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_takes_any_number_of_channels(cluster: sapwood.Cluster, channels: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (999, channels)).astype(np.uint8)
    data = sapwood.load(pixels, fields=["pixels"])
    program = quantize(colours=5, max_iterations=500)
    result = cluster.run(program, data).result()
    assert result["inertia"] == pytest.approx(by_scikit_learn(program, data).inertia_, rel=1e-9)


def test_a_centre_without_pixels_stays_where_it_is() -> None:
    program = quantize(colours=2)
    state = {"centres": np.array([[1.0, 2.0, 3.0], [200.5, 0.0, 0.0]]), "iteration": 0}
    total = {
        "sums": np.array([[4, 8, 12], [0, 0, 0]]),
        "counts": np.array([4, 0]),
        "squares": np.array([56]),
    }
    after = program.update(state, total)
    np.testing.assert_array_equal(after["centres"], state["centres"])
    assert after["inertia"] == 0


@pytest.mark.parametrize(("data_seed", "seed"), [(58, 0), (264, 1), (362, 2)])
def test_empty_clusters_do_no_harm(cluster: sapwood.Cluster, data_seed: int, seed: int) -> None:
    # Nearly as many centres as colours; from these starts a centre loses its last pixel.
    rng = np.random.default_rng(data_seed)
    pixels = (rng.random((40, 3)) ** 3 * 255).astype(np.uint8)
    result = cluster.run(quantize(colours=20, seed=seed), pixels).result()
    assert (result["counts"] == 0).any(), "this test needs a cluster that becomes empty"
    assert result["counts"].sum() == len(pixels)
    assert np.isfinite(result["centres"]).all()
    distance = ((pixels[:, np.newaxis] - result["centres"]) ** 2).sum(axis=2)
    assert result["inertia"] == pytest.approx(distance.min(axis=1).sum(), rel=1e-9)


def test_refuses_more_colours_than_the_picture_has() -> None:
    pixels = np.array([[0, 0, 0], [9, 9, 9], [9, 9, 9]], np.uint8)
    with pytest.raises(DataValueError, match="colours in the picture: 2"):
        quantize(colours=3).init(sapwood.load(pixels, fields=["pixels"]))


@pytest.mark.parametrize(
    "pixels", [np.zeros((5, 3)), np.zeros((5, 2), np.uint8), np.zeros(5, np.uint8)]
)
def test_refuses_what_is_no_picture(pixels: np.ndarray[Any, Any]) -> None:
    with pytest.raises(DataShapeError, match="pixels are"):
        quantize().init(sapwood.load(pixels, fields=["pixels"]))


def test_command_line_writes_the_picture(tmp_path: Path) -> None:
    output = tmp_path / "quantized.png"
    done = CliRunner().invoke(
        app,
        [
            *("run", str(FOLDER), "--agents", "4", "--json"),
            *("-p", "colours=16", "-p", "max_iterations=20", "--output", str(output)),
        ],
    )
    assert done.exit_code == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["items"] == 640 * 427
    assert len(answer["statistics"]["agents"]) == 4

    picture = np.asarray(Image.open(output).convert("RGB"))
    gap, width, height = 16, 640, 427
    program = quantize()
    before = sapwood.load(program.default_data(), fields=program.inputs)["pixels"]
    left = picture[gap : gap + height, gap : gap + width]
    right = picture[gap : gap + height, 2 * gap + width : 2 * (gap + width)]
    np.testing.assert_array_equal(left.reshape(-1, 3), before)
    after = right.reshape(-1, 3).astype(np.float64)
    assert len(np.unique(after, axis=0)) == 16
    # Rounding the centres to whole colours costs at most 0.25 per channel and pixel.
    inertia = answer["progress"]["metrics"]["inertia"]
    assert ((after - before) ** 2).sum() == pytest.approx(inertia, abs=0.75 * len(before))


def test_a_picture_needs_a_shape(tmp_path: Path) -> None:
    data = sapwood.load(np.zeros((4, 3), np.uint8), fields=["pixels"])
    result = {"centres": np.zeros((2, 3)), "counts": np.ones(2), "iterations": 1}
    with pytest.raises(DataShapeError, match="not a picture"):
        quantize().output(result, data, tmp_path / "x.png")


def test_default_data_without_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    program = quantize()
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(DataMissingError, match="scikit-learn, which is not installed"):
        program.default_data()
