"""Connections that a node hands over to a junction."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sapwood.comm.reactor import Reactor
from sapwood.comm.transport.base import Connection
from sapwood.comm.transport.tls import TlsTransport
from sapwood.comm.transport.tls_dial import is_unserved
from sapwood.core.errors import CommunicationError
from sapwood.nodes.port import NodePort
from sapwood.security.authority import Authority, make_request
from sapwood.security.credentials import Credentials
from sapwood.session.between_machines import JunctionPort, MachineLinks, hand_over, protocol_of
from sapwood.session.member import tree_protocol
from sapwood.session.shared_reactor import SharedReactor

PATIENCE = 30.0
TREE = "sapwood-x1"
RANK = 7

AUTHORITY = Authority.create("sw-test")


def credentials(name: str) -> Credentials:
    key, request = make_request()
    return AUTHORITY.issue(request, name, key)


class Side:
    """What becomes of one side's connection."""

    def __init__(self, loop: Reactor) -> None:
        self.loop = loop
        self.connection: Connection | None = None
        self.error: CommunicationError | None = None
        self.closed = False

    def connection_opened(self, connection: Connection, *, initiator: bool) -> int:
        del initiator
        self.connection = connection
        return 1

    def bytes_received(self, number: int, data: bytes) -> None:
        """Nothing is said here."""

    def connection_closed(self, number: int, reason: str) -> None:
        del number, reason
        self.closed = True

    def failed(self, error: CommunicationError) -> None:
        self.error = error


class Node:
    """A node that listens, on the loop of the junction."""

    def __init__(self, folder: Path) -> None:
        self.loop = SharedReactor()
        self.shown = credentials("n1")
        self.port = NodePort("127.0.0.1:0", self.loop, self.shown)
        self.path = str(folder / "7.port")
        self.end = self.port.delegate(TREE, RANK, self.path, lambda: self.shown)
        self.refused: list[str] = []
        self.inside = Side(self.loop)
        self.junction: JunctionPort | None = None

    def begin_junction(self) -> None:
        self.junction = JunctionPort(
            self.path,
            protocol_of(tree_protocol(TREE), RANK),
            self.inside,
            self.loop,
            self.shown,
            lambda _address, reason: self.refused.append(reason),
        )

    @property
    def address(self) -> str:
        return f"tls://{self.shown.node}@{','.join(self.port.addresses)}"

    def dial(self, rank: int = RANK) -> Side:
        side = Side(self.loop)
        links = MachineLinks(credentials("n2"), tree_protocol(TREE), self.loop)
        links.connect(rank, self.address, side, side.failed)
        self.run(lambda: side.connection or side.error)
        return side

    def run(self, until: Callable[[], Any]) -> None:
        def look() -> None:
            if until():
                self.loop.stop()
            else:
                self.loop.call_later(0.001, look)

        look()
        timer = self.loop.call_later(PATIENCE, pytest.fail, "it does not become so")
        self.loop.run()
        timer.cancel()

    def close(self) -> None:
        self.port.close()
        if self.junction is not None:
            self.junction.close()
        self.loop.close()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.close()


def hang_up(node: Node, side: Side) -> None:
    assert side.connection is not None
    side.connection.abort()
    inside = node.inside
    node.run(lambda: inside.closed)


def test_a_connection_reaches_the_junction(node: Node) -> None:
    node.begin_junction()
    side = node.dial()
    node.run(lambda: node.inside.connection)
    assert node.inside.connection is not None
    assert node.inside.connection.peer == "n2.sw-test"
    hang_up(node, side)


def test_who_comes_before_the_junction_is_told_so(node: Node) -> None:
    side = node.dial()
    assert side.error is not None
    assert is_unserved(side.error)
    node.begin_junction()
    hang_up(node, node.dial())


def test_who_comes_after_the_junction_is_told_so(node: Node) -> None:
    node.begin_junction()
    assert node.junction is not None
    node.junction.close()
    side = node.dial()
    assert side.error is not None
    assert is_unserved(side.error)
    node.begin_junction()  # where the one before it was
    hang_up(node, node.dial())


def test_nobody_serves_other_ranks_and_nothing_when_it_is_over(node: Node) -> None:
    node.begin_junction()
    other = node.dial(rank=8)
    assert other.error is not None
    assert is_unserved(other.error)
    node.end()
    side = node.dial()
    assert side.error is not None
    assert is_unserved(side.error)


def test_a_junction_shows_what_its_node_has_now(node: Node) -> None:
    node.begin_junction()
    node.shown = credentials("n1")  # renewed
    side = node.dial()
    node.run(lambda: node.inside.connection)
    assert node.junction is not None
    assert node.junction._shown == node.shown
    hang_up(node, side)


def test_what_is_no_connection_is_dropped(node: Node) -> None:
    node.begin_junction()
    one, other = socket.socketpair()
    with one, other, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as way:
        way.connect(node.path)
        way.send(b"nonsense")
        socket.send_fds(way, [b"nonsense"], [one.fileno()])
        one.close()
        other.settimeout(0)

        def is_dropped() -> bool:
            try:
                return other.recv(1) == b""
            except BlockingIOError:
                return False

        node.run(is_dropped)
    hang_up(node, node.dial())


def test_nobody_takes_what_is_handed_over_where_nobody_is(tmp_path: Path) -> None:
    one, other = socket.socketpair()
    with one, other, pytest.raises(OSError, match="No such file"):
        hand_over(str(tmp_path / "7.port"), one, "peer", credentials("n1"))


def test_a_machine_that_does_not_answer_is_not_one_that_does_not_serve(node: Node) -> None:
    place = node.port.addresses[0]
    node.port.close()
    side = Side(node.loop)
    TlsTransport(credentials("n2"), "x").connect(
        f"tls://n1.sw-test@{place}", side, node.loop, side.failed
    )
    node.run(lambda: side.error)
    assert side.error is not None
    assert not is_unserved(side.error)
