"""Callbacks of each kind that raise, exit, wait, block, or close the cluster."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

import sapwood

from .conftest import NewCluster
from .programs import DATA, Total
from .ways import PATIENCE, WAYS, Way, by_task

Register = Callable[[sapwood.Cluster, Callable[..., object]], object]


def of_task(cluster: sapwood.Cluster, callback: Callable[..., object]) -> None:
    cluster.submit(abs, -3).add_done_callback(callback)


def of_failed_task(cluster: sapwood.Cluster, callback: Callable[..., object]) -> None:
    cluster.submit(abs, "x").add_done_callback(callback)


def of_cancelled_task(cluster: sapwood.Cluster, callback: Callable[..., object]) -> None:
    future = cluster.submit(abs, -3)
    future.add_done_callback(callback)
    future.cancel()


def of_done_task(cluster: sapwood.Cluster, callback: Callable[..., object]) -> None:
    future = cluster.submit(abs, -3)
    future.result(PATIENCE)
    future.add_done_callback(callback)


def of_run(cluster: sapwood.Cluster, callback: Callable[..., object]) -> None:
    cluster.run(Total, data=DATA).add_done_callback(callback)


def of_every_run(cluster: sapwood.Cluster, callback: Callable[..., object]) -> None:
    cluster.tell_runs(callback)
    cluster.run(Total, data=DATA)
    cluster.tell_runs(id)


def of_message(cluster: sapwood.Cluster, callback: Callable[..., object]) -> None:
    cluster.submit_to(1, lambda: sapwood.here().receive(source=0, tag=11))
    cluster.send_later(1, None, tag=11).add_done_callback(callback)


def of_group(cluster: sapwood.Cluster, callback: Callable[..., object]) -> None:
    cluster.group().barrier(timeout=PATIENCE, wait=False).add_done_callback(callback)


REGISTERS = (
    of_task,
    of_failed_task,
    of_cancelled_task,
    of_done_task,
    of_run,
    of_every_run,
    of_message,
    of_group,
)
KINDS = (ValueError, RecursionError, MemoryError, SystemExit, KeyboardInterrupt, GeneratorExit)


def named(one: Any) -> str:
    return str(one.__name__)


@pytest.mark.parametrize("register", REGISTERS, ids=named)
@pytest.mark.parametrize("kind", KINDS, ids=named)
def test_a_callback_that_raises_harms_nothing(
    cluster: sapwood.Cluster, kind: type[BaseException], register: Register
) -> None:
    called = threading.Event()

    def callback(*_: object) -> None:
        called.set()
        raise kind("a hostile callback")

    register(cluster, callback)
    assert called.wait(PATIENCE)
    assert by_task(cluster) == 3


@pytest.mark.parametrize("register", REGISTERS, ids=named)
@pytest.mark.parametrize("way", WAYS, ids=named)
def test_a_callback_may_wait_for_the_cluster(
    cluster: sapwood.Cluster, way: Way, register: Register
) -> None:
    found: Future[object] = Future()

    def callback(*_: object) -> None:
        try:
            found.set_result(way(cluster))
        except BaseException as error:  # noqa: BLE001 - raised again by the test
            found.set_exception(error)

    register(cluster, callback)
    assert found.result(PATIENCE) == 3


@pytest.mark.parametrize("register", REGISTERS, ids=named)
def test_a_callback_that_blocks_delays_no_result(
    cluster: sapwood.Cluster, register: Register
) -> None:
    called, released, over = threading.Event(), threading.Event(), threading.Event()

    def callback(*_: object) -> None:
        called.set()
        assert released.wait(PATIENCE)
        over.set()

    thread = threading.Thread(target=register, args=(cluster, callback))
    thread.start()  # a callback of a future that is done is called on the thread that adds it
    try:
        assert called.wait(PATIENCE)
        for way in WAYS:
            assert way(cluster) == 3
    finally:
        released.set()
        thread.join(PATIENCE)
    assert over.wait(PATIENCE)


@pytest.mark.parametrize("register", REGISTERS, ids=named)
def test_a_callback_may_close_the_cluster(new_cluster: NewCluster, register: Register) -> None:
    closed = threading.Event()
    with new_cluster() as cluster:

        def callback(*_: object) -> None:
            cluster.close()
            closed.set()

        register(cluster, callback)
        assert closed.wait(PATIENCE)
        with pytest.raises(sapwood.errors.ClosedError):
            cluster.submit(abs, -3)


@pytest.mark.parametrize("register", REGISTERS, ids=named)
def test_a_callback_may_exit(cluster: sapwood.Cluster, register: Register) -> None:
    called = threading.Event()

    def callback(*_: object) -> None:
        called.set()
        sys.exit(3)

    register(cluster, callback)
    assert called.wait(PATIENCE)
    assert by_task(cluster) == 3
