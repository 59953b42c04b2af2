"""Logistic regression finds the optimum that scikit-learn's solver finds."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import sapwood
from sapwood.cli.main import app
from sapwood.core.errors import DataMissingError, DataShapeError, DataValueError
from sapwood.data.slice import Slice

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "logistic"


@pytest.fixture
def cluster(clusters: list[sapwood.Cluster]) -> sapwood.Cluster:
    """Three agents."""
    return clusters[1]


def logistic(**parameters: Any) -> Any:
    return sapwood.load_program(FOLDER, parameters)


@pytest.mark.parametrize("penalty", [0.1, 0.01])
def test_finds_the_optimum_of_scikit_learn(cluster: sapwood.Cluster, penalty: float) -> None:
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415 - not for every worker

    program = logistic(penalty=penalty)
    data = program.default_data()
    result = cluster.run(program, data).result()
    assert result["converged"]
    x = (data["x"] - data["x"].mean(axis=0)) / data["x"].std(axis=0)
    reference = LogisticRegression(
        C=1 / (penalty * len(x)), solver="newton-cholesky", tol=1e-12, max_iter=1000
    ).fit(x, data["y"])
    # The loss is strongly convex with the penalty as modulus: a gradient below the tolerance
    # (1e-9 in each of 31 parts) puts the weights within sqrt(31) * 1e-9 / 0.01 of the optimum.
    np.testing.assert_allclose(result["coefficients"], reference.coef_[0], atol=6e-7)
    assert result["intercept"] == pytest.approx(reference.intercept_[0], abs=6e-7)
    assert result["accuracy"] == pytest.approx(reference.score(x, data["y"]))


def test_is_the_same_for_any_number_of_agents(clusters: list[sapwood.Cluster]) -> None:
    results = [cluster.run(logistic(penalty=0.1)).result() for cluster in clusters]
    for result in results[1:]:
        # Sums of floating-point numbers depend on their grouping in the last digits.
        assert result["loss"] == pytest.approx(results[0]["loss"], rel=1e-12)
        assert result["accuracy"] == results[0]["accuracy"]
        np.testing.assert_allclose(
            result["coefficients"], results[0]["coefficients"], atol=1e-9, rtol=0
        )


def test_gradient_is_the_slope_of_the_loss() -> None:
    rng = np.random.default_rng(0)
    program = logistic()
    data = sapwood.load({"x": rng.normal(size=(40, 5)), "y": rng.integers(0, 2, 40)})
    state = program.init(data)
    part = Slice(0, 40, {"x": data["x"], "y": data["y"]})

    def at(weights: np.ndarray[Any, Any]) -> Any:
        return program.map(part, {**state, "ahead": weights})

    weights = rng.normal(size=6)
    steps = 1e-5 * np.eye(6)
    slope = [(at(weights + h)["loss"] - at(weights - h)["loss"]) / 2e-5 for h in steps]
    np.testing.assert_allclose(at(weights)["gradient"], slope, rtol=1e-6, atol=1e-6)


def test_extreme_scores_do_not_overflow() -> None:
    program = logistic()
    part = Slice(0, 2, {"x": np.array([[1e6], [-1e6]]), "y": np.array([1, 0])})
    state = {"mean": np.zeros(1), "scale": np.ones(1), "ahead": np.array([1.0, 0.0])}
    partial = program.map(part, state)
    assert partial["loss"] == 0
    assert partial["correct"] == 2
    assert np.isfinite(partial["gradient"]).all()


def test_a_constant_feature_gets_no_weight(cluster: sapwood.Cluster) -> None:
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.normal(size=60), np.full(60, 7.0)])
    y = (x[:, 0] + rng.normal(size=60) > 0).astype(int)
    result = cluster.run(logistic(penalty=0.1), {"x": x, "y": y}).result()
    assert result["coefficients"][1] == 0


def test_stops_at_the_limit_and_says_so(cluster: sapwood.Cluster) -> None:
    run = cluster.run(logistic(max_iterations=5))
    result = run.result()
    assert not result["converged"]
    assert result["iterations"] == run.progress.iteration == 5


def test_too_large_a_rate_is_an_error(cluster: sapwood.Cluster) -> None:
    run = cluster.run(logistic(rate=10.0, momentum=0.999, penalty=1.0))
    with pytest.raises(DataValueError, match="without bound"):
        run.result()


def test_refuses_labels_other_than_0_and_1() -> None:
    data = sapwood.load({"x": np.zeros((3, 2)), "y": np.array([1, 2, 1])})
    with pytest.raises(DataValueError, match="not 0 and 1"):
        logistic().init(data)


def test_refuses_features_that_are_no_table() -> None:
    data = sapwood.load({"x": np.zeros(3), "y": np.array([1, 0, 1])})
    with pytest.raises(DataShapeError, match="x has shape"):
        logistic().init(data)


def test_command_line(tmp_path: Path) -> None:
    output = tmp_path / "model.npz"
    words = ["run", str(FOLDER), "--agents", "2", "--json", "--output", str(output)]
    done = CliRunner().invoke(app, [*words, "-p", "tolerance=1e-5"])
    assert done.exit_code == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["progress"]["metrics"]["accuracy"] > 0.98
    assert np.load(output)["coefficients"].shape == (30,)


def test_default_data_without_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    program = logistic()
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(DataMissingError, match="scikit-learn, which is not installed"):
        program.default_data()
