"""Warnings made errors, and small recursion limits, in this process and on agents."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest

import sapwood
from sapwood.core.errors import SapwoodError, UserCodeError

from .recipes import PATIENCE
from .ways import WAYS, Way

SHALLOW = """
import sys, sapwood

usual = sys.getrecursionlimit()

def compute():
    with cluster.stream("echo", reduce="max") as stream:
        wave = stream.exchange(3, 30).total
    return [cluster.submit(abs, -3).result(30), max(cluster.map(abs, [-3, 2], timeout=30)), wave]

with sapwood.local(2) as cluster:
    for limit in 10, 15, 20, 25, 30, 40, 60, 90:
        sys.setrecursionlimit(limit)
        try:
            found = compute()
        except (RecursionError, sapwood.SapwoodError) as error:
            found = None
        finally:
            sys.setrecursionlimit(usual)
        assert found == [3, 3, 3] or (found is None and limit < 40), (limit, found)
        assert compute() == [3, 3, 3], limit
print("right")
"""


def test_threads_of_the_cluster_need_few_frames() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SHALLOW], capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.stdout, done.stderr) == ("right\n", "")


STRICT = """
import numpy as np, sapwood

class Sums(sapwood.Program):
    reduce = {"sum": "sum", "mean": "mean"}
    allow_nan = True

    def map(self, slice, state):
        return {"sum": slice.data[0], "mean": slice.data[:1]}

with sapwood.local(2) as cluster:
    for data in np.array([np.inf, -np.inf]), np.full(2, 60_000, np.float16), np.full(2, 200, "u1"):
        try:
            cluster.run(Sums, data=data).result(60)
        except sapwood.SapwoodError as error:
            assert error.code != "SW900", error
        assert cluster.run(Sums, data=np.ones(2)).result(60)["sum"] == 2
        assert cluster.submit(abs, -3).result(60) == 3
print("right")
"""


def test_warnings_made_errors_by_the_environment_are_errors_of_their_call() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STRICT],
        env={**os.environ, "PYTHONWARNINGS": "error"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.stdout == "right\n", done.stderr


def small_limit(_value: object = None) -> None:
    for limit in itertools.count(1):
        with contextlib.suppress(RecursionError):  # while it is below the frames that are there
            sys.setrecursionlimit(limit)
            return


@pytest.mark.parametrize("way", WAYS)
def test_a_task_that_lowers_the_recursion_limit_harms_no_other(
    cluster: sapwood.Cluster, way: Way
) -> None:
    for future in cluster.group().call(small_limit):
        future.result(PATIENCE)
    assert way(cluster) == 3


@pytest.mark.parametrize("way", WAYS)
def test_a_stream_that_lowers_the_recursion_limit_harms_no_other(
    cluster: sapwood.Cluster, way: Way
) -> None:
    with cluster.stream(small_limit) as stream:
        for _ in range(2):
            with contextlib.suppress(UserCodeError):  # its next call has this limit, too
                stream.exchange(3, PATIENCE)
            assert way(cluster) == 3


def divide(divisor: int) -> float:
    small_limit()
    return 1 / divisor


def test_an_exception_is_reported_whatever_the_recursion_limit_is(cluster: sapwood.Cluster) -> None:
    with pytest.raises(UserCodeError, match="division by zero") as caught:
        cluster.submit(divide, 0).result(PATIENCE)
    assert "return 1 / divisor" in str(caught.value)


def strict() -> None:
    warnings.simplefilter("error")
    np.seterr(all="raise")


@pytest.mark.parametrize("way", WAYS)
def test_a_task_that_makes_warnings_errors_harms_no_other(
    cluster: sapwood.Cluster, way: Way
) -> None:
    for future in cluster.group().call(strict):
        future.result(PATIENCE)
    assert way(cluster) == 3


class Warns(sapwood.Program):
    """Sums that warn where they are made."""

    reduce = {"sum": "sum", "mean": "mean"}  # noqa: RUF012 - as users write it
    allow_nan = True

    def map(self, slice: Any, state: Any) -> dict[str, Any]:  # noqa: A002 - as users write it
        del state
        return {"sum": slice.data[0], "mean": slice.data[:1]}


WARNING: dict[str, Any] = {
    "infinities": np.array([np.inf, -np.inf]),
    "half-precision": np.full(2, 60_000, np.float16),
    "bytes": np.full(2, 200, np.uint8),
}


@pytest.mark.parametrize("data", WARNING)
def test_a_sum_that_warns_ends_with_a_value_or_its_error(
    cluster: sapwood.Cluster, data: str
) -> None:
    array = WARNING[data]
    with contextlib.suppress(SapwoodError):
        assert set(cluster.run(Warns, data=array).result(PATIENCE)) >= {"sum", "mean"}
    with contextlib.suppress(SapwoodError), cluster.stream(lambda _: array, reduce="sum") as stream:
        stream.broadcast().result(PATIENCE)


@pytest.mark.parametrize("way", WAYS)
def test_warnings_here_are_no_errors_of_the_cluster(cluster: sapwood.Cluster, way: Way) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert way(cluster) == 3
