"""What every transport must do: a suite that any implementation can be put through.

::

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_my_transport(check: Check) -> None:
        with closing(Reactor()) as loop:
            check(Setting(MyTransport(), new_address, loop, loop.run))

On an asyncio loop it is ``Setting(MyTransport(), new_address, loop, loop.run_forever)``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, Self

import msgspec

from sapwood.comm.loop import Loop
from sapwood.comm.transport.base import Connection, Listener, Transport
from sapwood.core.errors import CommunicationError

PATIENCE = 20.0
"""Seconds after which something that did not happen counts as never happening."""


class StoppableLoop(Loop, Protocol):
    """A loop that can be made to return."""

    def stop(self) -> None:
        """Let the loop return after what is being done now."""


class Setting(msgspec.Struct, frozen=True):
    """What a check works with.

    Attributes:
        transport: The transport.
        new_address: Returns an unused address to listen at.
        loop: The loop that the transport is to work on.
        run: Runs the loop until it is stopped; it is called often.
    """

    transport: Transport
    new_address: Callable[[], str]
    loop: StoppableLoop
    run: Callable[[], None]

    def until(self, condition: Callable[[], Any]) -> None:
        """Let the loop run until a condition holds.

        Raises:
            TimeoutError: It did not come to hold.
        """
        deadline = self.loop.time() + PATIENCE

        def look() -> None:
            if condition() or self.loop.time() > deadline:
                self.loop.stop()
            else:
                self.loop.call_later(0.001, look)

        if not condition():
            self.loop.call_soon(look)
            self.run()
            if not condition():
                raise TimeoutError(f"did not happen within {PATIENCE:g} s")


class End:
    """A handler that remembers what happens to its connections."""

    def __init__(self, *, echo: bool = False) -> None:
        self.connections: list[Connection] = []
        self.initiated: list[bool] = []
        self.received: list[bytearray] = []
        self.closed: list[str | None] = []
        self.failures: list[CommunicationError] = []
        self.wrong: list[str] = []
        self._echo = echo

    def connection_opened(self, connection: Connection, *, initiator: bool) -> int:
        """Remember a connection."""
        self.connections.append(connection)
        self.initiated.append(initiator)
        self.received.append(bytearray())
        self.closed.append(None)
        return len(self.connections) - 1

    def bytes_received(self, number: int, data: bytes) -> None:
        """Remember bytes, and send them back if this end echoes."""
        if self.closed[number] is not None:
            self.wrong.append("bytes came after the end of their connection")
        self.received[number] += data
        if self._echo:
            self.connections[number].write([bytes(data)])

    def connection_closed(self, number: int, reason: str) -> None:
        """Remember an end."""
        if self.closed[number] is not None:
            self.wrong.append("the end of a connection was reported twice")
        self.closed[number] = reason


class Pair:
    """A listener and a connection to it."""

    def __init__(self, setting: Setting, *, echo: bool = False) -> None:
        self.setting = setting
        self.here = End()
        self.there = End(echo=echo)
        self.address = ""
        self._listener: Listener | None = None

    def __enter__(self) -> Self:
        setting = self.setting
        self._listener = setting.transport.listen(setting.new_address(), self.there, setting.loop)
        self.address = self._listener.address
        self.connect()
        return self

    def until(self, condition: Callable[[], Any]) -> None:
        """Wait for a condition."""
        self.setting.until(condition)

    def connect(self) -> None:
        """Make one more connection."""
        count = len(self.here.connections)
        connect(self.setting, self.address, self.here)
        self.until(lambda: len(self.here.connections) == len(self.there.connections) == count + 1)

    def __exit__(self, *exc: object) -> None:
        for connection in (*self.here.connections, *self.there.connections):
            connection.abort()
        if self._listener is not None:
            self._listener.close()
        self.until(lambda: None not in self.here.closed + self.there.closed)
        # An exception in a handler would be the loop's, which may only log it.
        wrong = self.here.wrong + self.there.wrong
        assert not wrong, wrong

    def listen_no_more(self) -> None:
        """Close the listener; connections stay."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None


def connect(setting: Setting, address: str, end: End) -> None:
    """Connect a handler, and wait until it knows whether that worked."""
    known = len(end.connections) + len(end.failures)
    setting.transport.connect(address, end, setting.loop, end.failures.append)
    assert len(end.connections) + len(end.failures) == known, "it was called before `connect` ended"
    setting.until(lambda: len(end.connections) + len(end.failures) > known)


def tells_who_connected(setting: Setting) -> None:
    """One side is the initiator, the other is not; each has a name, or an empty one."""
    with Pair(setting) as pair:
        assert pair.here.initiated == [True]
        assert pair.there.initiated == [False]
        for connection in (*pair.here.connections, *pair.there.connections):
            assert isinstance(connection.peer, str)


def keeps_the_order_of_writes(setting: Setting) -> None:
    """Bytes arrive as they were written, whatever the sizes of the buffers."""
    pieces = [bytes([i % 251]) * (i * 37 % 3001) for i in range(400)]
    with Pair(setting) as pair:
        for start in range(0, len(pieces), 7):
            pair.here.connections[0].write([memoryview(p) for p in pieces[start : start + 7]])
        wanted = b"".join(pieces)
        pair.until(lambda: len(pair.there.received[0]) >= len(wanted))
        assert bytes(pair.there.received[0]) == wanted


