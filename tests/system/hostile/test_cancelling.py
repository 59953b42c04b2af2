"""Work that is cancelled, or given up, at each step of it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any, ClassVar

import pytest

import sapwood
from sapwood.core.errors import SapwoodError

from .programs import Total
from .ways import PATIENCE

OWN = (CancelledError, TimeoutError, SapwoodError)


def steps(file: Path) -> type[sapwood.Program]:
    """Return a program of five iterations, which says in a file how far it has come."""

    class Steps(sapwood.Program):
        inputs: ClassVar[list[str]] = ["x"]
        reduce: ClassVar[dict[str, str]] = {"items": "sum"}

        def init(self, data: Any) -> dict[str, int]:
            del data
            return {"done": 0}

        def map(self, slice: Any, state: Any) -> dict[str, int]:  # noqa: A002 - as users write it
            with file.open("a") as opened:
                opened.write(f"map {state['done']}\n")
            return {"items": len(slice)}

        def update(self, state: Any, total: Any) -> dict[str, int]:
            del total
            return {"done": state["done"] + 1}

        def done(self, state: Any) -> bool:
            return bool(state["done"] == 5)

    return Steps


def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it does not happen"
        threading.Event().wait(0.001)


def of_task(cluster: sapwood.Cluster) -> Future[Any]:
    return cluster.submit(abs, -3)


def of_sleeping_task(cluster: sapwood.Cluster) -> Future[Any]:
    return cluster.submit(time.sleep, 0.05)


def of_run(cluster: sapwood.Cluster) -> Future[Any]:
    return cluster.run(Total, data={"x": [1.0, 2.0]}).future


def of_message(cluster: sapwood.Cluster) -> Future[Any]:
    return cluster.receive_later(tag=21)


def of_sent_message(cluster: sapwood.Cluster) -> Future[Any]:
    return cluster.send_later(1, bytes(100_000), tag=22)


def of_group(cluster: sapwood.Cluster) -> Future[Any]:
    request: Future[Any] = cluster.group().barrier(timeout=1.0, wait=False)
    return request


def of_wave(cluster: sapwood.Cluster) -> Future[Any]:
    stream = cluster.stream("echo", reduce="max")
    future: Future[Any] = stream.broadcast(3)
    future.add_done_callback(lambda _: stream.close())
    return future


BEGINNINGS = (of_task, of_sleeping_task, of_run, of_message, of_sent_message, of_group, of_wave)


def at_once(future: Future[Any]) -> None:
    future.cancel()


def twice(future: Future[Any]) -> None:
    future.cancel()
    future.cancel()


def while_it_runs(future: Future[Any]) -> None:
    threading.Event().wait(0.005)
    future.cancel()


def when_it_is_done(future: Future[Any]) -> None:
    with contextlib.suppress(*OWN):
        future.result(0.2)
    future.cancel()


def in_its_callback(future: Future[Any]) -> None:
    future.add_done_callback(lambda done: done.cancel())
    while_it_runs(future)


def by_several_threads(future: Future[Any]) -> None:
    threads = [threading.Thread(target=future.cancel) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)


def while_another_thread_waits(future: Future[Any]) -> None:
    def wait() -> None:
        with contextlib.suppress(*OWN):
            future.result(PATIENCE)

    thread = threading.Thread(target=wait)
    thread.start()
    future.cancel()
    if future.done():
        thread.join(PATIENCE)
        assert not thread.is_alive()


MOMENTS = (
    at_once,
    twice,
    while_it_runs,
    when_it_is_done,
    in_its_callback,
    by_several_threads,
    while_another_thread_waits,
)


def named(one: Any) -> str:
    return str(one.__name__)


@pytest.mark.parametrize("moment", MOMENTS, ids=named)
@pytest.mark.parametrize("beginning", BEGINNINGS, ids=named)
def test_what_is_cancelled_has_its_result_or_is_cancelled(
    cluster: sapwood.Cluster,
    beginning: Callable[[sapwood.Cluster], Future[Any]],
    moment: Callable[[Future[Any]], None],
) -> None:
    future = beginning(cluster)
    moment(future)
    with contextlib.suppress(*OWN):
        future.result(PATIENCE)
    assert future.done()


@pytest.mark.parametrize("iteration", range(6))
def test_a_run_is_cancelled_in_each_iteration(
    cluster: sapwood.Cluster, tmp_path: Path, iteration: int
) -> None:
    file = tmp_path / "steps"
    file.touch()
    run = cluster.run(steps(file), data={"x": [1.0, 2.0]})
    wait_until(lambda: f"map {iteration}" in file.read_text() or run.done())
    run.cancel()
    with contextlib.suppress(CancelledError):
        assert run.result(PATIENCE)["done"] == 5
    assert run.done()


def slowly(value: int) -> int:
    time.sleep(0.01)
    return value


@pytest.mark.parametrize("waves", [1, 2, 10])
def test_a_stream_is_closed_with_open_waves(cluster: sapwood.Cluster, waves: int) -> None:
    stream = cluster.stream(slowly, reduce="max")
    futures = [stream.broadcast(wave) for wave in range(waves)]
    stream.close()
    for wave, future in enumerate(futures):
        with contextlib.suppress(CancelledError, SapwoodError):
            assert future.result(PATIENCE).total == wave


@pytest.mark.parametrize("taken", [0, 1, 5])
def test_a_map_is_given_up(cluster: sapwood.Cluster, taken: int) -> None:
    results = cluster.map(abs, range(-10, 0))
    assert [next(results) for _ in range(taken)] == list(range(10, 10 - taken, -1))
    results.close()
