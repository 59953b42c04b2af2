"""Waves between machines that pass without the interpreter: links break, and nothing is lost."""

from __future__ import annotations

import os
import signal
import ssl
from collections.abc import Iterator
from types import FrameType

import numpy as np
import pytest
from tests.integration.session.conftest import until

import sapwood
from sapwood.client.hosts import several
from sapwood.environment.settings import (
    CommSettings,
    NodeSettings,
    RestartSettings,
    Settings,
)
from sapwood.session.embedded import EmbeddedSession, embedded

from .mischief import Mischief

TIMEOUT = 60.0
SETTINGS = Settings(
    comm=CommSettings(heartbeat=0.5, failure_after=30.0),
    restart=RestartSettings(limit=100, backoff=0.01, backoff_max=0.05),
    nodes=NodeSettings(start_timeout=60.0),
)
AGENTS = 3


@pytest.fixture(scope="module")
def standing(nothing_is_left_behind_by_all: None) -> Iterator[sapwood.Cluster]:
    """A cluster of two machines, which have two agents and one: all links to the root have TLS."""
    del nothing_is_left_behind_by_all  # it looks when the cluster has ended
    with several(2, AGENTS, settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def session(standing: sapwood.Cluster) -> EmbeddedSession:
    return embedded(standing.session)


def passing(cluster: sapwood.Cluster) -> sapwood.Stream:
    """Return a stream whose waves are exchanged by the library."""
    stream = cluster.stream("echo", reduce={"x": "sum"})
    until(lambda: passes(cluster, stream))
    return stream


def passes(cluster: sapwood.Cluster, stream: sapwood.Stream) -> bool:
    """Return whether the library exchanges waves of a stream; it does when none is open."""
    shortcut = embedded(cluster.session).shortcut
    before = shortcut.passed
    for number in range(50):
        assert stream.exchange({"x": number}, timeout=TIMEOUT).total == {"x": AGENTS * number}
    stream.broadcast({"x": 1}).result(TIMEOUT)  # so that the event loop hears of them
    return shortcut.passed > before


def carriers(session: EmbeddedSession) -> set[str]:
    """Return the kinds of the root's connections."""
    found = session.host.driver.links.connections.values()
    return {type(one.connection).__name__ for one in found}


def test_waves_are_exchanged_over_tls(standing: sapwood.Cluster, session: EmbeddedSession) -> None:
    with passing(standing) as stream:
        before = session.shortcut.passed
        for size in (1, 100, 5000, 40_000):
            for number in range(50):
                value = np.full(size, float(number))
                total = stream.exchange({"x": value}, timeout=TIMEOUT).total["x"]
                assert np.array_equal(total, AGENTS * value)
        stream.broadcast({"x": 1}).result(TIMEOUT)
        assert session.shortcut.passed > before + 50
    assert carriers(session) == {"TlsConnection"}


@pytest.mark.parametrize("seed", range(3))
def test_links_that_break_go_on_where_they_were(
    standing: sapwood.Cluster, session: EmbeddedSession, seed: int
) -> None:
    mischief = Mischief(session, seed)
    pids = [place.pid for place in session.supervisor.processes]
    before = session.shortcut.passed
    with passing(standing) as stream:
        for number in range(600):
            if mischief.rng.random() < 0.03:
                mischief.cut()
            size = mischief.rng.choice([1, 1, 50, 40_000])
            value = np.full(size, number)
            total = stream.exchange({"x": value}, timeout=TIMEOUT).total["x"]
            assert np.array_equal(total, AGENTS * value)
    assert session.shortcut.passed > before
    assert [place.pid for place in session.supervisor.processes] == pids


class StruckError(BaseException):
    """What a handler of signals raises."""


def strike(_number: int, frame: FrameType | None) -> None:
    """Raise where TLS is at work; an interrupt of ``threading`` would leave a lock taken."""
    if frame is not None and frame.f_code.co_filename == ssl.__file__:
        raise StruckError


def test_signals_while_tls_is_at_work_lose_nothing(
    standing: sapwood.Cluster, session: EmbeddedSession
) -> None:
    pids = [place.pid for place in session.supervisor.processes]
    struck = number = 0
    with passing(standing) as stream:
        former = signal.signal(signal.SIGALRM, strike)
        try:
            signal.setitimer(signal.ITIMER_REAL, 1e-3, 0.7e-3)
            while struck < 20:
                number += 1
                try:
                    total = stream.exchange({"x": number}, timeout=TIMEOUT).total
                    assert total == {"x": AGENTS * number}
                except StruckError:
                    struck += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, former)
        until(lambda: passes(standing, stream))
    assert [place.pid for place in session.supervisor.processes] == pids


def test_agents_that_are_killed_are_replaced() -> None:
    with several(2, AGENTS, settings=SETTINGS) as cluster:
        session = embedded(cluster.session)
        with passing(cluster) as stream:
            for turn in range(4):
                os.kill(session.supervisor.processes[1 + turn % AGENTS].pid, signal.SIGKILL)
                for number in range(100):
                    total = stream.exchange({"x": number}, timeout=TIMEOUT).total
                    assert total == {"x": AGENTS * number}


def test_without_the_shortcut_the_results_are_the_same() -> None:
    with (
        several(2, AGENTS, settings=Settings(comm=CommSettings(fastpath=False))) as cluster,
        cluster.stream("echo", reduce={"x": "sum"}) as stream,
    ):
        for number in range(50):
            assert stream.exchange({"x": number}, timeout=TIMEOUT).total == {"x": AGENTS * number}
        assert embedded(cluster.session).shortcut.passed == 0
