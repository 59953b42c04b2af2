"""Values of sizes around powers of two, on each way that carries them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest

import sapwood
from sapwood.core.errors import DataValueError, ResourceError

from .recipes import PATIENCE

SMALL, LARGEST = 20, 31
"""Powers of two: `make test` takes sizes up to the one, nightly tests up to the other."""

LONG = 300.0


def around(first: int, last: int) -> list[int]:
    return [2**power + more for power in range(first, last + 1) for more in (-1, 0, 1)]


def pattern(size: int) -> bytes:
    """Return bytes that differ from place to place."""
    period = bytes(index % 251 for index in range(997))
    return (period * (size // len(period) + 1))[:size]


def by_task(cluster: sapwood.Cluster, sent: bytes) -> bool:
    return bool(cluster.submit(lambda given: given[::-1], sent).result(LONG) == sent[::-1])


def by_array(cluster: sapwood.Cluster, sent: bytes) -> bool:
    array = np.frombuffer(sent, np.uint8)
    return np.array_equal(
        cluster.submit(lambda given: given[::-1], array).result(LONG), array[::-1]
    )


def by_wave(cluster: sapwood.Cluster, sent: bytes) -> bool:
    array = np.frombuffer(sent, np.uint8)
    with cluster.stream(lambda given: given, reduce="max") as stream:
        return np.array_equal(stream.exchange(array, LONG).total, array)


def by_message(cluster: sapwood.Cluster, sent: bytes) -> bool:
    asked = cluster.submit_to(1, lambda: sapwood.here().receive(source=0, tag=9).value)
    cluster.send(1, sent, tag=9)
    return bool(asked.result(LONG) == sent)


def by_group(cluster: sapwood.Cluster, sent: bytes) -> bool:
    group = cluster.group()
    group.broadcast("sent", sent, timeout=LONG)
    try:
        return bool(group.gather("sent", timeout=LONG) == [sent] * len(group.agents))
    finally:
        group.broadcast("sent", None, timeout=PATIENCE)


def by_data(cluster: sapwood.Cluster, sent: bytes) -> bool:
    class First(sapwood.Program):
        inputs = ("x",)
        reduce: ClassVar[dict[str, str]] = {"sum": "sum", "items": "sum"}

        def map(self, slice: Any, state: Any) -> dict[str, int]:  # noqa: A002 - as users write it
            del state
            return {"sum": int(slice["x"].sum(dtype="u8")), "items": len(slice)}

    array = np.frombuffer(sent, np.uint8)
    found = cluster.run(First, data={"x": array}, copy=False).result(LONG)
    return (found["sum"], found["items"]) == (int(array.sum(dtype="u8")), len(array))


WAYS = (by_task, by_array, by_wave, by_message, by_group, by_data)
Way = Callable[[sapwood.Cluster, bytes], bool]


def named(way: Way) -> str:
    return str(way.__name__)


@pytest.mark.parametrize("size", around(2, SMALL))
@pytest.mark.parametrize("way", WAYS, ids=named)
def test_bytes_of_any_size_arrive(cluster: sapwood.Cluster, size: int, way: Way) -> None:
    assert way(cluster, pattern(size))


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("size", around(SMALL + 1, LARGEST))
@pytest.mark.parametrize("way", WAYS, ids=named)
def test_large_sizes_arrive_or_have_the_error_of_their_call(
    cluster: sapwood.Cluster, size: int, way: Way
) -> None:
    with contextlib.suppress(ResourceError, MemoryError, DataValueError):
        assert way(cluster, pattern(size))
