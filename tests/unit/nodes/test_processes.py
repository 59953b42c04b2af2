"""A session's processes on a node, while the way to the node is lost and after it is back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import msgspec
import pytest

from sapwood.contexts import orders
from sapwood.contexts.plan import ZygotePlan
from sapwood.core.errors import CommunicationError, SapwoodError
from sapwood.nodes import messages, processes
from sapwood.nodes.processes import NodeProcesses, PooledNode, SessionOnNode
from sapwood.session.shared_reactor import SharedReactor
from sapwood.session.supervisor import ProcessSetup, TreePort

HOST = 3


class Way:
    """A way to a node that is lost and found as the test says."""

    nodes: Sequence[PooledNode] = ()
    is_over = False
    hint = ""

    def trouble(self) -> str:
        return ""

    def __init__(self) -> None:
        self.is_away = False
        self.ready = True
        self.asked: list[tuple[str, Any, Future[Any]]] = []

    def ask(self, host: int, handler: str, value: Any) -> Future[Any]:
        assert host == HOST
        answer: Future[Any] = Future()
        if self.is_away:
            answer.set_exception(CommunicationError("the head is gone"))
        else:
            self.asked.append((handler, value, answer))
        return answer

    def is_ready(self, host: int) -> bool:
        return host == HOST and self.ready and not self.is_away

    def name_of(self, host: int) -> str:
        return f"node {host}"

    def shown_by_places(self, node: str) -> str:
        return node

    def given_up(self, host: int) -> str:
        del host
        return ""

    def join(self, session: SessionOnNode) -> None:
        """Nothing is reported but by the test."""

    def part(self, session: SessionOnNode) -> None:
        """Nothing is reported but by the test."""

    def open_port(self, loop: SharedReactor) -> TreePort:
        raise NotImplementedError

    def close(self) -> None:
        """It is the test's."""

    def taken(self) -> list[str]:
        """Return what the node was asked for since the last time; it has done all but resuming."""
        asked, self.asked = self.asked, []
        for handler, _, answer in asked:
            if handler != messages.RESUME and not answer.done():
                answer.set_result(None)
        return [handler for handler, _, _ in asked]

    def resumed(self, *living: orders.Spawned) -> None:
        """Answer what lives on the node."""
        ((handler, _, answer),) = self.asked
        assert handler == messages.RESUME
        self.asked = []
        answer.set_result(messages.to_value(messages.ResumedProcesses(list(living))))


class Session:
    """Hears of the processes."""

    def __init__(self, way: Way) -> None:
        self.loop = SharedReactor()
        self.reports: list[orders.Report] = []
        self.ends: list[str] = []
        setup = ProcessSetup(
            "s",
            lambda rank: f"module:place{rank}",
            orders.ConfigureProcesses("", b"", {}),
            ZygotePlan(()),
        )
        self.processes = NodeProcesses(way, HOST, setup, self.reports.append, self.ends.append)
        self.processes.start()
        self.processes.listen(self.loop)

    def heard(self) -> list[orders.Report]:
        """Return what it heard since the last time."""
        self.loop.call_soon(self.loop.stop)
        self.loop.run()
        heard, self.reports[:] = list(self.reports), []
        return heard


@pytest.fixture
def way() -> Way:
    return Way()


@pytest.fixture
def session(way: Way) -> Iterator[Session]:
    made = Session(way)
    made.processes.spawn([spec(1), spec(2)])
    assert way.taken() == [messages.OPEN, messages.SPAWN]
    yield made
    made.processes.detach()
    made.loop.close()


def spec(rank: int, incarnation: int = 1) -> orders.ProcessSpec:
    return orders.ProcessSpec(f"module:place{rank}", rank, incarnation)


def lose(way: Way, session: Session) -> None:
    way.is_away = True
    session.processes.way_lost()


def find(way: Way, session: Session) -> None:
    way.is_away = False
    session.processes.way_back()


