"""Streams as users hold them: own functions, synchronisation, life, counters."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sapwood
from sapwood.core.errors import (
    ClosedError,
    ConfigurationError,
    InputError,
    ProgramError,
    UserCodeError,
)
from sapwood_simulation.local_session_server import root_of

ROOTS = ("embedded", "attached")

TIMEOUT = 60.0
MakeCluster = Callable[..., sapwood.Cluster]
Until = Callable[[Callable[[], object]], None]


TREE = (4, 2)


@pytest.fixture
def cluster(standing: sapwood.Cluster) -> sapwood.Cluster:
    """Four agents below two junctions."""
    return standing


def work(until: str) -> int:
    """Work until a file is there."""
    while not Path(until).exists():
        time.sleep(0.002)
    return 1


def scaled(value: float) -> dict[str, Any]:
    return {"values": np.arange(4.0) * value, "n": 1}


def total(stream: sapwood.Stream, value: Any = None) -> Any:
    return stream.broadcast(value).result(TIMEOUT).total


@pytest.mark.row("C3-STREAM")
def test_a_function_is_called_on_every_agent(cluster: sapwood.Cluster) -> None:
    with cluster.stream(scaled, reduce={"values": "sum", "n": "sum"}) as stream:
        for factor in (1.0, 2.0):
            result = stream.broadcast(factor).result(TIMEOUT)
            np.testing.assert_array_equal(result.total["values"], np.arange(4.0) * factor * 4)
            assert (result.total["n"], result.agents, result.missing_agents) == (
                4,
                [1, 2, 3, 4],
                [],
            )


def test_values_are_gathered_by_rank_unless_said_otherwise(cluster: sapwood.Cluster) -> None:
    with cluster.stream("echo", agents=[3, 1]) as stream:
        result = stream.broadcast("hello").result(TIMEOUT)
        assert (result.total, result.agents) == (["hello", "hello"], [1, 3])
        assert "agent[1,3]" in repr(stream)
        assert "echo" in repr(stream)


def test_waves_come_in_the_order_in_which_they_were_broadcast(cluster: sapwood.Cluster) -> None:
    with cluster.stream("echo", reduce="max") as stream:
        for number in range(20):
            stream.broadcast(number)
        assert [wave.total for wave in stream.waves(TIMEOUT)] == list(range(20))
        assert list(stream.waves(TIMEOUT)) == []


def test_a_failed_wave_is_told_and_the_next_one_works(cluster: sapwood.Cluster) -> None:
    def picky(value: int) -> int:
        if value < 0:
            raise ValueError("negative")
        return value

    with cluster.stream(picky, reduce="sum") as stream:
        stream.broadcast(-1)
        stream.broadcast(2)
        waves = stream.waves(TIMEOUT)
        with pytest.raises(UserCodeError, match="negative"):
            next(waves)
        assert [wave.total for wave in stream.waves(TIMEOUT)] == [8]
        assert stream.query().open_waves == 0


@pytest.mark.row("C3-STREAM")
@pytest.mark.parametrize("sync", ["all", 5.0, "none"])
def test_an_answer_can_be_waited_for(cluster: sapwood.Cluster, sync: str | float) -> None:
    with cluster.stream(scaled, reduce={"values": "sum", "n": "sum"}, sync=sync) as stream:
        for number in range(60):
            result = stream.exchange(float(number), TIMEOUT)
            assert (result.wave, result.agents) == (number + 1, [1, 2, 3, 4])
            if sync != "none":
                np.testing.assert_array_equal(result.total["values"], np.arange(4.0) * number * 4)
                assert result.total["n"] == 4
        if sync != "none":
            assert list(stream.waves(TIMEOUT)) == []  # each agent is notified once
    with pytest.raises(ClosedError):
        stream.exchange(1.0)


def test_an_answer_that_does_not_come_in_time(cluster: sapwood.Cluster, tmp_path: Path) -> None:
    done = tmp_path / "done"
    with cluster.stream(work, reduce="sum") as stream:
        with pytest.raises(TimeoutError):
            stream.exchange(str(done), timeout=0.01)
        done.touch()
        assert stream.exchange(str(done), TIMEOUT).wave == 2


@pytest.mark.row("C3-STREAM")
def test_three_hundred_streams_with_interleaved_waves(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(8, fanout=4)
    streams = [cluster.stream("echo", reduce="sum") for _ in range(300)]
    waves = [
        (factor * number, stream.broadcast(factor * number))
        for factor in (1, 10, 100)
        for number, stream in enumerate(streams)
    ]
    assert [wave.result(TIMEOUT).total for _, wave in waves] == [8 * value for value, _ in waves]
    for stream in streams:
        stream.close()
    with cluster.stream("echo", reduce="sum") as last:
        assert total(last, 1) == 8  # whatever was closed before is closed everywhere
        assert len(root_of(cluster).host.node.streams) == 2  # this one, and the service stream


def test_functions_of_many_streams_do_not_disturb_each_other(cluster: sapwood.Cluster) -> None:
    def multiplier(factor: int) -> Callable[[int], int]:
        return lambda value: factor * value

    streams = [cluster.stream(multiplier(factor), reduce="sum") for factor in range(30)]
    waves = [stream.broadcast(2) for stream in streams]
    assert [wave.result(TIMEOUT).total for wave in waves] == [8 * factor for factor in range(30)]
    for stream in streams[1:]:
        stream.close()
    assert total(streams[0], 1) == 0


# --- synchronisation --------------------------------------------------------------------------


def third_is_slow(until: str) -> int:
    return work(until) if until and sapwood.here().rank == 3 else 1


@pytest.mark.row("C2-RED")
@pytest.mark.parametrize("late", ["drop", "next"])
def test_a_time_out_passes_on_what_is_there(
    cluster: sapwood.Cluster, tmp_path: Path, late: Any
) -> None:
    with cluster.stream(third_is_slow, reduce="sum") as warm:
        assert total(warm, "") == 4  # all runners are there
    for limit in (0.5, 4.0, 32.0):  # a busy machine may keep others from answering in time, too
        with cluster.stream(third_is_slow, reduce="sum", sync=limit, late=late) as stream:
            first = stream.broadcast(str(tmp_path / f"{limit}")).result(TIMEOUT)
            (tmp_path / f"{limit}").touch()
            assert 3 in first.missing_agents
            if len(first.agents) < 3:
                continue
            assert (first.total, first.agents, first.missing_agents) == (3, [1, 2, 4], [3])
            seen: list[tuple[int, list[int]]] = []
            while len(seen) < 40 and (not seen or seen[-1][1] != [1, 2, 3, 4]):
                wave = stream.broadcast("").result(TIMEOUT)
                seen.append((wave.total, wave.agents))
                late_ones = [rank for start, stop in wave.late for rank in range(start, stop)]
                # Each contribution counts once: in its wave, in a later one, or as dropped.
                assert wave.total == len(wave.agents) + len(late_ones)
            assert seen[-1][1] == [1, 2, 3, 4]
            counters = stream.counters(TIMEOUT)
            assert sum(place.late for place in counters.places) >= 1
            return
    pytest.fail(f"after {limit} ms only {first.agents} had answered")


@pytest.mark.row("C2-RED")
def test_a_generator_sends_what_it_has_at_once(cluster: sapwood.Cluster) -> None:
    def counting(limit: int) -> Iterator[Any]:
        for number in range(limit):
            yield {"rank": sapwood.here().rank, "number": number}

    with cluster.stream(counting, sync="none") as stream:
        assert stream.broadcast(5).result(TIMEOUT).agents == [1, 2, 3, 4]
        waves = stream.waves(TIMEOUT)
        seen = [next(waves) for _ in range(20)]
    for rank in (1, 2, 3, 4):
        mine = [one.total["number"] for one in seen if one.total["rank"] == rank]
        assert mine == list(range(5))
        assert all(one.agents == [one.total["rank"]] for one in seen)
    assert list(waves) == []


@pytest.mark.row("C2-RED")
def test_answers_of_a_stream_that_does_not_wait_come_one_by_one(cluster: sapwood.Cluster) -> None:
    with cluster.stream("echo", sync="none") as stream:
        done = stream.broadcast({"x": np.arange(100_000)}).result(TIMEOUT)
        assert (done.total, done.agents) == (None, [1, 2, 3, 4])
        waves = stream.waves(TIMEOUT)
        seen = [next(waves) for _ in range(4)]
        assert sorted(one.agents for one in seen) == [[1], [2], [3], [4]]
        assert all(one.total["x"].sum() == 4999950000 for one in seen)


# --- life -------------------------------------------------------------------------------------


@pytest.mark.row("C3-STREAM")
def test_after_a_flush_waves_go_on_and_after_a_quiesce_they_wait(cluster: sapwood.Cluster) -> None:
    with cluster.stream("echo", reduce="sum") as stream:
        stream.broadcast(1)
        assert stream.flush(TIMEOUT) == []
        assert total(stream, 2) == 8
        assert stream.quiesce(TIMEOUT) == []
        assert (stream.state, stream.query().state) == ("quiet", "quiet")
        waiting = stream.broadcast(3)
        assert all(place.state == "quiet" for place in stream.counters(TIMEOUT).places)
        before = [place.messages_down for place in stream.counters(TIMEOUT).places]
        assert before == [place.messages_down for place in stream.counters(TIMEOUT).places]
        assert not waiting.done()
        with pytest.raises(InputError, match="quiet"):
            stream.quiesce(TIMEOUT)
        stream.resume(TIMEOUT)
        assert waiting.result(TIMEOUT).total == 12
        with pytest.raises(InputError, match="open"):
            stream.resume(TIMEOUT)


@pytest.mark.row("C3-STREAM")
def test_what_agents_have_to_say_waits_while_a_stream_is_quiet(
    cluster: sapwood.Cluster, tmp_path: Path
) -> None:
    with cluster.stream(work, reduce="sum") as stream:
        wave = stream.broadcast(str(tmp_path / "done"))
        stream.quiesce(TIMEOUT)
        (tmp_path / "done").touch()
        queued = {place.rank: place.queued for place in stream.counters(TIMEOUT).places}
        while any(queued[rank] != 1 for rank in (1, 2, 3, 4)):
            queued = {place.rank: place.queued for place in stream.counters(TIMEOUT).places}
        assert not wave.done()
        stream.resume(TIMEOUT)
        assert wave.result(TIMEOUT).total == 4


def test_a_generator_pauses_while_its_stream_is_quiet(cluster: sapwood.Cluster) -> None:
    def endless(_value: Any) -> Iterator[int]:
        number = 0
        while True:
            yield number
            number += 1

    with cluster.stream(endless, sync="none", agents=[1]) as stream:
        stream.broadcast()
        waves = stream.waves(TIMEOUT)
        next(waves)
        stream.quiesce(TIMEOUT)
        sent = [place.messages_up for place in stream.counters(TIMEOUT).places]
        stream.counters(TIMEOUT)
        assert sent == [place.messages_up for place in stream.counters(TIMEOUT).places]
        stream.resume(TIMEOUT)
        while stream.counters(TIMEOUT)[1].messages_up <= sent[-1]:
            pass


@pytest.mark.row("C3-STREAM")
def test_a_closed_stream_says_so(cluster: sapwood.Cluster, tmp_path: Path) -> None:
    stream = cluster.stream(work, reduce="sum")
    wave = stream.broadcast(str(tmp_path / "never"))
    stream.close()
    with pytest.raises(ClosedError):
        wave.result(TIMEOUT)
    with pytest.raises(ClosedError):
        stream.broadcast(1)
    assert stream.state == "closed"
    assert "closed" in repr(stream)
    assert cluster.submit(pow, 2, 3).result(TIMEOUT) == 8  # the agents are free again


@pytest.mark.row("C2-RED")
def test_counters_of_every_place(cluster: sapwood.Cluster) -> None:
    with cluster.stream("echo", reduce="sum") as stream:
        for _ in range(3):
            total(stream, 5)
        counters = stream.counters(TIMEOUT)
        assert [place.rank for place in counters.places] == [0, 1, 2, 3, 4, 5, 6]
        assert [counters[rank].messages_up for rank in (0, 1, 5)] == [6, 3, 6]
        assert all(place.messages_down == 3 for place in counters.places)
        assert json.loads(counters.json())["places"][0]["bytes_down"] == 3
        assert "queue msgs" in str(counters)
        assert "<table>" in counters._repr_html_()


def test_many_threads_share_a_stream(cluster: sapwood.Cluster) -> None:
    found: list[int] = []

    def work(number: int) -> None:
        found.append(total(stream, number))

    with cluster.stream("echo", reduce="sum") as stream:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(found) == [4 * number for number in range(16)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"what": "eco"}, "did you mean echo"),
        ({"what": 3}, "cannot be called"),
        ({"what": "echo", "sync": "later"}, "number of seconds"),
        ({"what": "echo", "sync": -1}, "positive"),
        ({"what": "echo", "sync": True}, "positive"),
        ({"what": "echo", "late": "never"}, "next"),
        ({"what": "echo", "on_loss": "replce"}, "replace"),
        ({"what": "echo", "agents": [5]}, "1 to 4"),
        ({"what": "echo", "agents": []}, "at least one"),
        ({"what": "echo", "reduce": {"x": 3}}, "reductions"),
        ({"what": "echo", "up": {"level 1": max}}, "rank N"),
        ({"what": "echo", "up": {"rank 7": max}}, r"0 and at junction\[5-6\]"),
        ({"what": "echo", "down": {"rank 1": max}}, "no filter works at rank 1"),
        ({"what": "echo", "up": 7}, "not a filter"),
        ({"what": "echo", "up": int}, "derive"),
        ({"what": "echo", "parameters": {"k": 1}}, "no user filter"),
    ],
)
def test_what_is_no_stream_is_refused(
    cluster: sapwood.Cluster, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        cluster.stream(**arguments)


@pytest.mark.parametrize(
    ("reduce", "hint"),
    [("summ", "use one of sum"), ({"x": "top"}, "top:COUNT"), ({"x": "top:-1"}, "whole number")],
)
def test_what_is_no_reduction_is_wrong_input(
    cluster: sapwood.Cluster, reduce: Any, hint: str
) -> None:
    with pytest.raises(ProgramError) as caught:
        cluster.stream("echo", reduce=reduce)
    assert hint in caught.value.hint
    assert caught.value.exit_code == 2


def many_events(folder: str) -> Iterator[int]:
    place = Path(folder)
    yield 0
    while not (place / "go").exists():
        time.sleep(0.002)
    yield from range(1, 50)
    (place / f"sent-{sapwood.here().rank}").touch()
    while True:
        time.sleep(0.05)


@pytest.mark.row("C3-STREAM")
def test_what_agents_have_sent_arrives_before_the_stream_ends(
    cluster: sapwood.Cluster, until: Until, tmp_path: Path
) -> None:
    junction = root_of(cluster).supervisor.processes[5].pid
    stream = cluster.stream(many_events, agents=[1, 2], sync="none")
    stream.broadcast(str(tmp_path))
    events = stream.waves()
    found = [next(events).total, next(events).total]
    os.kill(junction, signal.SIGSTOP)
    try:
        (tmp_path / "go").touch()
        until(lambda: len(list(tmp_path.glob("sent-*"))) == 2)
        goes_on = threading.Timer(0.2, os.kill, (junction, signal.SIGCONT))
        goes_on.start()
        stream.close(timeout=TIMEOUT)
    finally:
        os.kill(junction, signal.SIGCONT)
    found += [event.total for event in events]
    assert sorted(found) == sorted([*range(50), *range(50)])
