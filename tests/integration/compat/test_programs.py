"""The example programs on several numbers of agents, against numpy."""

import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sapwood
from sapwood.compat.lizard.execution import Outcome
from sapwood.compat.lizard.structures import b64_json_dec
from sapwood.core.errors import RunnerCrashError

from .conftest import EXAMPLES

AGENTS = (1, 2, 3, 4, 7)

RunFunction = Callable[..., Outcome]
MakeCluster = Callable[..., sapwood.Cluster]


def decoded(text: str) -> dict[str, Any]:
    state: dict[str, Any] = b64_json_dec(text)
    return {**state, "dynamic": b64_json_dec(state["dynamic"])} if "dynamic" in state else state


def write_csv(path: Path, points: np.ndarray[Any, Any]) -> Path:
    np.savetxt(path, points, delimiter=",", fmt="%.6f")
    return path


@pytest.mark.row("B-RUN-1")
@pytest.mark.row("B-PROG-2")
def test_column_sums_are_the_same_on_any_number_of_agents(
    make_cluster: MakeCluster, outcome: RunFunction, tmp_path: Path
) -> None:
    points = np.random.default_rng(5).normal(size=(1001, 3)).astype(np.float32)
    settings = {
        "dims": 3,
        "max_iterations": 4,
        "input_file": write_csv(tmp_path / "points.csv", points),
    }
    for agents in AGENTS:
        cluster = make_cluster(agents, fanout=2 if agents > 4 else 0)
        found = outcome(cluster, EXAMPLES / "column_sums", settings)
        assert (found.iterations, found.points, found.agents) == (4, 1001, agents)
        state = decoded(found.end_global_state)
        assert (state["done"], state["iteration"]) == (1, 4)
        np.testing.assert_allclose(state["dynamic"], points.sum(0, np.float64), atol=1e-3)
        cluster.close()


@pytest.mark.row("B-RUN-1")
def test_a_covariance_of_rows_of_pointers(
    make_cluster: MakeCluster, outcome: RunFunction, tmp_path: Path
) -> None:
    points = np.round(np.random.default_rng(6).normal(size=(333, 4)), 6)
    path = write_csv(tmp_path / "points.csv", points)
    for agents in AGENTS:
        cluster = make_cluster(agents)
        found = outcome(cluster, EXAMPLES / "covariance", {"dims": 4, "input_file": path})
        state = decoded(found.end_global_state)["dynamic"]
        np.testing.assert_allclose(state["mean"], points.mean(0), atol=1e-12)
        np.testing.assert_allclose(state["covariance"], np.cov(points.T, bias=True), atol=1e-12)
        cluster.close()


def reference_kmeans(
    points: np.ndarray[Any, Any], k: int, iterations: int, threshold: float
) -> np.ndarray[Any, Any]:
    numbers = random.Random(0)  # noqa: S311 - what the program draws
    centres = np.array([[numbers.uniform(0, 1) for _ in range(2)] for _ in range(k)])
    for _ in range(iterations):
        nearest = ((points[:, None] - centres[None]) ** 2).sum(-1).argmin(1)
        new = np.array(
            [points[nearest == i].mean(0) if (nearest == i).any() else centres[i] for i in range(k)]
        )
        moved = abs(new - centres).max()
        centres = new
        if moved <= threshold:
            break
    return centres


@pytest.mark.row("B-RUN-1")
def test_k_means_goes_the_same_way_on_any_number_of_agents(
    make_cluster: MakeCluster, outcome: RunFunction, tmp_path: Path
) -> None:
    generator = np.random.default_rng(11)
    points = np.round(generator.uniform(size=(1234, 2)), 4)
    lines = [f"{i} {x} {y}\n" for i, (x, y) in enumerate(points)]
    path = tmp_path / "points.txt"
    path.write_text(f"{len(points)}\n{''.join(lines)}")
    settings = {
        "dims": 2,
        "max_iterations": 25,
        "num_centroids": 5,
        "threshold": 1e-4,
        "input_file": path,
    }
    centres = reference_kmeans(points, 5, 25, 1e-4)
    for agents in AGENTS:
        cluster = make_cluster(agents)
        found = outcome(cluster, EXAMPLES / "kmeans", settings)
        state = decoded(found.end_global_state)
        np.testing.assert_allclose(state["dynamic"], centres, atol=2e-3)
        cluster.close()


def test_a_histogram_counts_every_value(make_cluster: MakeCluster, outcome: RunFunction) -> None:
    numbers = random.Random(1)  # noqa: S311 - what the runner module draws
    values = np.array([numbers.gauss(0, 1) for _ in range(5003)], np.float32)
    expected, _ = np.histogram(values, bins=6, range=(-3, 3))
    settings = {"low": -3, "high": 3, "bins": 6, "count": 5003}
    for agents in AGENTS:
        cluster = make_cluster(agents)
        state = decoded(outcome(cluster, EXAMPLES / "histogram", settings).end_global_state)
        assert state["counts"][:6] == expected.tolist()
        assert state["counted"] == 5003
        cluster.close()


@pytest.mark.row("B-RUN-1")
def test_a_crash_is_an_error_with_its_place_and_never_a_result(
    make_cluster: MakeCluster, outcome: RunFunction
) -> None:
    cluster = make_cluster(2)
    with pytest.raises(RunnerCrashError, match="SIGSEGV") as caught:
        outcome(cluster, EXAMPLES / "crash", {"dims": 3, "max_iterations": 5})
    assert "kernel.cu:" in caught.value.where
    # The agents live: the same program runs to its end where it does not reach the crash.
    found = outcome(cluster, EXAMPLES / "crash", {"dims": 3, "max_iterations": 2})
    assert decoded(found.end_global_state)["dynamic"] == [100.0] * 3


@pytest.mark.row("B-RUN-1")
def test_a_lost_agent_costs_no_point(
    make_cluster: MakeCluster,
    outcome: RunFunction,
    until: Callable[[Callable[[], object]], None],
    tmp_path: Path,
) -> None:
    points = np.random.default_rng(8).normal(size=(700, 3)).astype(np.float32)
    path = write_csv(tmp_path / "points.csv", points)
    cluster = make_cluster(3)

    def kill_one(run: sapwood.Run) -> None:
        while run.progress.iteration < 3 and not run.done():
            run.wait(0.005)
        os.kill(cluster.agents[1].pid, signal.SIGKILL)

    settings = {"dims": 3, "max_iterations": 40, "input_file": path}
    found = outcome(cluster, EXAMPLES / "column_sums", settings, follow=kill_one)
    assert found.iterations == 40
    until(lambda: cluster.agents[1].incarnation == 2)
    state = decoded(found.end_global_state)
    np.testing.assert_allclose(state["dynamic"], points.sum(0, np.float64), atol=1e-3)