class BusyWay(Way):
    """A way on which another thread gives an order while the session is opened or resumed."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], None] | None = None

    def ask(self, host: int, handler: str, value: Any) -> Future[Any]:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return super().ask(host, handler, value)


def test_no_order_of_another_thread_comes_before_the_session_is_open() -> None:
    """It was refused, and counted as a failure of all places of the node."""
    way = BusyWay()
    way.ready = False
    session = Session(way)
    session.processes.spawn([orders.ProcessSpec("", 1, 1)])
    way.ready = True
    way.meanwhile = lambda: session.processes.spawn([orders.ProcessSpec("", 2, 1)])
    session.processes.node_changed(there=True, reason="")
    assert way.taken() == [messages.OPEN, messages.SPAWN, messages.SPAWN]
    session.processes.way_lost()
    session.processes.spawn([orders.ProcessSpec("", 3, 1)])
    session.processes.way_back()
    way.meanwhile = lambda: session.processes.kill(7)
    way.resumed()
    assert way.taken() == [messages.SPAWN, messages.KILL]
    session.loop.close()


def test_orders_wait_while_the_way_is_lost(way: Way, session: Session) -> None:
    lose(way, session)
    session.processes.kill(41)
    session.processes.reconfigure(b"other")
    session.processes.spawn([spec(1, 2)])
    assert way.taken() == []
    find(way, session)
    way.resumed(orders.Spawned(2, 1, 42))
    assert way.taken() == [messages.KILL, messages.CONFIGURE, messages.SPAWN]
    assert session.heard() == [orders.Spawned(2, 1, 42)]
    assert session.ends == []


def test_what_ended_meanwhile_is_told(way: Way, session: Session) -> None:
    lose(way, session)
    find(way, session)
    way.resumed(orders.Spawned(1, 1, 41))
    alive, ended = session.heard()
    assert alive == orders.Spawned(1, 1, 41)
    assert isinstance(ended, orders.Exited)
    assert (ended.rank, ended.incarnation) == (2, 1)


@pytest.mark.parametrize(
    ("give", "again"),
    [
        (lambda one: one.kill(41), [messages.KILL]),
        (lambda one: one.reconfigure(b"x"), [messages.CONFIGURE]),
        (lambda one: one.spawn([spec(1, 2)]), []),  # whether it has started is unknown
    ],
)
def test_an_order_that_was_lost_is_given_again_if_it_may_be(
    way: Way, session: Session, give: Callable[[NodeProcesses], None], again: list[str]
) -> None:
    give(session.processes)
    ((_, _, answer),) = way.asked
    way.asked = []
    way.is_away = True
    answer.set_exception(CommunicationError("the head is gone"))
    session.processes.way_lost()
    find(way, session)
    way.resumed(orders.Spawned(1, 1, 41), orders.Spawned(2, 1, 42))
    assert way.taken() == again
    ended = [one for one in session.heard() if isinstance(one, orders.Exited)]
    assert [(one.rank, one.incarnation) for one in ended] == ([] if again else [(1, 2)])


def test_the_way_may_be_lost_while_a_node_is_asked_what_lives(way: Way, session: Session) -> None:
    lose(way, session)
    find(way, session)
    ((_, _, answer),) = way.asked
    way.asked = []
    way.is_away = True
    answer.set_exception(CommunicationError("the head is gone"))
    session.processes.way_lost()
    find(way, session)
    way.resumed(orders.Spawned(1, 1, 41), orders.Spawned(2, 1, 42))
    assert session.heard() == [orders.Spawned(1, 1, 41), orders.Spawned(2, 1, 42)]
    assert session.ends == []


def test_a_node_that_comes_back_later_is_asked_then(way: Way, session: Session) -> None:
    way.ready = False
    lose(way, session)
    find(way, session)
    assert way.asked == []
    way.ready = True
    session.processes.node_changed(there=True, reason="")
    way.resumed(orders.Spawned(1, 1, 41), orders.Spawned(2, 1, 42))
    assert len(session.heard()) == 2


def test_a_node_that_has_nothing_of_the_session_has_lost_it(way: Way, session: Session) -> None:
    lose(way, session)
    find(way, session)
    ((_, _, answer),) = way.asked
    answer.set_exception(SapwoodError("nothing of the session s is on this node any more"))
    session.heard()
    assert session.ends == ["node 3: nothing of the session s is on this node any more"]


def test_a_node_that_does_not_come_back_is_lost(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sapwood.nodes.processes.RETURN_TIMEOUT", 0.0)
    session = Session(way)
    way.ready = False
    lose(way, session)
    find(way, session)
    for _ in range(1000):
        if not session.ends:
            session.heard()
    assert session.ends == ["the node node 3 did not come back to its head"]
    session.processes.detach()
    session.loop.close()


def test_reports_are_what_they_were(way: Way) -> None:
    del way
    told = messages.ResumedProcesses([orders.Spawned(1, 2, 3)])
    assert messages.from_value(messages.to_value(told), messages.ResumedProcesses) == told
    with pytest.raises(SapwoodError):
        messages.from_value(msgspec.msgpack.encode({"living": 1}), messages.ResumedProcesses)


def test_nodes_that_do_not_answer_have_one_deadline(
    way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "CLOSE_TIMEOUT", 0.3)
    sessions = [Session(way) for _ in range(4)]
    way.taken()
    began = time.monotonic()
    for session in sessions:
        session.processes.detach()
    for session in sessions:
        session.processes.close()  # nothing answers
        session.loop.close()
    assert 0.3 <= time.monotonic() - began < 0.9
    assert [handler for handler, _, _ in way.asked] == [messages.CLOSE] * 4
