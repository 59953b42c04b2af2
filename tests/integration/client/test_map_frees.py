"""Results that ``map`` has yielded, as CPython tests it of its executors."""

import gc
import time
import weakref
from typing import Any

import pytest

import sapwood

PATIENCE = 10.0


class Result:
    """Something that a weak reference can name."""


def make(_number: int) -> Any:
    return Result()


def wait_if_late(number: int) -> int:
    if number:
        sapwood.here().receive(source=0, tag=1)
    return number


def test_results_that_were_yielded_are_free() -> None:
    with sapwood.local(agents=2) as cluster:
        count = 0
        for result in cluster.map(make, range(10)):
            reference = weakref.ref(result)
            del result
            end = time.monotonic() + PATIENCE
            while reference() is not None:  # the thread that completed it may still have it
                assert time.monotonic() < end
                gc.collect()
            count += 1
        assert count == 10


def test_calls_that_are_not_done_in_time_are_cancelled() -> None:
    with sapwood.local(agents=2) as cluster:
        results = cluster.map(wait_if_late, range(4), timeout=1.0)
        assert next(results) == 0
        with pytest.raises(TimeoutError):
            next(results)
        assert cluster.submit(abs, -1).result(60) == 1  # the agents are free again
