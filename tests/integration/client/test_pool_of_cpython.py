"""CPython's own tests of ``multiprocessing.Pool``, over agents instead of processes."""

from __future__ import annotations

import unittest
from collections.abc import Iterator

import cloudpickle
import pytest

import sapwood

from .cpython import pool_suites

LEFT_OUT = {
    "test_map_unplicklable": "the error is a DataValueError: test_an_argument_that_cannot_travel",
    "test_make_pool": "counts the processes in an attribute: test_a_pool_has_processes",
    "test_resource_warning": "sets an attribute: test_a_pool_that_nobody_closes",
    "test_release_task_refs": "counts in an attribute of a class that travels as code, and so "
    "comes back with each object: test_no_argument_or_result_is_kept",
    "test_unpickleable_result": "functions can be results here: test_a_function_as_a_result",
    "test_pool_worker_lifetime": "looks at attributes: test_processes_are_replaced",
    "test_worker_finalization_via_atexit_handler_of_multiprocessing": "runs a script with "
    "multiprocessing.Pool: test_a_pool_that_is_open_at_the_end_of_a_script",
}
"""Tests that are not run, and the reason of each."""


class Suites(
    pool_suites._TestPool,
    pool_suites._TestPoolWorkerErrors,
    pool_suites._TestPoolWorkerLifetime,
    unittest.TestCase,
):
    """All tests, with what they expect of a pool."""

    __test__ = False  # they are run by test_of_pools
    TYPE = "processes"
    Pool = staticmethod(sapwood.Pool)
    pool: sapwood.Pool


TESTS = set(unittest.defaultTestLoader.getTestCaseNames(Suites))


@pytest.fixture(scope="module")
def pool() -> Iterator[sapwood.Pool]:
    cloudpickle.register_pickle_by_value(pool_suites)
    with sapwood.Pool(4) as made:
        yield made
    cloudpickle.unregister_pickle_by_value(pool_suites)


@pytest.mark.row("D-17")
@pytest.mark.parametrize("name", sorted(TESTS - LEFT_OUT.keys()))
def test_of_pools(pool: sapwood.Pool, name: str) -> None:
    suites = Suites(name)
    suites.pool = pool  # not of the class: its methods travel
    getattr(suites, name)()


def test_each_exception_is_a_test() -> None:
    assert LEFT_OUT.keys() < TESTS
