"""A session whose agents come and go while it runs."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from sapwood.core.errors import AgentLostError, ClosedError, ConfigurationError
from sapwood.core.topology import ROOT
from sapwood.session.embedded import EmbeddedSession
from sapwood.session.expansion import Expansion
from sapwood.session.interface import NewAgent
from sapwood.session.options import PlacesChanged
from sapwood.session.streams import StreamOptions

MakeSession = Callable[..., EmbeddedSession]
Until = Callable[[Callable[[], object]], None]

TIMEOUT = 30.0
FOLLOWS = StreamOptions(follows=True)


def who(session_stream: Any) -> list[int]:
    result = session_stream.exchange({"x": 1}, TIMEOUT)
    assert result.total["x"] == len(result.agents)
    return list(result.agents)


def test_who_waits_for_added_agents_hears_that_the_session_ends(
    make_session: MakeSession, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Expansion, "changed", lambda *_: None)  # they are never there
    session = make_session(1)
    with ThreadPoolExecutor(1) as pool:
        adding = pool.submit(session.expand, [NewAgent(ROOT)])
        until(lambda: session._changes.under_way)
        session.close()
        with pytest.raises(ClosedError, match="closed"):
            adding.result(TIMEOUT)


@pytest.mark.row("C3-SESS-2")
@pytest.mark.parametrize("fanout", [0, 2])
def test_agents_come_and_go_under_a_stream_that_follows(
    make_session: MakeSession, fanout: int
) -> None:
    session = make_session(4, fanout)
    first = session.tree.size
    follows = session.open_stream("echo", {"x": "sum"}, options=FOLLOWS)
    keeps = session.open_stream("echo", {"x": "sum"})
    assert who(follows) == who(keeps) == [1, 2, 3, 4]
    parent = session.tree.parent_for_more()
    assert session.expand([NewAgent(parent), NewAgent(parent)]) == (first, first + 1)
    assert who(follows) == [1, 2, 3, 4, first, first + 1]
    assert who(keeps) == [1, 2, 3, 4]
    assert session.ask(first, "ping", 7).result(TIMEOUT) == 7
    session.contract([2, first])
    assert who(follows) == [1, 3, 4, first + 1]
    with pytest.raises(AgentLostError, match="agent 2 left"):
        who(keeps)
    with pytest.raises(AgentLostError, match="removed"):
        session.ask(first, "ping", 7).result(TIMEOUT)
    assert [one.rank for one in session.processes()] == [1, 3, 4, first + 1]
    (newest,) = session.expand([NewAgent(ROOT)])
    assert newest == first + 2
    assert who(follows) == [1, 3, 4, first + 1, newest]
    assert who(session.open_stream("echo", {"x": "sum"})) == [1, 3, 4, first + 1, newest]


def test_what_changes_is_told(make_session: MakeSession) -> None:
    session = make_session(2, 0)
    told: list[PlacesChanged] = []
    session.subscribe(told.append)
    (rank,) = session.expand([NewAgent()])
    session.contract([1], reason="its machine is wanted elsewhere")
    added, removed = told
    assert (added.ranks, added.agents, added.back, added.added) == ((rank,), (rank,), True, True)
    assert (removed.ranks, removed.removed, removed.for_good) == ((1,), True, True)
    assert removed.reason == "its machine is wanted elsewhere"
    assert (added.epoch, removed.epoch) == (1, 2)


def test_a_session_may_begin_with_nobody(make_session: MakeSession) -> None:
    session = make_session(0, 0)
    follows = session.open_stream("echo", {"x": "sum"}, options=FOLLOWS)
    assert follows.exchange({"x": 1}, TIMEOUT).agents == []
    assert session.expand([NewAgent()]) == (1,)
    assert who(follows) == [1]
    session.contract([1])
    assert follows.exchange({"x": 1}, TIMEOUT).agents == []


def test_what_an_agent_was_asked_before_it_is_removed_is_answered(
    make_session: MakeSession,
) -> None:
    session = make_session(3, 2)
    stream = session.open_stream("echo", {"x": "sum"})
    waves = [stream.broadcast({"x": 1}) for _ in range(20)]
    asked = [session.ask(2, "ping", number) for number in range(20)]
    session.contract([2])
    assert [wave.result(TIMEOUT).agents for wave in waves] == [[1, 2, 3]] * 20
    assert [one.result(TIMEOUT) for one in asked] == list(range(20))


def test_waves_go_on_while_agents_come_and_go(make_session: MakeSession) -> None:
    session = make_session(4, 2)
    stream = session.open_stream("echo", {"x": "sum"}, options=FOLLOWS)
    over = threading.Event()
    waves: list[Future[Any]] = []

    def run() -> None:
        while not over.is_set():
            waves.append(stream.broadcast({"x": 1}))
            waves[-1].result(TIMEOUT)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        for _ in range(4):
            (rank,) = session.expand([NewAgent(session.tree.parent_for_more())])
            session.contract([rank])
    finally:
        over.set()
        thread.join(TIMEOUT)
    for wave in waves:
        result = wave.result(TIMEOUT)
        assert result.total["x"] == len(result.agents) >= 4
        assert not result.missing


def test_a_process_of_an_added_place_is_replaced(make_session: MakeSession, until: Until) -> None:

    session = make_session(2, 0)
    (rank,) = session.expand([NewAgent()])
    (before,) = session.processes([rank])
    os.kill(before.pid, signal.SIGKILL)
    until(
        lambda: (
            session.processes([rank])[0].incarnation == 2 and session.processes([rank])[0].is_ready
        )
    )
    assert session.ask(rank, "ping", 1).result(TIMEOUT) == 1


@pytest.mark.parametrize("place", [NewAgent(1), NewAgent(77), NewAgent(host=3)])
def test_where_no_agent_can_be_is_refused(make_session: MakeSession, place: NewAgent) -> None:
    session = make_session(2, 0)
    with pytest.raises(ConfigurationError):
        session.expand([place])
    assert session.tree.epoch == 0


def test_what_is_no_place_cannot_be_removed(make_session: MakeSession) -> None:
    session = make_session(4, 2)
    for ranks in ([0], [77], [5], []):
        with pytest.raises(ConfigurationError):
            session.contract(ranks)
    assert session.tree.epoch == 0
