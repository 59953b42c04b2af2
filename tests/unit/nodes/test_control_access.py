"""Who receives what a node reports of a session, and news of the node."""

from __future__ import annotations

from sapwood.contexts import orders
from sapwood.lifecycle import machine_events as mev
from sapwood.nodes import messages
from sapwood.nodes.control_access import SessionsOnNodes

REPORT = messages.ProcessesReported("day", 7, orders.Spawned(1, 1, 100))
GONE = mev.NotifySessions(2, mev.MachineNews.GONE, "cut off")


class Receiver:
    """Receives reports only."""

    name = "day"
    host = 2

    def __init__(self) -> None:
        self.reports: list[messages.ProcessesReported] = []

    def heard(self, report: messages.ProcessesReported) -> None:
        self.reports.append(report)


class Session(Receiver):
    """Follows the node, too."""

    def __init__(self) -> None:
        super().__init__()
        self.reasons: list[str] = []

    def node_changed(self, *, there: bool, reason: str) -> None:
        assert not there
        self.reasons.append(reason)

    def node_removed(self, reason: str) -> None:
        raise AssertionError(reason)

    def node_given_up(self, reason: str) -> None:
        raise AssertionError(reason)

    def way_lost(self) -> None:
        raise AssertionError

    def way_back(self) -> None:
        raise AssertionError


def test_a_session_receives_reports_and_news_of_its_node() -> None:
    sessions, session = SessionsOnNodes(), Session()
    sessions.join(session)
    sessions.reported(2, messages.to_value(REPORT))
    sessions.reported(3, messages.to_value(REPORT))  # another node
    sessions.notify(GONE)
    assert (session.reports, session.reasons) == ([REPORT], ["cut off"])
    sessions.part(session)
    sessions.reported(2, messages.to_value(REPORT))
    sessions.notify(GONE)
    assert (session.reports, session.reasons) == ([REPORT], ["cut off"])


def test_a_receiver_of_reports_does_not_learn_of_nodes() -> None:
    sessions, receiver = SessionsOnNodes(), Receiver()
    sessions.forward(receiver)
    sessions.notify(GONE)  # it has no method for that
    sessions.reported(2, messages.to_value(REPORT))
    assert (receiver.reports, sessions.on()) == ([REPORT], [])
    sessions.part(receiver)
    sessions.reported(2, messages.to_value(REPORT))
    assert receiver.reports == [REPORT]


def test_the_last_one_that_joined_for_a_session_on_a_node_receives_the_reports() -> None:
    sessions, former, session = SessionsOnNodes(), Receiver(), Session()
    sessions.forward(former)
    sessions.join(session)
    sessions.part(former)  # another one has taken over: it stays
    sessions.reported(2, messages.to_value(REPORT))
    sessions.notify(GONE)
    assert (former.reports, session.reports, session.reasons) == ([], [REPORT], ["cut off"])
