"""Nodes whose Python has another minor version than the client's."""

from __future__ import annotations

import functools
import math
import operator
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np
import pytest
from tests.pythons import LIBRARIES, other_python

import sapwood
from sapwood.client.hosts import several
from sapwood.code import pickling
from sapwood.core.errors import DataValueError, NodeLostError
from sapwood.environment.settings import CacheSettings

from .conftest import PATIENCE, QUICK

SOURCE = """
#include <stdint.h>
/** @array data[n] */
void moments(const double *data, int64_t n, double *total, int64_t *count) {
    for (int64_t i = 0; i < n; i++) { *total += data[i]; *count += 1; }
}
double halved(double x) { return x / 2; }
"""
NATIVE = """
from sapwood import Program, native

class Moments(Program):
    sources = ["moments.c"]
    reduce = {"total": "sum", "count": "sum"}
    map = native("moments")

    def init(self, data):
        return {"round": 0}

    def update(self, state, total):
        return {**state, **total, "round": state["round"] + 1}

    def done(self, state):
        return state["round"] == 2
"""
PURE = """
import platform
from beside import squared
from sapwood import Program

class Pure(Program):
    reduce = {"total": "sum", "versions": "gather"}

    def map(self, slice, state):
        return {"total": squared(slice["data"]).sum(), "versions": platform.python_version()}

    def update(self, state, total):
        return total

    def done(self, state):
        return True
"""
BESIDE = "def squared(values):\n    return values * values\n"


@pytest.fixture(scope="module")
def python() -> str:
    found = other_python()
    if not found:
        pytest.skip("there is no other Python 3.11 or newer: python3.N on PATH, or one of pyenv")
    return found


@pytest.fixture(scope="module")
def cluster(
    python: str, program: Path, nothing_is_left_behind_by_all: None
) -> Iterator[sapwood.Cluster]:
    """A node with another Python, and all that a run begins."""
    del nothing_is_left_behind_by_all  # it looks when the cluster has ended
    nodes = msgspec.structs.replace(QUICK.nodes, python=[python, "-I"])
    cache = CacheSettings(folder=str(LIBRARIES))
    settings = msgspec.structs.replace(QUICK, nodes=nodes, cache=cache)
    try:
        made = several(1, 2, settings=settings)
    except NodeLostError as error:
        if "the package index is not reached" in str(error):
            pytest.skip("libraries for another Python come from the package index")
        raise
    with made:
        # New data, which no node has cached: they start the thread that publishes content.
        new = np.random.default_rng().random(100_001)
        made.run(program / "native.py", new).result(PATIENCE)
        yield made


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("programs")
    (folder / "moments.c").write_text(SOURCE)
    (folder / "native.py").write_text(NATIVE)
    (folder / "pure.py").write_text(PURE)
    (folder / "beside.py").write_text(BESIDE)
    return folder


def versions(cluster: sapwood.Cluster) -> set[str]:
    return {
        ".".join(cluster.submit(platform.python_version).result(PATIENCE).split(".")[:2])
        for _ in range(4)
    }


def test_native_code_runs_there_as_here(cluster: sapwood.Cluster, program: Path) -> None:
    data = np.arange(1001.0)
    found = cluster.run(program / "native.py", data).result(PATIENCE)
    assert (found["total"], found["count"]) == (data.sum(), 1001)
    loaded = sapwood.load_program(program / "native.py")
    assert cluster.submit(loaded["halved"], 5.0).result(PATIENCE) == 2.5
    with cluster.stream(loaded["halved"], reduce="sum") as stream:
        assert stream.broadcast(5.0).result(PATIENCE).total == 5.0


def test_files_of_a_program_are_compiled_there(cluster: sapwood.Cluster, program: Path) -> None:
    data = np.arange(10.0)
    found = cluster.run(program / "pure.py", data).result(PATIENCE)
    assert found["total"] == (data * data).sum()
    assert {".".join(one.split(".")[:2]) for one in found["versions"]} == versions(cluster)


def test_functions_of_modules_go_by_name_and_values_as_always(cluster: sapwood.Cluster) -> None:
    assert versions(cluster).isdisjoint({".".join(platform.python_version_tuple()[:2])})
    assert list(cluster.map(math.sqrt, [4, 9])) == [2.0, 3.0]
    value = {"set": {1, 2}, "array": np.arange(3), "nested": [(1, None)]}
    back = cluster.submit(dict, value).result(PATIENCE)
    assert back["set"] == value["set"]
    assert np.array_equal(back["array"], np.arange(3))
    with cluster.stream(operator.neg, reduce="sum") as stream:
        assert stream.broadcast(3.0).result(PATIENCE).total == -6.0


def test_compiled_functions_are_refused_before_they_are_sent(cluster: sapwood.Cluster) -> None:
    here = ".".join(platform.python_version_tuple()[:2])
    (there,) = versions(cluster)

    class Own(sapwood.Program):
        reduce: ClassVar = {"n": "sum"}

        def map(self, _slice: Any, _state: Any) -> Any:
            return {"n": 1}

        def done(self, _state: Any) -> bool:
            return True

    ways: list[Any] = [
        lambda: cluster.submit(lambda: 1),
        lambda: cluster.submit(functools.partial(map, lambda x: x), [1]),
        lambda: cluster.submit(len, [lambda: 1]),
        lambda: cluster.stream(lambda x: x),
        lambda: cluster.run(Own, np.arange(4.0)).result(PATIENCE),
    ]
    for way in ways:
        with pytest.raises(DataValueError) as caught:
            way()
        assert f"code that Python {here} compiled" in caught.value.what
        assert f"Python {there}, which do not run that" in caught.value.what
        assert "a program's folder" in caught.value.hint


def test_compiled_results_are_refused_and_nothing_crashes(cluster: sapwood.Cluster) -> None:
    (there,) = versions(cluster)
    pids = [one.pid for one in cluster.session.processes()]
    with pytest.raises(DataValueError, match=f"does not run code that Python {there} compiled"):
        cluster.submit(eval, "lambda: 1").result(PATIENCE)
    assert cluster.submit(abs, -1).result(PATIENCE) == 1
    assert [one.pid for one in cluster.session.processes()] == pids


def test_a_compiled_function_that_comes_all_the_same_is_refused_there(
    cluster: sapwood.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As from a program that attached before there was such a machine."""
    monkeypatch.setattr(pickling, "check_versions", lambda *_: None)
    here = ".".join(platform.python_version_tuple()[:2])
    said = f"does not run code that Python {here} compiled"
    pids = [one.pid for one in cluster.session.processes()]
    with pytest.raises(DataValueError, match=said):
        cluster.submit(lambda: 1).result(PATIENCE)
    with (
        cluster.stream(lambda x: x) as stream,
        pytest.raises(DataValueError, match=said),
    ):
        stream.broadcast(1).result(PATIENCE)
    assert cluster.submit(abs, -1).result(PATIENCE) == 1
    assert [one.pid for one in cluster.session.processes()] == pids
