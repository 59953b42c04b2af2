"""Agents of another session as the starters of places: asked to join and to leave."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sapwood.comm.link import LinkTiming
from sapwood.comm.place_keys import PlaceKeys
from sapwood.comm.reactor import Reactor
from sapwood.contexts import orders
from sapwood.core.errors import AgentLostError, CommunicationError, ProtocolError
from sapwood.core.topology import flat
from sapwood.session.agent import JOIN, LEAVE, Agent
from sapwood.session.member import MemberConfiguration
from sapwood.session.options import PlacesChanged
from sapwood.session.secondary_tree import SecondaryPlace, SharedAgentStarter


class Loop:
    """Calls at once what comes from other threads."""

    def call_soon_threadsafe(self, function: Callable[..., Any], *args: Any) -> None:
        function(*args)


class Base:
    """The session that the agents belong to: answers when a test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, str, Future[Any]]] = []
        self.tell: Callable[[PlacesChanged], None] = lambda change: None
        self.ready = True
        record = SimpleNamespace(is_ready=True)
        self.record = record
        self.supervisor = SimpleNamespace(processes={1: record, 2: record}, zygote_pid=99)

    def ask(self, rank: int, handler: str, _value: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.asked.append((rank, handler, future))
        return future

    def subscribe(self, listener: Callable[[PlacesChanged], None]) -> Callable[[], None]:
        self.tell = listener
        return lambda: None

    def answer(self, handler: str, result: Any) -> None:
        """Answer the oldest question of a handler."""
        found = next(entry for entry in self.asked if entry[1] == handler)
        self.asked.remove(found)
        if isinstance(result, Exception):
            found[2].set_exception(result)
        else:
            found[2].set_result(result)


class House:
    """SharedAgentStarter, and what they reported."""

    def __init__(self) -> None:
        self.base = Base()
        self.reports: list[Any] = []
        self.hosts = SharedAgentStarter(
            cast("Any", self.base), "tree", lambda _rank: b"", self.reports.append
        )
        self.hosts.start()
        self.hosts.spawn([orders.ProcessSpec("", 1, 1)])

    def begin(self) -> None:
        self.hosts.listen(cast("Any", Loop()))

    def join(self) -> None:
        self.begin()
        self.base.answer(JOIN, 501)
        self.reports.clear()


@pytest.fixture
def house() -> House:
    return House()


def lost(*ranks: int, disconnected: bool = False) -> PlacesChanged:
    """Return the news that places are gone."""
    return PlacesChanged(ranks, ranks, back=False, reason="killed", disconnected=disconnected)


def back(*ranks: int) -> PlacesChanged:
    """Return the news that places are there."""
    return PlacesChanged(ranks, ranks, back=True)


def test_nobody_is_asked_before_there_is_a_loop(house: House) -> None:
    assert not house.base.asked
    house.begin()
    assert [entry[:2] for entry in house.base.asked] == [(1, JOIN)]


def test_who_joins_is_reported_with_its_process(house: House) -> None:
    house.begin()
    house.base.answer(JOIN, 501)
    assert house.reports == [orders.Spawned(1, 1, 501)]


def test_a_lost_process_is_reported_and_the_next_one_is_asked_when_it_is_there(
    house: House,
) -> None:
    house.join()
    house.base.record.is_ready = False
    house.base.tell(lost(1))
    assert house.reports == [orders.Exited(1, 1, 501, 0, "killed")]
    house.hosts.spawn([orders.ProcessSpec("", 1, 2)])
    house.base.answer(JOIN, AgentLostError("agent 1 is gone"))
    assert not house.base.asked
    house.base.tell(back(1))
    house.base.answer(JOIN, 502)
    assert house.reports[1:] == [orders.Spawned(1, 2, 502)]


def test_an_agent_that_is_only_adrift_stays(house: House) -> None:
    house.join()
    house.base.tell(lost(1, disconnected=True))
    assert not house.reports


def test_who_was_back_before_the_refusal_came_is_asked_again(house: House) -> None:
    house.begin()
    house.base.answer(JOIN, AgentLostError("agent 1 is gone"))
    assert [entry[:2] for entry in house.base.asked] == [(1, JOIN)]


def test_a_kill_asks_to_leave_and_reports_once(house: House) -> None:
    house.join()
    house.hosts.kill(501)
    assert [entry[:2] for entry in house.base.asked] == [(1, LEAVE)]
    house.base.tell(lost(1))
    house.base.answer(LEAVE, AgentLostError("agent 1 is gone"))
    assert [type(report) for report in house.reports] == [orders.Exited]


def test_another_incarnation_that_is_wanted_meanwhile_is_asked_next(house: House) -> None:
    house.begin()
    house.hosts.spawn([orders.ProcessSpec("", 1, 2)])
    house.base.answer(JOIN, 501)
    house.base.answer(JOIN, 501)
    assert house.reports == [orders.Spawned(1, 1, 501), orders.Spawned(1, 2, 501)]


def test_a_refusal_is_reported(house: House) -> None:
    house.begin()
    house.base.answer(JOIN, ProtocolError("no request handler 'tree.join'"))
    assert isinstance(house.reports[0], orders.SpawnFailed)
    assert "no request handler" in house.reports[0].reason


def test_nothing_is_reported_after_the_end(house: House) -> None:
    house.begin()
    house.hosts.detach()
    house.base.answer(JOIN, 501)
    assert not house.reports


class Dialled:
    """A transport that connects when a test says so."""

    def __init__(self) -> None:
        self.failures: list[Callable[[CommunicationError], None]] = []

    def connect(self, _address: str, _handler: Any, _loop: Any, failed: Any) -> None:
        self.failures.append(failed)


def test_a_place_that_has_left_seeks_no_parent_any_more() -> None:
    """A try to connect that is under way ends without a trace, and so does one that waits."""
    configuration = MemberConfiguration(
        cluster="further",
        folder="/nowhere",
        keys=PlaceKeys(),
        machine="",
        tree=flat(1),
        timing=LinkTiming(),
        inline_limit=0,
    )
    with closing(Reactor()) as loop:
        host = cast("Agent", SimpleNamespace(rank=1, loop=loop))
        ends: list[bool] = []
        place = SecondaryPlace(configuration, 1, host, lambda: ends.append(True))
        dialled = Dialled()
        place._near = cast("Any", dialled)
        place.begin()
        assert len(dialled.failures) == 1
        place.end()
        dialled.failures[0](CommunicationError("cannot connect"))
        place._try_to_reach(0)
        assert len(dialled.failures) == 1
        assert ends == [True]
