"""Programs on several numbers of agents, against numpy."""

import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sapwood
from sapwood.core.errors import RunnerCrashError
from sapwood_lizard.directory import read_directory
from sapwood_lizard.execution import RunOutcome
from sapwood_lizard.runner_module import RunnerModule
from sapwood_lizard.runtime_helper import run_using_runner_module
from sapwood_lizard.store import ProgramStore
from sapwood_lizard.structures import b64_json_dec

from .conftest import EXAMPLES

PROGRAMS = Path(__file__).with_name("programs")
EXTENSION_POINTS = EXAMPLES / "kmeans_extension" / "points.txt"

RunFunction = Callable[..., RunOutcome]
MakeCluster = Callable[..., sapwood.Cluster]
Clusters = list[sapwood.Cluster]


def decoded(text: str) -> dict[str, Any]:
    state: dict[str, Any] = b64_json_dec(text)
    return {**state, "dynamic": b64_json_dec(state["dynamic"])} if "dynamic" in state else state


def write_csv(path: Path, points: np.ndarray[Any, Any]) -> Path:
    np.savetxt(path, points, delimiter=",", fmt="%.6f")
    return path


@pytest.mark.row("B-RUN-1")
@pytest.mark.row("B-PROG-2")
def test_column_sums_are_the_same_on_any_number_of_agents(
    clusters: Clusters, outcome: RunFunction, tmp_path: Path
) -> None:
    points = np.random.default_rng(5).normal(size=(1001, 3)).astype(np.float32)
    settings = {
        "dims": 3,
        "max_iterations": 4,
        "input_file": write_csv(tmp_path / "points.csv", points),
    }
    for cluster in clusters:
        found = outcome(cluster, EXAMPLES / "column_sums", settings)
        assert (found.iterations, found.points, found.agents) == (4, 1001, len(cluster.agents))
        state = decoded(found.end_global_state)
        assert (state["done"], state["iteration"]) == (1, 4)
        np.testing.assert_allclose(state["dynamic"], points.sum(0, np.float64), atol=1e-3)


@pytest.mark.row("B-RUN-1")
def test_a_covariance_of_rows_of_pointers(
    clusters: Clusters, outcome: RunFunction, tmp_path: Path
) -> None:
    points = np.round(np.random.default_rng(6).normal(size=(333, 4)), 6)
    path = write_csv(tmp_path / "points.csv", points)
    for cluster in clusters:
        found = outcome(cluster, EXAMPLES / "covariance", {"dims": 4, "input_file": path})
        state = decoded(found.end_global_state)["dynamic"]
        np.testing.assert_allclose(state["mean"], points.mean(0), atol=1e-12)
        np.testing.assert_allclose(state["covariance"], np.cov(points.T, bias=True), atol=1e-12)


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
    clusters: Clusters, outcome: RunFunction, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CXXFLAGS")  # one with all optimisations, as users have it
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
    for cluster in clusters:
        found = outcome(cluster, EXAMPLES / "kmeans", settings)
        state = decoded(found.end_global_state)
        np.testing.assert_allclose(state["dynamic"], centres, atol=2e-3)


def test_a_histogram_counts_every_value(clusters: Clusters, outcome: RunFunction) -> None:
    numbers = random.Random(1)  # noqa: S311 - what the runner module draws
    values = np.array([numbers.gauss(0, 1) for _ in range(5003)], np.float32)
    expected, _ = np.histogram(values, bins=6, range=(-3, 3))
    settings = {"low": -3, "high": 3, "bins": 6, "count": 5003}
    for cluster in clusters:
        state = decoded(outcome(cluster, EXAMPLES / "histogram", settings).end_global_state)
        assert state["counts"][:6] == expected.tolist()
        assert state["counted"] == 5003


@pytest.mark.row("B-RUN-1")
def test_a_regression_finds_the_weights_on_any_number_of_agents(
    clusters: Clusters, outcome: RunFunction
) -> None:
    iterations = set()
    for cluster in (clusters[0], clusters[-1]):
        settings = {"dims": 4, "max_iterations": 200}
        found = outcome(cluster, PROGRAMS / "regression", settings)
        state = b64_json_dec(found.end_global_state)
        weights = b64_json_dec(state["dynamic"])
        assert [round(weight, 2) for weight in weights] == [1.0, 2.0, 3.0, 4.0]
        iterations.add(state["iteration"])
    assert max(iterations) - min(iterations) <= 2


