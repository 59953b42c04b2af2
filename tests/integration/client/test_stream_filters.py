"""Own filters in real junctions and at the client: Python, C, state, parameters, crashes."""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import sapwood
from sapwood.core.errors import (
    AgentLostError,
    BuildError,
    ConfigurationError,
    DataValueError,
    RunnerCrashError,
    SapwoodError,
    TimeLimitError,
    UserCodeError,
)
from sapwood_simulation.local_session_server import root_of

ROOTS = ("embedded", pytest.param("attached", marks=pytest.mark.nightly))

TIMEOUT = 60.0
MakeCluster = Callable[..., sapwood.Cluster]
Until = Callable[[Callable[[], object]], None]

COMBINE = """
#include <stddef.h>
#include <stdlib.h>

void combine(double *into, const double *from, size_t n) {
  for (size_t i = 0; i < n; i++) into[i] = into[i] * 10 + from[i];
}

void scaled(double *into, const double *from, size_t n, double factor) {
  for (size_t i = 0; i < n; i++) into[i] += factor * from[i];
}

void crash(double *into, const double *from, size_t n) {
  if (n) abort();
}

double alone(const double *from, size_t n) { return n ? from[0] : 0; }
"""


MAP = '[map]\nfunction = "alone"\n'


TREE = (4, 2)


@pytest.fixture
def cluster(standing: sapwood.Cluster) -> sapwood.Cluster:
    """Four agents below the junctions 5 and 6."""
    return standing


@pytest.fixture
def combine(tmp_path: Path) -> sapwood.Program:
    """A program in C with functions that combine arrays."""
    (tmp_path / "combine.c").write_text(COMBINE)
    (tmp_path / "program.toml").write_text('[program]\nsources = ["combine.c"]\n' + MAP)
    return sapwood.load_program(tmp_path)


def rank(_value: Any) -> int:
    return sapwood.here().rank


def total(stream: sapwood.Stream, value: Any = None) -> Any:
    return stream.broadcast(value).result(TIMEOUT).total


class Running(sapwood.Filter):
    """The greatest so far, times a parameter."""

    def __init__(self) -> None:
        self.greatest = 0

    def up(self, values: list[Any]) -> Any:
        self.greatest = max(self.greatest, *values)
        return self.greatest * self.parameters.get("factor", 1)


class Changes(sapwood.Filter):
    """Passes on only what differs from the last wave."""

    def __init__(self) -> None:
        self.last: Any = None

    def up(self, values: list[Any]) -> Any:
        if values == self.last:
            return sapwood.NOTHING
        self.last = values
        return max(values)


class Marked(sapwood.Filter):
    """Says where it works."""

    def up(self, values: list[Any]) -> Any:
        inner = [value if isinstance(value, list) else [value] for value in values]
        return [(self.rank, self.depth, self.wave, os.getpid()), *itertools.chain(*inner)]

    def down(self, value: Any, child: int) -> Any:
        return [*value, (self.rank, child)]


@pytest.mark.row("C2-RED")
def test_a_function_of_two_values_is_a_filter(cluster: sapwood.Cluster) -> None:
    with cluster.stream(rank, reduce=lambda left, right: f"({left}{right})") as stream:
        assert total(stream) == "((12)(34))"  # in the order of the ranks, in every junction
        counters = stream.counters(TIMEOUT)
        assert [counters[place].filtered for place in (0, 5, 6)] == [1, 1, 1]
        assert all(counters[place].filter_seconds > 0 for place in (0, 5, 6))


@pytest.mark.row("C2-RED")
def test_a_filter_keeps_state_between_waves(cluster: sapwood.Cluster) -> None:
    with cluster.stream("echo", reduce=Running) as stream:
        assert [total(stream, value) for value in (3, 7, 2)] == [3, 7, 7]
    with cluster.stream("echo", reduce=Running) as stream:
        assert total(stream, 1) == 1  # a stream has its own filters


