"""Callbacks and cancellation: whatever callers do, the cluster works on."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from typing import Any, ClassVar

import pytest

import sapwood

PATIENCE = 60.0


class Count(sapwood.Program):
    reduce: ClassVar[dict[str, str]] = {"v": "sum"}

    def map(self, slice: Any, state: Any) -> dict[str, int]:  # noqa: A002 - as users do
        return {"v": len(slice)}


@pytest.fixture
def cluster() -> Iterator[sapwood.Cluster]:
    with sapwood.local(agents=2) as made:
        yield made


def by_task(cluster: sapwood.Cluster) -> Any:
    return cluster.submit(abs, -5).result(PATIENCE)


def by_map(cluster: sapwood.Cluster) -> Any:
    return sum(cluster.map(abs, [-2, -3]))


def by_run(cluster: sapwood.Cluster) -> Any:
    return cluster.run(Count, data=range(5)).result(PATIENCE)["v"]


def by_stream(cluster: sapwood.Cluster) -> Any:
    with cluster.stream("echo", reduce="max") as stream:
        return stream.exchange(5).total


@pytest.mark.parametrize("work", [by_task, by_map, by_run, by_stream])
def test_a_callback_may_wait_for_the_cluster(
    cluster: sapwood.Cluster, work: Callable[[sapwood.Cluster], Any]
) -> None:
    got: Future[Any] = Future()

    def called(_done: Any) -> None:
        try:
            got.set_result(work(cluster))
        except BaseException as error:  # noqa: BLE001 - for the test
            got.set_exception(error)

    cluster.submit(abs, -1).add_done_callback(called)
    assert cluster.submit(abs, -2).result(PATIENCE) == 2
    assert got.result(PATIENCE) == 5


def test_a_callback_may_exit_or_close(cluster: sapwood.Cluster) -> None:
    closed = threading.Event()

    def close(_done: Any) -> None:
        cluster.close()
        closed.set()

    cluster.submit(abs, -1).add_done_callback(lambda _: exit(3))  # noqa: PLR1722 - as users do
    assert cluster.submit(abs, -2).result(PATIENCE) == 2
    cluster.submit(abs, -1).add_done_callback(close)
    assert closed.wait(PATIENCE)
    with pytest.raises(sapwood.errors.ClosedError):
        cluster.submit(abs, -1)


def sleep_in_group() -> None:
    with sapwood.here().group([0, 1, 2]):
        sapwood.here().receive(source=0, tag=3)


def test_requests_of_groups_can_be_cancelled_or_given_up(cluster: sapwood.Cluster) -> None:
    agents = cluster.group([1, 2])
    members = agents.call(sleep_in_group)
    with agents.join() as group:
        first, second = group.barrier(wait=False), group.barrier(wait=False)
        first.cancel()
        second.cancel()

        async def give_up() -> None:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(group.barrier(wait=False), 0.01)

        asyncio.run(give_up())
        cluster.send([1, 2], None, tag=3)
    for one in members:
        one.result(PATIENCE)
    with pytest.raises(CancelledError):
        first.result(PATIENCE)
    assert by_stream(cluster) == 5
    assert by_task(cluster) == 5


@pytest.mark.parametrize("timeout", ["x", object(), -1.0, float("nan"), True])
def test_a_bad_timeout_of_a_group_is_an_error_at_the_call(
    cluster: sapwood.Cluster, timeout: Any
) -> None:
    agents = cluster.group([1])
    not_a_name: Any = object()
    with pytest.raises(sapwood.errors.ConfigurationError, match="timeout is"):
        agents.join(enter_timeout=timeout)
    with pytest.raises(sapwood.errors.ConfigurationError, match="name is <object"):
        agents.join(name=not_a_name)
    assert by_stream(cluster) == 5