@pytest.mark.row("B-PROG-1")
@pytest.mark.parametrize("count", [2048, 2049, 2083])
def test_the_odd_program_on_any_number_of_agents(
    clusters: Clusters, outcome: RunFunction, count: int
) -> None:
    weights = [i % 3 + 1 for i in range(count)]
    expected = [0.5 * sum(weights[i] * ((i * 5 + d) % 10) for i in range(count)) for d in range(5)]
    for cluster in clusters:
        found = outcome(cluster, PROGRAMS / "odd", {"dims": 5, "count": count})
        RunnerModule(PROGRAMS / "odd" / "runner.py")  # leaves no modules that another would get
        assert found.iterations == 3
        state = b64_json_dec(found.end_global_state)
        assert state["last"] == [[float(sum(weights)), 0.0, 0.0], [0.0, 0.0, 3.0]]
        assert b64_json_dec(state["dynamic"]) == expected


@pytest.mark.row("B-PROG-1")
def test_sources_in_folders_and_structures_in_structures(
    clusters: Clusters, outcome: RunFunction
) -> None:
    count = 515
    settings = {"steps": 3, "seed": 4, "n": count}
    rng = random.Random(4)  # noqa: S311 - the numbers that the runner draws
    rows = [
        [*(rng.uniform(-1, 1) for _ in range(6)), rng.randrange(1, 5), rng.randrange(2)]
        for _ in range(count)
    ]
    table = np.array(rows)
    at = table[:, :3] + 0.5 * table[:, 3:6] + 0.125 * np.array([0, 0, -1])
    cube = np.zeros((2, 2, 2))
    np.add.at(cube, tuple((at > 0).astype(int).T), 1)
    mass = table[:, 6:7]
    for cluster in clusters:
        found = outcome(cluster, PROGRAMS / "bodies", settings)
        state = b64_json_dec(found.end_global_state)
        assert state["c"] == pytest.approx((mass * at).sum(0) / mass.sum(), abs=1e-5)
        assert b64_json_dec(state["dynamic"]) == cube.tolist()


@pytest.mark.row("B-PROG-1")
def test_several_sources_and_a_package_of_helpers(
    clusters: Clusters, outcome: RunFunction, tmp_path: Path
) -> None:
    values = np.random.default_rng(3).normal(size=997)
    file = tmp_path / "values.txt"
    np.savetxt(file, values)
    for cluster in clusters:
        found = outcome(cluster, PROGRAMS / "top", {"k": 5, "input_file": str(file)})
        state = b64_json_dec(found.end_global_state)
        assert state["limit"] == pytest.approx(np.sort(values)[-15], rel=1e-6)


@pytest.mark.row("B-RUN-2")
def test_a_prompt_finds_the_python_module_whatever_it_is_called(
    clusters: Clusters,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    np.savetxt(tmp_path / "values.txt", np.arange(100.0))
    registration = read_directory(PROGRAMS / "top")
    ProgramStore().add(registration)
    monkeypatch.chdir(PROGRAMS)
    settings = {"k": 5, "input_file": str(tmp_path / "values.txt")}
    run_using_runner_module(
        "top.runner", settings, "localhost:5000", registration.checksum, cluster=clusters[1]
    )
    assert capsys.readouterr().out.splitlines()[1:] == ["85.00000 3"]


@pytest.mark.row("B-EXT-1")
def test_an_extension_runs_on_any_number_of_agents(
    clusters: Clusters, outcome: RunFunction
) -> None:
    points = np.loadtxt(EXTENSION_POINTS, skiprows=1)[:, 1:]
    settings = {
        "num_points": 210,
        "dims": 2,
        "num_centroids": 3,
        "max_iterations": 40,
        "threshold": 1e-9,
        "input_file": EXTENSION_POINTS,
    }
    found = []
    for cluster in clusters:
        result = outcome(cluster, EXAMPLES / "kmeans_extension", settings)
        iteration, centres = result.end_global_state
        assert (result.points, result.iterations) == (210, iteration)
        assert sum(result.end_aggregate[0]) == 210
        found.append(np.array(centres).reshape(3, 2))
    for centres in found:
        np.testing.assert_allclose(centres, found[0], atol=1e-12)
        nearest = ((points[:, None] - centres[None]) ** 2).sum(-1).argmin(1)
        means = [points[nearest == i].mean(0) for i in range(3)]
        np.testing.assert_allclose(centres, means, atol=1e-9)


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
