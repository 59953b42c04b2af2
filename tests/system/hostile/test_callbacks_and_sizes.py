"""Callbacks that raise, cancellation at any time, and sizes around powers of two."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

import sapwood

from .programs import DATA, Total
from .recipes import PATIENCE

KINDS = (ValueError, RecursionError, MemoryError, SystemExit, KeyboardInterrupt, GeneratorExit)
LARGEST = 20
SIZES = [2**power + more for power in range(2, LARGEST + 1) for more in (-1, 0, 1)]


def raising(kind: type[BaseException], called: threading.Event) -> Callable[[object], None]:
    def callback(_: object) -> None:
        called.set()
        raise kind("a hostile callback")

    return callback


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.__name__))
def test_a_callback_that_raises_harms_no_task(
    cluster: sapwood.Cluster, kind: type[BaseException]
) -> None:
    called = threading.Event()
    future = cluster.submit(abs, -3)
    future.add_done_callback(raising(kind, called))
    assert future.result(PATIENCE) == 3
    assert called.wait(PATIENCE)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.__name__))
def test_a_callback_that_raises_harms_no_run(
    cluster: sapwood.Cluster, kind: type[BaseException]
) -> None:
    called = threading.Event()
    run = cluster.run(Total, data=DATA)
    run.add_done_callback(raising(kind, called))
    assert run.result(PATIENCE)["total"] == 6
    assert called.wait(PATIENCE)


def test_a_task_that_is_cancelled_at_once_is_cancelled_or_done(cluster: sapwood.Cluster) -> None:
    future = cluster.submit(abs, -3)
    if future.cancel():
        with pytest.raises(sapwood.CancelledError):
            future.result(PATIENCE)
    else:
        assert future.result(PATIENCE) == 3


def test_a_task_that_is_done_cannot_be_cancelled(cluster: sapwood.Cluster) -> None:
    future = cluster.submit(abs, -3)
    assert future.result(PATIENCE) == 3
    assert not future.cancel()
    assert future.result(PATIENCE) == 3


@pytest.mark.parametrize("size", SIZES)
def test_bytes_of_any_size_come_back(cluster: sapwood.Cluster, size: int) -> None:
    sent = bytes(index % 251 for index in range(min(size, 997))) * (size // 997 + 1)
    sent = sent[:size]
    assert cluster.submit(lambda given: given[::-1], sent).result(PATIENCE) == sent[::-1]
