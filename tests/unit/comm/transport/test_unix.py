"""Listening at a path while the process has no descriptors left."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from pathlib import Path

from sapwood.comm.reactor import Reactor
from sapwood.comm.transport.base import Connection
from sapwood.comm.transport.unix import UnixTransport

NoDescriptors = Callable[[], AbstractContextManager[None]]


class Opened:
    """Notes who connects."""

    def __init__(self) -> None:
        self.connections: list[Connection] = []

    def connection_opened(self, connection: Connection, *, initiator: bool) -> int:
        assert not initiator
        self.connections.append(connection)
        return len(self.connections)

    def bytes_received(self, number: int, data: bytes) -> None:
        raise AssertionError((number, data))

    def connection_closed(self, number: int, reason: str) -> None:
        """Nothing is to be done."""


def test_who_connects_waits_until_there_are_descriptors(
    tmp_path: Path, no_descriptors: NoDescriptors
) -> None:
    address = str(tmp_path / "a.sock")
    with closing(Reactor()) as reactor:
        opened, waits = Opened(), 0
        listener = UnixTransport().listen(address, opened, reactor)
        reactor.fileno()
        poll = reactor.wait

        def counted(patience: float) -> list[tuple[int, int]]:
            nonlocal waits
            waits += 1
            return poll(patience)

        def look() -> None:
            if opened.connections:
                reactor.stop()
            else:
                reactor.call_later(0.01, look)

        reactor.idle_hook = counted
        client = socket.socket(socket.AF_UNIX)
        with no_descriptors():
            client.connect(address)
            reactor.call_later(0.3, reactor.stop)
            reactor.run()
            assert not opened.connections
            assert waits < 20
        look()
        reactor.run()
        assert len(opened.connections) == 1
        opened.connections[0].abort()
        listener.close()
        client.close()


def test_a_listener_that_pauses_can_be_closed(
    tmp_path: Path, no_descriptors: NoDescriptors
) -> None:
    address = str(tmp_path / "a.sock")
    with closing(Reactor()) as reactor:
        listener = UnixTransport().listen(address, Opened(), reactor)
        reactor.fileno()
        client = socket.socket(socket.AF_UNIX)
        with no_descriptors():
            client.connect(address)
            reactor.call_later(0.02, reactor.stop)
            reactor.run()
        listener.close()
        reactor.call_later(0.2, reactor.stop)
        reactor.run()
        client.close()


class Connected(Opened):
    """Notes what connects, and stops the loop then."""

    def __init__(self, reactor: Reactor) -> None:
        super().__init__()
        self.reactor = reactor

    def connection_opened(self, connection: Connection, *, initiator: bool) -> int:
        assert initiator
        self.connections.append(connection)
        self.reactor.stop()
        return 1


def test_a_place_that_accepts_nothing_does_not_stop_the_loop_of_others(tmp_path: Path) -> None:
    """Its process may be stopped; what connects to it has other neighbours, too."""
    address = str(tmp_path / "a.sock")
    with closing(Reactor()) as reactor, socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen(0)
        waiting = [socket.socket(socket.AF_UNIX)]
        waiting[0].connect(address)  # its queue is full now
        connected, errors, turns = Connected(reactor), list[Exception](), list[int]()
        UnixTransport().connect(address, connected, reactor, errors.append)

        def turn() -> None:
            turns.append(1)
            if len(turns) == 5:
                waiting.append(listening.accept()[0])
            reactor.call_later(0.01, turn)

        turn()
        reactor.run()
        assert len(connected.connections) == 1
        assert len(turns) >= 5
        assert errors == []
        connected.connections[0].abort()
        for sock in waiting:
            sock.close()
