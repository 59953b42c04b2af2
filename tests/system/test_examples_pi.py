"""The Monte Carlo example counts what an independent implementation of its generator counts."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import sapwood
from sapwood.cli.main import app

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "pi"

SAMPLES = 1_000_003


@pytest.fixture
def cluster(clusters: list[sapwood.Cluster]) -> sapwood.Cluster:
    """Three agents."""
    return clusters[1]


def pi(**parameters: Any) -> Any:
    return sapwood.load_program(FOLDER, parameters)


def split_mix(
    key: np.ndarray[Any, np.dtype[np.uint64]], index: np.ndarray[Any, np.dtype[np.uint64]]
) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """SplitMix64 with numpy, whose unsigned integers wrap around as C's do."""
    z = key + (index + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    drawn: np.ndarray[Any, np.dtype[np.uint64]] = z ^ (z >> np.uint64(31))
    return drawn


def inside_by_numpy(start: int, stop: int, seed: int) -> int:
    key = split_mix(np.zeros(1, np.uint64), np.array([seed], np.uint64))
    z = split_mix(key, np.arange(start, stop, dtype=np.uint64))
    x, y = z >> np.uint64(33), z & np.uint64(2**31 - 1)
    return int((x * x + y * y < np.uint64(2**62)).sum())


def test_the_reference_is_split_mix() -> None:
    # The first numbers of the published generator from seed 1234567.
    drawn = split_mix(np.array([1234567], np.uint64), np.arange(3, dtype=np.uint64))
    assert drawn.tolist() == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@pytest.mark.parametrize("seed", [0, 1, 2**40])
def test_counts_what_numpy_counts(cluster: sapwood.Cluster, seed: int) -> None:
    result = cluster.run(pi(seed=seed, samples=SAMPLES)).result()
    assert result["inside"] == inside_by_numpy(0, SAMPLES, seed)
    assert result["samples"] == SAMPLES


def test_is_the_same_for_any_number_of_agents_and_any_split(
    clusters: list[sapwood.Cluster],
) -> None:
    counts = set()
    for cluster in clusters:
        for chunk in (None, 1000):
            run = cluster.run(pi(samples=SAMPLES), chunk=chunk)
            counts.add(run.result()["inside"])
    assert counts == {inside_by_numpy(0, SAMPLES, 0)}


def test_a_range_of_ones_own_may_begin_anywhere(cluster: sapwood.Cluster) -> None:
    result = cluster.run(pi(), range(500, 10_500)).result()
    assert result["inside"] == inside_by_numpy(500, 10_500, 0)


def test_is_pi(cluster: sapwood.Cluster) -> None:
    result = cluster.run(pi(samples=50_000_000)).result()
    # Five standard errors: one seed in two million fails, and this one is fixed.
    assert abs(result["pi"] - math.pi) < 5 * result["standard_error"]
    assert result["standard_error"] == pytest.approx(1.64 / math.sqrt(50e6), rel=0.01)


def test_the_native_function_can_be_submitted(cluster: sapwood.Cluster) -> None:
    future = cluster.submit(pi()["hits"], 10, 2000, seed=3)
    assert future.result()["inside"].tolist() == [inside_by_numpy(10, 2000, 3)]


def test_command_line() -> None:
    words = ["run", str(FOLDER), "--agents", "2", "--json", "-p", f"samples={SAMPLES}"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["result"]["inside"] == inside_by_numpy(0, SAMPLES, 0)
