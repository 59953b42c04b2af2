"""Streams of Python functions pass agents without their interpreter: all else stays as it is."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.integration.fastpath.runs.test_relay import TIMEOUT

import sapwood
from sapwood.core.errors import TimeLimitError, UserCodeError

MakeCluster = Callable[..., sapwood.Cluster]
Until = Callable[[Callable[[], object]], None]

TREE = (2, 0)
WAVES = 300


def doubled(values: Any) -> Any:
    return 2 * values


def odd(order: tuple[str, int, str]) -> Any:
    """Return numbers of many sizes, and do what user code may do."""
    what, number, folder = order
    if what == "fail" and number == 200:
        raise ValueError("number 200")
    if what == "print" and number % 7 == 0:
        sys.stdout.write(f"number {number}\n")
    if what == "die" and number in {100, 150}:
        marker = Path(folder) / f"died-{number}-{sapwood.here().rank}"
        if not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    size = 40_000 if number % 11 == 0 else 20_000 if number % 13 == 0 else 1 + number % 3
    return np.full(size, float(number))


def stepwise(number: int) -> Iterator[int]:
    yield from range(number)


def pauses(number: int) -> int:
    if number == 100:
        signal.pause()
    return number


def relayed(stream: sapwood.Stream) -> list[int]:
    """Return how many waves passed each agent by its shortcut."""
    counters = stream.counters(TIMEOUT)
    return [counters[agent].relayed for agent in stream.query().members]


def flow(stream: sapwood.Stream, value: Any, until: Until) -> None:
    """Have waves until all agents relay them."""

    def passes() -> bool:
        for _ in range(30):
            stream.exchange(value, timeout=TIMEOUT)
        return min(relayed(stream)) > 0

    until(passes)


@pytest.mark.parametrize(("agents", "fanout"), [(1, 0), (4, 2)])
def test_functions_are_called_without_the_agent(
    make_cluster: MakeCluster, until: Until, agents: int, fanout: int
) -> None:
    cluster = make_cluster(agents, fanout)
    with cluster.stream(doubled, reduce="sum") as stream:
        flow(stream, np.arange(4.0), until)
        before = relayed(stream)
        for number in range(WAVES):
            values = np.full(1 + number % 5, float(number))
            assert (stream.exchange(values, timeout=TIMEOUT).total == 2 * agents * values).all()
        after = relayed(stream)
        assert min(b - a for a, b in zip(before, after, strict=True)) > WAVES // 4
        counters = stream.counters(TIMEOUT)
        waves = counters[0].messages_down
        assert [counters[agent].messages_up for agent in stream.query().members] == [waves] * agents


def test_agents_that_are_added_relay_too(make_cluster: MakeCluster, until: Until) -> None:
    cluster = make_cluster(2)
    with cluster.stream(doubled, reduce="sum") as stream:
        flow(stream, 1.0, until)
    cluster.expand(2)
    with cluster.stream(doubled, reduce="sum") as stream:
        assert stream.exchange(1.0, timeout=TIMEOUT).total == 8
        flow(stream, 1.0, until)
    cluster.contract([4])
    with cluster.stream(doubled, reduce="sum") as stream:
        flow(stream, 1.0, until)
        assert stream.exchange(1.0, timeout=TIMEOUT).total == 6


@pytest.mark.parametrize("what", ["nothing", "print", "die"])
def test_results_are_the_same_whatever_a_function_does(
    standing: sapwood.Cluster, until: Until, tmp_path: Path, what: str
) -> None:
    with standing.stream(odd, reduce="sum") as stream:
        flow(stream, ("nothing", 1, ""), until)
        for number in range(WAVES):
            total = stream.exchange((what, number, str(tmp_path)), timeout=TIMEOUT).total
            size = 40_000 if number % 11 == 0 else 20_000 if number % 13 == 0 else 1 + number % 3
            assert total.shape == (size,)
            assert (total == 2.0 * number).all()
        assert min(relayed(stream)) > WAVES // 4
    assert len(list(tmp_path.iterdir())) == (4 if what == "die" else 0)


def test_an_exception_is_the_same(standing: sapwood.Cluster, until: Until) -> None:
    with standing.stream(odd, reduce="sum") as stream:
        flow(stream, ("nothing", 1, ""), until)
        for number in range(200):
            assert stream.exchange(("fail", number, ""), timeout=TIMEOUT).total.size
        with pytest.raises(UserCodeError, match="number 200") as caught:
            stream.exchange(("fail", 200, ""), timeout=TIMEOUT)
        assert "agent" in str(caught.value)
        assert stream.exchange(("nothing", 3, ""), timeout=TIMEOUT).total[0] == 6


def test_generators_and_functions_with_a_limit_are_the_agents(
    standing: sapwood.Cluster,
) -> None:
    with standing.stream(pauses, reduce="sum", time_limit=3) as limited:
        for number in range(100):
            assert limited.exchange(number, timeout=TIMEOUT).total == 2 * number
        with pytest.raises(TimeLimitError):
            limited.exchange(100, timeout=TIMEOUT)
    with standing.stream(stepwise, sync="none") as steps:
        for _ in range(5):
            steps.broadcast(3)
        came = [int(wave.total) for _, wave in zip(range(30), steps.waves(TIMEOUT), strict=False)]
        assert sorted(came) == sorted([0, 1, 2] * 10)
        assert relayed(steps) == [0, 0]