@pytest.mark.row("C2-RED")
def test_a_filter_may_pass_nothing_on(cluster: sapwood.Cluster) -> None:
    with cluster.stream("echo", reduce=Changes) as stream:
        waves = [stream.broadcast(value).result(TIMEOUT) for value in (4, 4, 5)]
        assert [wave.total for wave in waves] == [4, None, 5]
        assert all(wave.agents == [1, 2, 3, 4] for wave in waves)


@pytest.mark.row("C2-RED")
def test_parameters_change_between_two_waves_at_all_places(cluster: sapwood.Cluster) -> None:
    with cluster.stream("echo", reduce=Running, parameters={"factor": 1}) as stream:
        first = [stream.broadcast(1) for _ in range(20)]
        stream.configure(factor=3)
        second = [stream.broadcast(1) for _ in range(20)]
        # Junctions and root each multiply: 1 * 1 before, 3 * 3 after, never one of each.
        assert [wave.result(TIMEOUT).total for wave in first] == [1] * 20
        assert second[0].result(TIMEOUT).total == 9
        assert stream.query().parameters == {"factor": 3}


@pytest.mark.row("C2-RED")
def test_places_may_have_different_filters(cluster: sapwood.Cluster) -> None:
    def pair(left: Any, right: Any) -> Any:
        return [left, right]

    places: dict[str, Callable[..., Any]] = {"depth 1": min, "rank 6": max, "depth 0": pair}
    with cluster.stream(rank, up=places) as stream:
        assert total(stream) == [1, 4]
    with cluster.stream(rank, reduce="sum", up={"rank 6": max}) as stream:
        assert total(stream) == 1 + 2 + 4


@pytest.mark.row("C2-RED")
def test_filters_live_in_processes_of_their_own(cluster: sapwood.Cluster) -> None:
    with cluster.stream(rank, reduce=Marked) as stream:
        places = [place for place in total(stream) if isinstance(place, tuple)]
    assert {place[:3] for place in places} == {(0, 0, 1), (5, 1, 1), (6, 1, 1)}
    pids = {place[3] for place in places}
    members = {os.getpid(), *(place.pid for place in root_of(cluster).supervisor.processes)}
    assert len(pids) == 3
    assert not pids & members


@pytest.mark.row("C2-RED")
def test_a_filter_changes_what_goes_down_for_each_child(cluster: sapwood.Cluster) -> None:
    with cluster.stream("echo", down=Marked) as stream:
        found = total(stream, [])
        assert found == [[(0, 5), (5, 1)], [(0, 5), (5, 2)], [(0, 6), (6, 3)], [(0, 6), (6, 4)]]
    with cluster.stream("echo", reduce="sum", down=lambda value: value + 1) as stream:
        assert total(stream, 10) == 4 * 12
    with cluster.stream(
        "echo", reduce="max", down=lambda value, child, add=0: value + child + add
    ) as stream:
        assert total(stream, 0) == 10  # 6 and 4


@pytest.mark.row("C2-RED")
def test_large_arrays_go_through_filters(cluster: sapwood.Cluster) -> None:
    def ones(size: int) -> Any:
        return np.full(size, float(sapwood.here().rank))

    with cluster.stream(ones, reduce=np.maximum) as stream:
        for _ in range(5):
            result = total(stream, 300_000)
            assert result.shape == (300_000,)
            assert (result == 4).all()
            result += 1  # it is the user's own


@pytest.mark.row("C2-RED")
def test_a_filter_in_c(cluster: sapwood.Cluster, combine: sapwood.Program) -> None:
    def digits(_value: Any) -> Any:
        return np.array([float(sapwood.here().rank), 1.0])

    with cluster.stream(digits, reduce=combine["combine"]) as stream:
        np.testing.assert_array_equal(total(stream), [12 * 10 + 34, 121.0])
    with cluster.stream(
        lambda _: {"a": np.ones(3), "b": np.ones(2)},
        reduce=combine["scaled"],
        parameters={"factor": 2.0},
    ) as stream:
        found = total(stream)
        np.testing.assert_array_equal(found["a"], [9.0] * 3)  # 1 + 2 + 2 * (1 + 2)
        stream.configure(factor=0.0)
        np.testing.assert_array_equal(total(stream)["b"], [1.0] * 2)


