"""Arguments are taken at the call: what the caller changes afterwards changes no result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import pytest

import sapwood

PATIENCE = 60.0
SIZES = [3, 2_000, 200_000]
"""Items of arrays that travel in the message, in shared memory of the pool, and in large blocks."""


class Total(sapwood.Program):
    """Adds up its items."""

    inputs: ClassVar[list[str]] = ["x"]
    reduce: ClassVar[dict[str, str]] = {"total": "sum"}

    def init(self, data: Any) -> dict[str, float]:
        return {"seen": float(data["x"].sum())}

    def map(self, slice: Any, state: Any) -> dict[str, float]:  # noqa: A002 - as users write it
        assert state["seen"] >= 0
        return {"total": float(slice["x"].sum())}


def echo_total(values: Any) -> float:
    return float(np.sum(values))


@pytest.fixture(scope="module")
def cluster(nothing_is_left_behind_by_all: None) -> Iterator[sapwood.Cluster]:
    del nothing_is_left_behind_by_all  # it looks when the cluster is closed
    with sapwood.local(agents=2) as made:
        with made.stream(abs, reduce="sum") as stream:  # both agents have runners then
            stream.broadcast(0).result(PATIENCE)
        yield made


def by_submit(cluster: sapwood.Cluster, x: Any) -> Callable[[], float]:
    future = cluster.submit(echo_total, x)
    return lambda: future.result(PATIENCE)


def by_submit_pickled(cluster: sapwood.Cluster, x: Any) -> Callable[[], float]:
    future = cluster.submit(lambda pair: echo_total(pair[1]), (Ellipsis, x))
    return lambda: future.result(PATIENCE)


def by_run(cluster: sapwood.Cluster, x: Any) -> Callable[[], float]:
    run = cluster.run(Total, data={"x": x})
    return lambda: run.result(PATIENCE)["total"]


def by_persist(cluster: sapwood.Cluster, x: Any) -> Callable[[], float]:
    kept = cluster.persist({"x": x})

    def result() -> float:
        with kept:
            return float(cluster.run(Total, kept).result(PATIENCE)["total"])

    return result


def by_broadcast(cluster: sapwood.Cluster, x: Any) -> Callable[[], float]:
    stream = cluster.stream(echo_total, reduce="mean")
    future = stream.broadcast(x)

    def result() -> float:
        with stream:
            return float(future.result(PATIENCE).total)

    return result


@pytest.mark.parametrize("nitems", SIZES)
@pytest.mark.parametrize("call", [by_submit, by_submit_pickled, by_run, by_persist, by_broadcast])
def test_the_caller_may_change_its_arrays_after_the_call(
    cluster: sapwood.Cluster, call: Callable[..., Callable[[], float]], nitems: int
) -> None:
    x = np.zeros(nitems)
    results = []
    for number in range(1, 5):
        x[:] = number
        results.append(call(cluster, x))
    x[:] = -1
    assert [result() for result in results] == [number * nitems for number in range(1, 5)]


def test_a_run_without_a_copy_has_the_same_result(cluster: sapwood.Cluster) -> None:
    x = np.arange(10.0)
    run = cluster.run(Total, data={"x": x}, copy=False)
    assert run.result(PATIENCE)["total"] == 45
    with cluster.persist({"x": x}, copy=False) as kept:
        assert cluster.run(Total, kept).result(PATIENCE)["total"] == 45


def test_the_copy_of_a_run_is_released_when_the_run_has_ended(cluster: sapwood.Cluster) -> None:
    x = np.ones(100)
    run = cluster.run(Total, data={"x": x})
    assert run.result(PATIENCE)["total"] == 100
    assert np.shares_memory(run.data["x"], x)
