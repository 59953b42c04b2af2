"""Waves that callers send and gather themselves: kills, cuts, interrupts, ends."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

import numpy as np
import pytest

from sapwood.comm.link import LinkTiming
from sapwood.core.errors import (
    ClosedError,
)
from sapwood.fastpath.exchange import WaveExchange
from sapwood.session.embedded import EmbeddedSession
from sapwood.session.streams import StreamHandle, StreamOptions
from sapwood.session.wave_result import WaveResult

from .mischief import Mischief

MakeSession = Callable[..., EmbeddedSession]
Until = Callable[[Callable[[], object]], None]
Interrupted = Callable[[Callable[[], object], float], None]
Flow = Callable[[StreamHandle, EmbeddedSession], None]


TIMEOUT = 60.0
HASTY = LinkTiming(heartbeat=0.01)
"""Each place has something to say a hundred times in a second."""


def test_agents_that_are_killed_are_waited_for(make: MakeSession, flow: Flow) -> None:
    session = make(3)
    stream = session.open_stream("echo", {"x": "sum"})
    for turn in range(4):
        flow(stream, session)
        victim = session.supervisor.processes[1 + turn % 3]
        os.kill(victim.pid, signal.SIGKILL)
        for number in range(50):
            assert stream.exchange({"x": number}, TIMEOUT).total == {"x": 3 * number}


class StreamMischief(Mischief):
    """What happens to a session that has waves: its streams come and go, too."""

    def __init__(self, session: EmbeddedSession, seed: int) -> None:
        super().__init__(session, seed)
        self.streams = [
            session.open_stream("echo", {"x": "sum"}, options=StreamOptions(counted=counted))
            for counted in (False, True, True)
        ]

    def happen(self) -> None:
        """Let something happen."""
        self.rng.choice([self.cut, self.kill, self.pause, self.sweep, self.renew])()

    def sweep(self) -> None:
        self.rng.choice(self.streams).sweep("flush").result(TIMEOUT)

    def renew(self) -> None:
        self.streams.pop(0).close()
        self.streams.append(self.session.open_stream("echo", {"x": "sum"}))


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in (2, 3))]
)
def test_whatever_comes_in_whatever_order(make: MakeSession, seed: int) -> None:
    session = make(3, 2 * (seed % 2), timing=HASTY)
    mischief, agents = StreamMischief(session, seed), session.tree.agents
    rng, streams = mischief.rng, mischief.streams
    late: list[tuple[Future[WaveResult], int]] = []
    for number in range(600):
        if rng.random() < 0.02:
            mischief.happen()
        stream = rng.choice(streams) if number % 50 == 0 else streams[-1]
        if rng.random() < 0.02:
            late.append((stream.broadcast({"x": number}), number))
        value = np.full(rng.choice([1, 50, 40_000]), number) if number % 9 == 0 else number
        total = stream.exchange({"x": value}, TIMEOUT).total["x"]
        assert np.array_equal(total, np.asarray(value) * agents)
    for future, number in late:
        error = future.exception(TIMEOUT)
        assert error is None or isinstance(error, ClosedError)  # of a stream that was closed
        assert error is not None or future.result().total == {"x": agents * number}


def test_links_that_break_go_on_where_they_were(make: MakeSession, flow: Flow) -> None:
    session = make(3)
    stream = session.open_stream("echo", {"x": "sum"})
    place = session.host.driver
    pids = [session.supervisor.processes[rank].pid for rank in (1, 2, 3)]

    def cut() -> None:
        for line in list(place.links.connections.values()):
            line.connection.abort()

    for _ in range(5):
        flow(stream, session)
        session.on_loop(cut)
        for number in range(50):
            assert stream.exchange({"x": number}, TIMEOUT).total == {"x": 3 * number}
    assert [session.supervisor.processes[rank].pid for rank in (1, 2, 3)] == pids


def test_an_interrupt_leaves_the_wave_to_the_loop(
    make: MakeSession, flow: Flow, interrupted: Interrupted
) -> None:
    session = make(2)
    stream = session.open_stream("echo", {"x": "sum"})
    for turn in range(0, 20, 2):
        flow(stream, session)
        stopped = session.supervisor.processes[1].pid
        os.kill(stopped, signal.SIGSTOP)
        with pytest.raises(KeyboardInterrupt):
            interrupted(partial(stream.exchange, {"x": 1}, TIMEOUT), 0.001 * turn)
        os.kill(stopped, signal.SIGCONT)
        assert stream.exchange({"x": turn}, TIMEOUT).total == {"x": 2 * turn}


def test_closing_wakes_who_waits(make: MakeSession, until: Until, flow: Flow) -> None:
    session = make(2)
    stream = session.open_stream("echo", {"x": "sum"})
    flow(stream, session)
    os.kill(session.supervisor.processes[2].pid, signal.SIGSTOP)
    caught: list[BaseException] = []

    def wait() -> None:
        try:
            stream.exchange({"x": 1}, TIMEOUT)
        except ClosedError as error:
            caught.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    shortcut = session.shortcut
    assert isinstance(shortcut, WaveExchange)
    until(lambda: stream.open_waves or shortcut._calls)
    session.close()
    thread.join(TIMEOUT)
    assert len(caught) == 1
