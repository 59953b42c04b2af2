"""Waves that callers send and gather themselves: the same results, whatever comes between."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pytest

from sapwood.comm.link import LinkTiming
from sapwood.core.errors import (
    ClosedError,
    DataValueError,
    ExecutionError,
    InputError,
    SapwoodError,
)
from sapwood.core.futures import CallerFuture, when_done
from sapwood.core.rankset import from_ranges
from sapwood.environment.cores import usable_cores
from sapwood.fastpath import native
from sapwood.fastpath.exchange import WaveExchange
from sapwood.session.embedded import EmbeddedSession
from sapwood.session.interface import NewAgent
from sapwood.session.streams import StreamHandle, StreamOptions
from sapwood.session.wave_result import WaveResult

MakeSession = Callable[..., EmbeddedSession]
Until = Callable[[Callable[[], object]], None]
Flow = Callable[[StreamHandle, EmbeddedSession], None]


TIMEOUT = 60.0
STANDING = {"agents": 2, "exchanges": True, "spin": 0.001}
HASTY = LinkTiming(heartbeat=0.01)
"""Each place has something to say a hundred times in a second."""


@pytest.mark.parametrize(("agents", "fanout"), [(1, 0), (4, 0), (5, 2)])
def test_they_give_what_waves_give(make: MakeSession, agents: int, fanout: int) -> None:
    session = make(agents, fanout)
    stream = session.open_stream("echo", {"x": "sum", "all": "concat"})
    waves = 0
    for number in range(160):
        waves += 1
        size = 40_000 if number % 40 == 7 else 1 + 6 * number
        sent = {"x": np.full(size, float(number)), "all": [number]}
        result = stream.exchange(sent, TIMEOUT)
        assert (result.total["x"] == agents * number).all()
        assert result.total["x"].size == size
        assert result.total["all"].tolist() == [number] * agents
        assert from_ranges(result.ranks) == set(range(1, agents + 1))
        assert (result.wave, result.weight, result.missing) == (waves, agents, ())
        if number % 40 == 0:  # one that goes the common way
            waves += 1
            assert stream.broadcast(sent).result(TIMEOUT).wave == waves
    assert session.shortcut.passed > 60


def test_they_name_who_is_in_them_where_agents_come_and_go(make: MakeSession, flow: Flow) -> None:
    session = make(2)
    follows = session.open_stream("echo", {"x": "sum"}, options=StreamOptions(follows=True))
    keeps = session.open_stream("echo", {"x": "sum"}, [1])
    flow(follows, session)
    (new,) = session.expand([NewAgent()])
    session.contract([2])
    assert [follows.exchange({"x": 1}, TIMEOUT).agents for _ in range(40)] == [[1, new]] * 40
    before = session.shortcut.passed
    assert [keeps.exchange({"x": 1}, TIMEOUT).agents for _ in range(80)] == [[1]] * 80
    assert keeps.broadcast({"x": 1}).result(TIMEOUT).agents == [1]
    assert session.shortcut.passed > before


def test_results_are_the_callers_own(standing: EmbeddedSession, flow: Flow) -> None:
    session = standing
    stream = session.open_stream("echo", {"x": "sum"})
    flow(stream, session)
    kept = [stream.exchange({"x": np.full(9, number)}, TIMEOUT).total["x"] for number in range(100)]
    assert [int(array.sum()) for array in kept] == [18 * number for number in range(100)]
    kept[0][:] = 1  # it can be written to


def test_what_comes_between_is_dealt_with(make: MakeSession) -> None:
    session = make(3, timing=HASTY)
    stream = session.open_stream("echo", {"x": "sum"})
    other = session.open_stream("echo", {"x": "max"})
    for number in range(800):
        assert stream.exchange({"x": number}, TIMEOUT).total == {"x": 3 * number}
        if number % 50 == 25:
            assert other.broadcast({"x": number}).result(TIMEOUT).total == {"x": number}
            with pytest.raises(InputError, match="no request handler"):
                session.ask(2, "nobody", number).result(TIMEOUT)
    assert session.shortcut.passed > 0


def test_threads_do_not_get_each_others_answers(make: MakeSession) -> None:
    session = make(3, timing=HASTY)
    streams = [session.open_stream("echo", {"x": "sum"}) for _ in range(2)]
    wrong: list[object] = []

    def work(stream: StreamHandle, start: int) -> None:
        for number in range(start, start + 300):
            total = stream.exchange({"x": number}, TIMEOUT).total
            if total != {"x": 3 * number}:
                wrong.append((number, total))

    threads = [
        threading.Thread(target=work, args=(streams[which], 10_000 * number))
        for number, which in enumerate((0, 0, 1))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_wave_that_takes_too_long_goes_on(
    standing: EmbeddedSession, until: Until, flow: Flow
) -> None:
    session = standing
    stream = session.open_stream("echo", {"x": "sum"})
    flow(stream, session)
    stopped = session.supervisor.processes[2].pid
    os.kill(stopped, signal.SIGSTOP)
    begun = stream.waves_begun
    with pytest.raises(TimeoutError):
        stream.exchange({"x": 5}, 0.05)
    until(lambda: stream.open_waves == 1)
    late = stream.broadcast({"x": 6})
    assert not late.done()
    os.kill(stopped, signal.SIGCONT)
    assert late.result(TIMEOUT).total == {"x": 12}
    assert late.result(TIMEOUT).wave == stream.waves_begun == begun + 2
    flow(stream, session)


def test_the_time_out_counts_once(standing: EmbeddedSession, until: Until, flow: Flow) -> None:
    session = standing
    stream = session.open_stream("echo", {"x": "sum"})
    flow(stream, session)
    waited: list[float | None] = []

    class Noted(CallerFuture[WaveResult]):
        def result(self, timeout: float | None = None) -> WaveResult:
            waited.append(timeout)
            return super().result(timeout)

    stream.new_future = Noted
    stopped = session.supervisor.processes[2].pid

    def is_exchanged() -> bool:
        flow(stream, session)
        waited.clear()
        os.kill(stopped, signal.SIGSTOP)
        with pytest.raises(TimeoutError):
            stream.exchange({"x": 5}, 0.2)
        os.kill(stopped, signal.SIGCONT)
        assert len(waited) == 1
        assert waited[0] is not None
        until(lambda: not stream.open_waves)
        return waited[0] < 0.2  # else the event loop was at work, and it went the common way

    until(is_exchanged)
    stream.broadcast({"x": 5}).result(TIMEOUT)
    assert stream.limiter.inside == 0  # a place that is taken over leaves what it has entered


def test_results_are_told_in_order(standing: EmbeddedSession, until: Until, flow: Flow) -> None:
    session = standing
    stream = session.open_stream("echo", {"x": "sum"})
    flow(stream, session)
    told: list[int] = []
    for _ in range(25):
        futures = [stream.broadcast({"x": 1}) for _ in range(8)]
        for future in futures:
            when_done(future, lambda done: told.append(done.result().wave))
        futures[-1].result(TIMEOUT)
    until(lambda: len(told) == 200)
    assert told == sorted(told)


def test_what_is_begun_when_a_wave_is_done_begins_at_once(make: MakeSession, flow: Flow) -> None:
    session = make(2, timing=LinkTiming(heartbeat=600.0, failure_after=6000.0))
    stream = session.open_stream("echo", {"x": "sum"})
    flow(stream, session)
    told: list[int] = []
    done = threading.Event()

    def again(future: Future[WaveResult]) -> None:
        told.append(future.result().wave)
        if len(told) < 50:
            stream.broadcast({"x": 1}).add_done_callback(again)
        else:
            done.set()

    stream.broadcast({"x": 1}).add_done_callback(again)
    assert done.wait(TIMEOUT)


def test_the_loop_is_there_for_others_while_answers_are_on_their_way(
    make: MakeSession, flow: Flow
) -> None:
    session = make(2, timing=LinkTiming(heartbeat=600.0, failure_after=6000.0))
    stream, other = (session.open_stream("echo", {"x": "sum"}) for _ in range(2))
    flow(stream, session)
    for number in range(20):
        totals: list[object] = []

        def ask(value: int = number, totals: list[object] = totals) -> None:
            totals.append(other.broadcast({"x": value}).result(TIMEOUT).total)

        assert stream.exchange({"x": number}, TIMEOUT, ask).total == {"x": 2 * number}
        assert totals == [{"x": 2 * number}]
        stream.exchange({"x": number}, TIMEOUT)


def test_the_loop_does_not_wait_for_itself(standing: EmbeddedSession, flow: Flow) -> None:
    session = standing
    stream = session.open_stream("echo", {"x": "sum"})
    flow(stream, session)
    refused: Future[str] = Future()

    def wait() -> None:
        with pytest.raises(SapwoodError) as refusal:
            stream.exchange({"x": 1}, TIMEOUT)
        refused.set_result(refusal.value.what)

    session.on_loop(wait)  # as callbacks are, unless what they are for is done before
    assert "cannot wait" in refused.result(TIMEOUT)
    assert stream.exchange({"x": 1}, TIMEOUT).total == {"x": 2}


def test_cores_are_kept_awake_as_the_session_is_told(make: MakeSession, flow: Flow) -> None:
    for spin in (0.0, 0.25):
        session = make(1, spin=spin)
        flow(session.open_stream("echo", {"x": "sum"}), session)
        assert isinstance(session.shortcut, WaveExchange)
        library = session.shortcut._library
        assert library is not None
        assert (library.memory.spin, library.memory.spare) == (spin, usable_cores() - 1)


def test_who_is_not_in_the_tree_is_missing(standing: EmbeddedSession) -> None:
    stream = standing.open_stream("echo", {"x": "sum"}, [1, 2, 9])
    for _ in range(50):
        result = stream.exchange({"x": 1}, TIMEOUT)
        assert (result.ranks, result.missing) == (((1, 3),), ((9, 10),))


@pytest.mark.parametrize("reduce", ["gather", "classes", "concat", "sum", "sum:reproducible"])
def test_results_stay_when_contributors_go_on(standing: EmbeddedSession, reduce: str) -> None:
    stream = standing.open_stream("echo", {"x": reduce}, [1])
    kept = [stream.exchange({"x": np.full(20_000, each)}, TIMEOUT).total["x"] for each in range(30)]
    for number, total in enumerate(kept):
        array = {"gather": lambda it: it[0], "classes": lambda it: it[0]["value"]}.get(
            reduce, np.asarray
        )(total)
        assert (array == number).all()
        array[:] = 0  # it can be written to


def test_answers_that_do_not_fit_are_told_as_always(standing: EmbeddedSession, flow: Flow) -> None:
    session = standing
    stream = session.open_stream("echo", {"x": "sum"})
    flow(stream, session)
    with pytest.raises(ExecutionError, match="expects") as by_exchange:
        stream.exchange({"y": 1}, TIMEOUT)
    with pytest.raises(ExecutionError) as by_future:
        stream.broadcast({"y": 1}).result(TIMEOUT)
    assert by_exchange.value.what == by_future.value.what
    with pytest.raises(DataValueError, match="cannot travel"):
        stream.exchange({"x": object()}, TIMEOUT)
    flow(stream, session)


def test_a_closed_stream_says_so(make: MakeSession, until: Until, flow: Flow) -> None:
    session = make(2)
    stream = session.open_stream("echo", {"x": "sum"})
    flow(stream, session)
    stream.close()
    until(lambda: stream.closed)
    with pytest.raises(ClosedError):
        stream.exchange({"x": 1}, TIMEOUT)
    open_still = session.open_stream("echo", {"x": "sum"})
    flow(open_still, session)
    session.close()
    with pytest.raises(ClosedError):
        open_still.exchange({"x": 1}, TIMEOUT)


def test_a_quiet_stream_keeps_its_waves(standing: EmbeddedSession, flow: Flow) -> None:
    session = standing
    stream = session.open_stream("echo", {"x": "sum"})
    flow(stream, session)
    stream.sweep("quiesce").result(TIMEOUT)
    with pytest.raises(TimeoutError):
        stream.exchange({"x": 1}, 0.05)
    with pytest.raises(InputError):
        stream.sweep("quiesce").result(TIMEOUT)
    stream.sweep("resume").result(TIMEOUT)
    flow(stream, session)


def test_without_the_library_waves_go_the_common_way(
    make_session: MakeSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(native.LIBRARY, str(tmp_path / "none.so"))
    native.load.cache_clear()
    session = make_session(2)
    session.on_loop(session.shortcut.start, session.host.driver)
    stream = session.open_stream("echo", {"x": "sum"})
    for number in range(50):
        assert stream.exchange({"x": number}, TIMEOUT).total == {"x": 2 * number}
    assert session.shortcut.passed == 0
