"""CPython's own tests of executors, over clusters instead of pools."""

from __future__ import annotations

import subprocess
import sys
import unittest
from collections.abc import Iterator
from concurrent.futures import Executor

import pytest

import sapwood
from sapwood.core.errors import ConfigurationError

from .cpython import executor_suites

WORKERS = 5

NOT_FOR_CLUSTERS = {
    "test_max_workers_negative": "clusters have agents instead: test_a_cluster_has_an_agent",
}
"""Tests that are not run, and the reason of each."""


class Suites(
    executor_suites.WaitTests,
    executor_suites.AsCompletedTests,
    executor_suites.ExecutorTest,
    unittest.TestCase,
):
    """All tests, with what they expect of an executor."""

    __test__ = False  # they are run by test_of_executors
    worker_count = WORKERS
    executor: Executor


TESTS = set(unittest.defaultTestLoader.getTestCaseNames(Suites))


@pytest.fixture(
    scope="module",
    params=[
        "cluster",
        pytest.param("options", marks=pytest.mark.nightly),
        pytest.param("session", marks=pytest.mark.nightly),
    ],
)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def head(
    nothing_is_left_behind_by_all: None, kind: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """A head, where the executor is a session."""
    del nothing_is_left_behind_by_all  # it looks when the head has ended
    if kind != "session":
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        _sapwood("up", "--no-node")
        try:
            yield
        finally:
            _sapwood("down")


@pytest.fixture
def executor(head: None, kind: str) -> Iterator[Executor]:
    """A cluster, a cluster with options, or a session of a head."""
    del head  # the session ends before it
    made = sapwood.connect().create_session(WORKERS, on="local") if kind == "session" else None
    with made or sapwood.local(WORKERS) as cluster:
        yield cluster.options(time_limit=60) if kind == "options" else cluster


def _sapwood(*words: str) -> None:
    command = [sys.executable, "-m", "sapwood", *words]
    subprocess.run(command, capture_output=True, timeout=60, check=True)


@pytest.mark.parametrize("name", sorted(TESTS - NOT_FOR_CLUSTERS.keys()))
def test_of_executors(executor: Executor, name: str) -> None:
    suites = Suites(name)
    suites.executor = executor
    getattr(suites, name)()
    executor.shutdown()


def test_each_exception_is_a_test() -> None:
    assert NOT_FOR_CLUSTERS.keys() < TESTS


def test_a_cluster_has_an_agent() -> None:
    for number in (0, -1):
        with pytest.raises(ConfigurationError, match="at least one agent"):
            sapwood.local(agents=number)
