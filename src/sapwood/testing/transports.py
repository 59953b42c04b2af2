"""What every transport must do: a suite that any implementation can be put through.

::

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_my_transport(check: Check) -> None:
        asyncio.run(check(Setting(MyTransport(), new_address)))
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Self

import msgspec

from sapwood.comm.transport.base import Connection, Listener, Transport
from sapwood.core.errors import CommunicationError

PATIENCE = 20.0
"""Seconds after which something that did not happen counts as never happening."""


class Setting(msgspec.Struct, frozen=True):
    """What a check works with.

    Attributes:
        transport: The transport.
        new_address: Returns an address that nobody uses.
        bound: Returns where a listener can be reached, given the address it was asked for.
    """

    transport: Transport
    new_address: Callable[[], str]
    bound: Callable[[Listener, str], str] = lambda _listener, address: address


class End:
    """A handler that remembers what happens to its connections."""

    def __init__(self, *, echo: bool = False) -> None:
        self.connections: list[Connection] = []
        self.initiated: list[bool] = []
        self.received: list[bytearray] = []
        self.closed: list[str | None] = []
        self.wrong: list[str] = []
        self._echo = echo
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    def connection_opened(self, connection: Connection, *, initiator: bool) -> int:
        """Remember a connection."""
        self.connections.append(connection)
        self.initiated.append(initiator)
        self.received.append(bytearray())
        self.closed.append(None)
        self._notify()
        return len(self.connections) - 1

    def bytes_received(self, number: int, data: bytes) -> None:
        """Remember bytes, and send them back if this end echoes."""
        if self.closed[number] is not None:
            self.wrong.append("bytes came after the end of their connection")
        self.received[number] += data
        if self._echo:
            self.connections[number].write([bytes(data)])
        self._notify()

    def connection_closed(self, number: int, reason: str) -> None:
        """Remember an end."""
        if self.closed[number] is not None:
            self.wrong.append("the end of a connection was told twice")
        self.closed[number] = reason
        self._notify()

    async def until(self, condition: Callable[[], Any]) -> None:
        """Wait for a condition."""
        async with asyncio.timeout(PATIENCE), self._changed:
            await self._changed.wait_for(condition)

    def _notify(self) -> None:
        async def wake() -> None:
            async with self._changed:
                self._changed.notify_all()

        task = asyncio.get_running_loop().create_task(wake())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class Pair:
    """A listener and a connection to it."""

    def __init__(self, setting: Setting, *, echo: bool = False) -> None:
        self.setting = setting
        self.here = End()
        self.there = End(echo=echo)
        self.address = ""
        self._listener: Listener | None = None

    async def __aenter__(self) -> Self:
        wanted = self.setting.new_address()
        self._listener = await self.setting.transport.listen(wanted, self.there)
        self.address = self.setting.bound(self._listener, wanted)
        await self.connect()
        return self

    async def connect(self) -> None:
        """Make one more connection."""
        count = len(self.here.connections)
        await self.setting.transport.connect(self.address, self.here)
        await self.here.until(lambda: len(self.here.connections) == count + 1)
        await self.there.until(lambda: len(self.there.connections) == count + 1)

    async def __aexit__(self, *exc: object) -> None:
        for connection in (*self.here.connections, *self.there.connections):
            connection.abort()
        if self._listener is not None:
            self._listener.close()
        await self.here.until(lambda: None not in self.here.closed)
        await self.there.until(lambda: None not in self.there.closed)
        # An exception in a handler would be the loop's, which only logs it.
        assert not self.here.wrong + self.there.wrong, self.here.wrong + self.there.wrong

    def listen_no_more(self) -> None:
        """Close the listener; connections stay."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None


async def tells_who_connected(setting: Setting) -> None:
    """One side is the initiator, the other is not."""
    async with Pair(setting) as pair:
        assert pair.here.initiated == [True]
        assert pair.there.initiated == [False]