@pytest.mark.row("C2-RED")
def test_a_native_function_is_called_on_every_agent(
    cluster: sapwood.Cluster, combine: sapwood.Program
) -> None:
    with cluster.stream(combine["alone"], reduce="sum") as stream:
        assert total(stream, {"from": np.array([2.5]), "n": 1}) == 10.0


def test_a_filter_that_crashes_fails_its_wave_only(
    cluster: sapwood.Cluster, combine: sapwood.Program
) -> None:
    with cluster.stream(np.zeros, reduce=combine["crash"]) as stream:
        with pytest.raises(RunnerCrashError, match="SIGABRT"):
            total(stream, 2)
        assert total(stream, 0).shape == (0,)
        assert all(agent.state == "ready" for agent in cluster.agents)


def test_a_filter_that_raises_says_where(cluster: sapwood.Cluster) -> None:
    def broken(_left: Any, _right: Any) -> Any:
        raise ValueError("no such thing")

    with (
        cluster.stream(rank, up={"depth 1": broken, "*": max}) as stream,
        pytest.raises(UserCodeError, match=r"no such thing(.|\n)*junction [56]"),
    ):
        total(stream)
    with (
        cluster.stream(rank, reduce="sum", up={"depth 0": broken}, agents=[1, 3]) as stream,
        pytest.raises(UserCodeError, match=r"no such thing(.|\n)*client"),
    ):
        total(stream)


def test_a_filter_never_gets_the_partial_results_of_a_junction(cluster: sapwood.Cluster) -> None:
    with pytest.raises(ConfigurationError, match=r"junction 5 has no filter.*'concat'") as caught:
        cluster.stream(rank, reduce="concat", up={"depth 0": max})
    assert '"*"' in caught.value.hint
    with cluster.stream(rank, reduce="max", up={"depth 0": max}) as stream:
        assert total(stream) == 4
    with cluster.stream(rank, reduce="concat", up={"depth 0": max, "*": min}) as stream:
        assert total(stream) == 3


def test_a_filter_that_hangs_is_killed(cluster: sapwood.Cluster) -> None:
    def hanging(_left: Any, _right: Any) -> Any:
        while True:
            pass

    with (
        cluster.stream(rank, reduce=hanging, time_limit=0.5) as stream,
        pytest.raises(TimeLimitError),
    ):
        total(stream)
    assert total_of_ranks(cluster) == 10


def total_of_ranks(cluster: sapwood.Cluster) -> Any:
    with cluster.stream(rank, reduce=lambda left, right: left + right) as stream:
        return total(stream)


@pytest.mark.row("D-2")
@pytest.mark.parametrize("lost", [1, 5])
def test_filters_work_at_places_that_were_replaced(
    make_cluster: MakeCluster, until: Until, lost: int
) -> None:
    cluster = make_cluster(4, fanout=2)
    with cluster.stream("echo", reduce=Running, parameters={"factor": 1}) as stream:
        assert total(stream, 5) == 5
        stream.configure(factor=2)
        os.kill(root_of(cluster).supervisor.processes[lost].pid, signal.SIGKILL)
        assert total(stream, 5) == 20
        until(lambda: all(agent.state == "ready" for agent in cluster.agents))
        assert total(stream, 1) in {20, 10, 40}


def test_filters_of_the_root_survive_the_loss_of_the_zygote(
    make_cluster: MakeCluster, until: Until
) -> None:
    cluster = make_cluster(4, fanout=2)
    with cluster.stream("echo", reduce=Running) as stream:
        assert total(stream, 5) == 5
        os.kill(root_of(cluster).supervisor.zygote_pid, signal.SIGKILL)

        def works() -> bool:
            try:
                return bool(total(stream, 6) == 6)
            except SapwoodError:
                return False  # the wave that the filter was killed in

        until(works)