def carries_both_directions_at_once(setting: Setting) -> None:
    """The received bytes equal the sent ones, while more are being sent."""
    sent = bytes(range(256)) * 4096
    with Pair(setting, echo=True) as pair:
        for start in range(0, len(sent), 65_536):
            pair.here.connections[0].write([sent[start : start + 65_536]])
        pair.until(lambda: len(pair.here.received[0]) >= len(sent))
        assert bytes(pair.here.received[0]) == sent


def carries_large_buffers(setting: Setting) -> None:
    """A buffer of many megabytes arrives whole."""
    sent = bytes(range(256)) * (64 * 1024)
    with Pair(setting) as pair:
        pair.here.connections[0].write([b"head", memoryview(sent)])
        pair.until(lambda: len(pair.there.received[0]) >= len(sent) + 4)
        assert pair.there.received[0][:4] == b"head"
        assert pair.there.received[0][4:] == sent


def sends_what_is_queued_before_closing(setting: Setting) -> None:
    """``close`` loses nothing; both sides hear of the end once."""
    sent = b"x" * 3_000_000
    with Pair(setting) as pair:
        pair.here.connections[0].write([sent])
        pair.here.connections[0].close()
        pair.until(lambda: pair.there.closed[0] is not None)
        assert len(pair.there.received[0]) == len(sent)
        pair.until(lambda: pair.here.closed[0] is not None)


def notices_an_abort(setting: Setting) -> None:
    """``abort`` ends the connection on both sides."""
    with Pair(setting) as pair:
        pair.there.connections[0].abort()
        pair.until(lambda: pair.here.closed[0] is not None)
        pair.until(lambda: pair.there.closed[0] is not None)


def takes_writes_after_the_end(setting: Setting) -> None:
    """Writing to or closing what is closed already does nothing."""
    with Pair(setting) as pair:
        connection = pair.here.connections[0]
        pair.there.connections[0].abort()
        pair.until(lambda: pair.here.closed[0] is not None)
        connection.write([b"too late"])
        connection.close()
        connection.abort()


def keeps_connections_apart(setting: Setting) -> None:
    """Many connections at once, each with its own bytes."""
    with Pair(setting) as pair:
        for _ in range(15):
            pair.connect()
        for number, connection in enumerate(pair.here.connections):
            connection.write([bytes([number]) * 1000])
        received = pair.there.received
        pair.until(lambda: all(len(data) == 1000 for data in received))
        assert sorted({data[0] for data in received}) == list(range(16))
        assert all(len(set(data)) == 1 for data in received)


def says_that_nobody_listens(setting: Setting) -> None:
    """Connecting to an address without listener fails once, with the address and the cause."""
    with Pair(setting) as pair:
        pair.listen_no_more()
        alone = End()
        connect(setting, pair.address, alone)
        setting.loop.call_later(0.05, setting.loop.stop)
        setting.run()
        assert not alone.connections, "a closed listener still accepts"
        (failure,) = alone.failures
        assert failure.where, "the failure does not name the address"
        cause = failure.__cause__
        assert isinstance(cause, ConnectionRefusedError | FileNotFoundError), repr(cause)


def takes_nobody_in_after_it_listens_no_more(setting: Setting) -> None:
    """A closed listener accepts no more; accepted connections continue."""
    with Pair(setting) as pair:
        pair.listen_no_more()
        late = End()
        connect(setting, pair.address, late)
        for connection in late.connections:
            connection.abort()
        setting.until(lambda: None not in late.closed)
        assert late.failures, "a closed listener still accepts"
        pair.here.connections[0].write([b"still there"])
        pair.until(lambda: bytes(pair.there.received[0]) == b"still there")


def listens_again_at_an_address_that_was_given_up(setting: Setting) -> None:
    """A place that is replaced listens where the one before did."""
    with Pair(setting) as pair:
        pair.listen_no_more()
        again = End()
        listener = setting.transport.listen(pair.address, again, setting.loop)
        try:
            late = End()
            connect(setting, pair.address, late)
            setting.until(lambda: again.connections)
            late.connections[0].write([b"again"])
            setting.until(lambda: bytes(again.received[0]) == b"again")
            late.connections[0].abort()
            setting.until(lambda: again.closed[0] is not None and late.closed[0] is not None)
        finally:
            listener.close()
        assert not pair.there.received[1:], "the listener before has taken the connection"


Check = Callable[[Setting], None]

CHECKS: Sequence[Check] = (
    tells_who_connected,
    keeps_the_order_of_writes,
    carries_both_directions_at_once,
    carries_large_buffers,
    sends_what_is_queued_before_closing,
    notices_an_abort,
    takes_writes_after_the_end,
    keeps_connections_apart,
    says_that_nobody_listens,
    takes_nobody_in_after_it_listens_no_more,
    listens_again_at_an_address_that_was_given_up,
)
"""Everything that a transport must do."""
