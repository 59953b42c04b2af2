"""A snapshot does not wait for nodes, and asks a bounded number of them each time."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from sapwood.core.errors import NodeLostError
from sapwood.head.snapshot import LEAST_AGE, MAX_ASKED, PATIENCE, NodeSnapshots
from sapwood.nodes import messages


def activity(load: float) -> bytes:
    daemon = messages.ProcessActivity(pid=1, since=0.0, memory=0)
    return messages.to_value(
        messages.NodeActivity(clock=0.0, daemon=daemon, sessions=[], commands=[], load=load)
    )


class Nodes:
    """Nodes that answer when a test wants them to."""

    def __init__(self) -> None:
        self.now = 100.0
        self.open: dict[int, Future[Any]] = {}
        self.snapshots = NodeSnapshots(self.ask, lambda: self.now)

    def ask(self, host: int) -> Future[Any]:
        if host == 13:
            raise NodeLostError("it is gone")
        self.open[host] = Future()
        return self.open[host]

    def answer(self, host: int, load: float) -> None:
        self.open.pop(host).set_result(activity(load))


def test_all_nodes_have_their_turn_a_bounded_number_at_a_time() -> None:
    nodes = Nodes()
    hosts = list(range(100, 100 + 3 * MAX_ASKED))
    asked: list[int] = []
    for _ in range(3):
        found = nodes.snapshots.look(hosts)
        assert len(found) == MAX_ASKED
        asked += found
    assert sorted(asked) == hosts
    assert nodes.snapshots.look(hosts) == []  # all of them have been asked


def test_who_has_answered_is_asked_again_when_that_is_old() -> None:
    nodes = Nodes()
    nodes.snapshots.look([1, 2])
    nodes.answer(1, 0.7)
    said = nodes.snapshots.said(1)
    assert said is not None
    assert said.load == 0.7
    assert nodes.snapshots.said(2) is None
    assert nodes.snapshots.look([1, 2]) == []
    nodes.now += LEAST_AGE
    assert nodes.snapshots.look([1, 2]) == [1]
    nodes.now += PATIENCE
    assert nodes.snapshots.look([1, 2]) == [2, 1]


def test_nodes_that_are_gone_are_forgotten_and_late_answers_with_them() -> None:
    nodes = Nodes()
    nodes.snapshots.look([1, 13])
    nodes.snapshots.look([13])
    nodes.answer(1, 0.5)
    assert nodes.snapshots.said(1) is None
    assert nodes.snapshots.said(13) is None
    nodes.now += LEAST_AGE
    assert nodes.snapshots.look([13]) == [13]