@pytest.mark.parametrize("on_loss", ["replace", "fail"])
def test_a_filter_at_the_root_is_called_again_when_the_zygote_is_lost(
    make_cluster: MakeCluster, until: Until, tmp_path: Path, on_loss: Literal["replace", "fail"]
) -> None:
    called = tmp_path / "called"

    def stays_once(left: Any, right: Any) -> Any:
        if not called.exists():
            called.touch()
            threading.Event().wait()
        return left + right

    cluster = make_cluster(2)
    with cluster.stream("echo", reduce=stays_once, on_loss=on_loss) as stream:
        wave = stream.broadcast(1)
        until(called.exists)
        os.kill(root_of(cluster).supervisor.zygote_pid, signal.SIGKILL)
        if on_loss == "replace":
            assert wave.result(TIMEOUT).total == 2
        else:
            with pytest.raises((RunnerCrashError, AgentLostError)):
                wave.result(TIMEOUT)


@pytest.mark.row("C2-RED")
def test_contributions_that_nobody_waits_for_go_through_filters(cluster: sapwood.Cluster) -> None:
    def numbers(_value: Any) -> Iterator[int]:
        yield from (1, 1, 2)

    with cluster.stream(numbers, sync="none", up={"rank 5": Changes, "rank 6": Changes}) as stream:
        stream.broadcast().result(TIMEOUT)
        stream.flush(TIMEOUT)
    seen = [wave.total for wave in stream.waves(TIMEOUT)]
    assert 4 <= len(seen) < 12
    assert set(seen) == {1, 2}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"reduce": max, "up": min}, "both"),
        ({"up": {"*": Running}, "down": {"*": Running}}, "no way down"),
        ({"down": sapwood.Filter}, "no way down"),
    ],
)
def test_what_is_no_filter_is_refused(
    cluster: sapwood.Cluster, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        cluster.stream("echo", **arguments)


def test_a_native_function_that_combines_nothing_is_refused(
    cluster: sapwood.Cluster, combine: sapwood.Program
) -> None:
    with (
        cluster.stream(lambda _: np.ones(2), reduce=combine["alone"]) as stream,
        pytest.raises(SapwoodError, match="cannot combine"),
    ):
        total(stream)


def test_what_a_filter_cannot_be_sent_with_is_told(cluster: sapwood.Cluster) -> None:
    with pytest.raises(DataValueError, match="array"):
        cluster.stream("echo", reduce=Running, parameters={"factor": np.ones(2)})
    lock = threading.Lock()
    with pytest.raises(DataValueError, match="cannot be sent"):
        cluster.stream("echo", reduce=lambda left, right: (lock, left, right))


def test_a_program_that_does_not_compile_opens_no_stream(
    cluster: sapwood.Cluster, tmp_path: Path
) -> None:
    (tmp_path / "combine.c").write_text("void combine(")
    (tmp_path / "program.toml").write_text('[program]\nsources = ["combine.c"]\n' + MAP)
    with pytest.raises(BuildError):
        cluster.stream("echo", reduce=sapwood.load_program(tmp_path)["combine"])


class AsksWhereItIs(sapwood.Filter):
    def up(self, values: list[Any]) -> Any:
        sapwood.here()
        return values[0]


class WritesToSockets(sapwood.Filter):
    def up(self, values: list[Any]) -> Any:
        for each in Path("/proc/self/fd").iterdir():
            if each.is_symlink() and str(each.readlink()).startswith("socket:"):
                os.write(int(each.name), b"hello")
        return values[0]


@pytest.mark.parametrize(
    ("own", "code", "what"),
    [
        (AsksWhereItIs, "SW110", "is for functions that run on an agent"),
        (WritesToSockets, "SW202", "wrote to the connection between its runner"),
    ],
)
def test_a_filter_that_disturbs_its_runners_connection_fails_only_its_wave(
    make_cluster: MakeCluster, own: type[sapwood.Filter], code: str, what: str
) -> None:
    cluster = make_cluster(4, fanout=2)
    with (
        cluster.stream(abs, reduce=own) as stream,
        pytest.raises(SapwoodError, match=what) as caught,
    ):
        stream.exchange(-3, timeout=TIMEOUT)
    assert caught.value.code == code
    assert cluster.submit(pow, 2, 3).result(TIMEOUT) == 8