async def keeps_the_order_of_writes(setting: Setting) -> None:
    """Bytes arrive as they were written, whatever the sizes of the buffers."""
    pieces = [bytes([i % 251]) * (i * 37 % 3001) for i in range(400)]
    async with Pair(setting) as pair:
        for start in range(0, len(pieces), 7):
            pair.here.connections[0].write([memoryview(p) for p in pieces[start : start + 7]])
        wanted = b"".join(pieces)
        await pair.there.until(lambda: len(pair.there.received[0]) >= len(wanted))
        assert bytes(pair.there.received[0]) == wanted


async def carries_both_directions_at_once(setting: Setting) -> None:
    """What comes back is what was sent, while more is being sent."""
    sent = bytes(range(256)) * 4096
    async with Pair(setting, echo=True) as pair:
        for start in range(0, len(sent), 65_536):
            pair.here.connections[0].write([sent[start : start + 65_536]])
        await pair.here.until(lambda: len(pair.here.received[0]) >= len(sent))
        assert bytes(pair.here.received[0]) == sent


async def carries_large_buffers(setting: Setting) -> None:
    """A buffer of many megabytes arrives whole."""
    sent = bytes(range(256)) * (64 * 1024)
    async with Pair(setting) as pair:
        pair.here.connections[0].write([b"head", memoryview(sent)])
        await pair.there.until(lambda: len(pair.there.received[0]) >= len(sent) + 4)
        assert pair.there.received[0][:4] == b"head"
        assert pair.there.received[0][4:] == sent


async def sends_what_is_queued_before_closing(setting: Setting) -> None:
    """``close`` loses nothing; both sides hear of the end once."""
    sent = b"x" * 3_000_000
    async with Pair(setting) as pair:
        pair.here.connections[0].write([sent])
        pair.here.connections[0].close()
        await pair.there.until(lambda: pair.there.closed[0] is not None)
        assert len(pair.there.received[0]) == len(sent)
        await pair.here.until(lambda: pair.here.closed[0] is not None)


async def notices_an_abort(setting: Setting) -> None:
    """``abort`` ends the connection on both sides."""
    async with Pair(setting) as pair:
        pair.there.connections[0].abort()
        await pair.here.until(lambda: pair.here.closed[0] is not None)
        await pair.there.until(lambda: pair.there.closed[0] is not None)


async def takes_writes_after_the_end(setting: Setting) -> None:
    """Writing to or closing what is closed already does nothing."""
    async with Pair(setting) as pair:
        connection = pair.here.connections[0]
        pair.there.connections[0].abort()
        await pair.here.until(lambda: pair.here.closed[0] is not None)
        connection.write([b"too late"])
        connection.close()
        connection.abort()


async def keeps_connections_apart(setting: Setting) -> None:
    """Many connections at once, each with its own bytes."""
    async with Pair(setting) as pair:
        for _ in range(15):
            await pair.connect()
        for number, connection in enumerate(pair.here.connections):
            connection.write([bytes([number]) * 1000])
        received = pair.there.received
        await pair.there.until(lambda: all(len(data) == 1000 for data in received))
        assert sorted({data[0] for data in received}) == list(range(16))
        assert all(len(set(data)) == 1 for data in received)


async def says_that_nobody_listens(setting: Setting) -> None:
    """Connecting to nobody is a CommunicationError."""
    told = ""
    try:
        await setting.transport.connect(setting.new_address(), End())
    except CommunicationError as error:
        told = error.where
    assert told, "no CommunicationError that names the address"


async def takes_nobody_in_after_it_listens_no_more(setting: Setting) -> None:
    """A closed listener accepts no more; connections that it has accepted go on."""
    async with Pair(setting) as pair:
        pair.listen_no_more()
        late = End()
        refused = False
        try:
            await setting.transport.connect(pair.address, late)
        except CommunicationError:
            refused = True
        else:
            await pair.there.until(lambda: len(pair.there.connections) == 2)
            late.connections[0].abort()
            await late.until(lambda: late.closed[0] is not None)
        assert refused, "a listener that is closed still accepts"
        pair.here.connections[0].write([b"still there"])
        await pair.there.until(lambda: bytes(pair.there.received[0]) == b"still there")


Check = Callable[[Setting], Awaitable[None]]

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
)
"""Everything that a transport must do."""
