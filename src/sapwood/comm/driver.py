"""The driver of a node: what a process adds to the protocol, which is I/O and time.

Bytes of a transport go into the link table (``links.py``), which runs the protocol, sends, and
hands effects to the layer above. The driver reads the clock, ticks, watches the processes of
peers, and makes broken connections anew (:func:`reconnect`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from sapwood.comm import events as ev
from sapwood.comm.link_figures import LinkFigures
from sapwood.comm.links import Handlers, LinkTable
from sapwood.comm.loop import Loop, Timer
from sapwood.comm.node import Node
from sapwood.comm.shared_memory import MappedBlocks
from sapwood.comm.transport.base import Connection, ConnectionHandler, Failed
from sapwood.core.errors import CommunicationError, SapwoodError
from sapwood.core.failures import as_error, fail, log_failure

PAUSE = 0.005
"""Seconds before the second try to reconnect; each later one waits that much longer."""

MAX_PAUSE = 0.25
"""Seconds between two tries to reconnect at most."""

Reconnect = Callable[[int, int], None]
"""``reconnect(link, attempt)`` begins to make the connection of a link anew."""


FailureHandlers = Mapping[type[ev.Effect], Callable[[Any, SapwoodError], None]]
"""By effect: fails what an effect was for whose handler raised an unexpected exception."""

NO_FAILURE_HANDLERS: FailureHandlers = {}


class EndWatch(Protocol):
    """Tells of the end of a process."""

    def __call__(self, pid: int, ended: Callable[[], None]) -> Callable[[], None]:
        """Have ``ended`` called once the process is gone, perhaps at once.

        Returns:
            A function that ends the watch.
        """


class NodeDriver:
    """Drives a node and its link table: events, bytes and time in.

    Args:
        node: The protocol core.
        handlers: What to do with the effects that are not about connections.
        loop: The event loop; all calls happen on its thread.
        on_problem: Told what was wrong with a peer that broke the protocol.
        reconnect: Makes the connection to the parent anew, with :meth:`resumption`; without it
            a broken connection to the parent is its loss.
        watch: Tells of the end of processes of this machine.
        on_failure: By effect: receives one whose handler raised an unexpected exception, and the
            error, and fails what it was for.
        log: Receives what was being done, and the unexpected exception.

    Attributes:
        node: The protocol core.
        links: The link table.
        channels: The channels of the link table.
        blocks: Memory of others that is mapped here.
    """

    def __init__(
        self,
        node: Node,
        handlers: Handlers,
        loop: Loop,
        on_problem: Callable[[str], None],
        reconnect: Reconnect | None = None,
        watch: EndWatch | None = None,
        on_failure: FailureHandlers = NO_FAILURE_HANDLERS,
        log: Callable[[str, BaseException], None] = log_failure,
    ) -> None:
        self.node = node
        self.blocks = MappedBlocks()
        self.problem = on_problem
        self._on_failure = on_failure
        self._log = log
        self._loop = loop
        self._reconnect = reconnect
        self._watch = watch or ProcessWatch(loop)
        self.links = LinkTable(
            node,
            {**handlers, ev.Wake: self._wake},
            self,
            self.blocks,
            reconnects=reconnect is not None,
        )
        self.channels = self.links.channels
        self._closed = False
        self._timer: Timer | None = None

    def start(self) -> None:
        """Begin to tick: there is nothing to do yet."""
        self._timer = self._loop.call_later(self.node.timing.heartbeat / 2, self._beat)

    def _beat(self) -> None:
        self.start()  # first: it beats on, whatever a tick raises
        self.tick()

    def tick(self) -> None:
        """Run the periodic work of links and node; release memory that peers no longer use."""
        self.blocks.forget_gone()
        self.links.tick(self._loop.time())

    def figures(self) -> list[LinkFigures]:
        """Return what is known of each link to a neighbour."""
        return self.links.figures(self._loop.time())

    def post(self, event: ev.Event) -> None:
        """Give the node an event and do what it wants done."""
        self.links.step(self._loop.time(), event)

    def close(self) -> None:
        """End all links at once; a connection that opens later is aborted."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self.links.close()
        self.blocks.forget()
        self.node.forget()

    # --- what a transport tells ------------------------------------------------------------------

    def connection_opened(self, connection: Connection, *, initiator: bool) -> int:
        """Take a new connection in and return a number for it."""
        if self._closed:
            connection.abort()  # it was on its way when this place ended
            return -1
        return self.links.opened(self._loop.time(), connection, initiator=initiator)

    def bytes_received(self, number: int, data: bytes) -> None:
        """Take bytes in; a peer that breaks the protocol is cut off."""
        self.links.receive(self._loop.time(), number, data)

    def connection_closed(self, number: int, reason: str) -> None:
        """Record that a connection ended; its link may continue over another one."""
        self.links.closed(self._loop.time(), number, reason)

    def resumption(self, link: int) -> ConnectionHandler:
        """Return the handler of a new connection over which a broken link continues."""
        return _Resumption(self, link)

    def give_up(self, link: int, reason: str) -> None:
        """End a broken link: the peer no longer listens."""
        self.links.give_up(self._loop.time(), link, reason)

    def cut(self, link: int, reason: str) -> None:
        """End a link at once, as if its process had ended."""
        self.links.cut(self._loop.time(), link, reason)

    # --- what the link table asks for ------------------------------------------------------------

    def reconnect(self, link: int, attempt: int) -> None:
        """Begin to make a new connection for a broken link."""
        if self._reconnect is not None:
            self._reconnect(link, attempt)

    def watch(self, link: int, pid: int) -> Callable[[], None]:
        """Tell the link table of the end of a process."""
        return self._watch(pid, partial(self._process_ended, link))

    def failed(self, doing: str, exception: BaseException, effect: ev.Effect | None) -> None:
        """Log an unexpected exception, and fail what an effect was for."""
        self._log(f"rank {self.node.rank}: {doing}", exception)
        handler = self._on_failure.get(type(effect)) if effect is not None else None
        if handler is not None:
            fail(doing, handler, effect, as_error(exception, doing))

    def _process_ended(self, link: int) -> None:
        self.links.process_ended(self._loop.time(), link)

    def _wake(self, effect: ev.Wake) -> None:
        self._loop.call_later(effect.seconds, self.post, ev.TimeUp(effect.stream))


class _Resumption:
    """The handler of a new connection over which a broken link continues."""

    def __init__(self, driver: NodeDriver, link: int) -> None:
        self._links = driver.links
        self._link = link
        self.bytes_received = driver.bytes_received
        self.connection_closed = driver.connection_closed

    def connection_opened(self, connection: Connection, *, initiator: bool) -> int:
        """Send which link the new connection continues."""
        assert initiator, "only the side that opened the connection resumes a link"  # noqa: S101
        return self._links.reconnected(self._link, connection)


def reconnect(
    driver: NodeDriver,
    link: int,
    attempt: int,
    connect: Callable[[ConnectionHandler, Failed], None],
    loop: Loop,
) -> None:
    """Reconnect: try until a broken link has a connection again, or has ended.

    It has ended when the peer no longer listens, when its process is known to have ended, or when
    the grace time is over; the last two are the link table's business.

    Args:
        driver: The driver of this place.
        link: The link.
        attempt: Connections for it that broke before the link continued.
        connect: Connects a handler to the peer's address, or tells that it failed.
        loop: Waits between the tries.
    """
    handler = driver.resumption(link)
    tries = attempt

    def begin() -> None:
        if driver.links.is_broken(link):
            connect(handler, failed)

    def failed(error: CommunicationError) -> None:
        nonlocal tries
        if isinstance(error.__cause__, ConnectionRefusedError | FileNotFoundError):
            driver.give_up(link, error.what)
            return
        tries += 1
        loop.call_later(min(MAX_PAUSE, PAUSE * tries), begin)

    if attempt:
        loop.call_later(min(MAX_PAUSE, PAUSE * attempt), begin)
    else:
        begin()


class ProcessWatch:
    """Watches processes of this machine through ``pidfd_open``: the kernel tells, also of zombies.

    Args:
        loop: Waits for the kernel.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def __call__(self, pid: int, ended: Callable[[], None]) -> Callable[[], None]:
        """Have ``ended`` called once the process is gone; see :class:`EndWatch`."""
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            ended()
            return _nothing
        except OSError:  # no more descriptors: then time decides
            return _nothing

        watching = [fd]

        def end() -> None:
            while watching:
                self._loop.remove_reader(watching[0])
                os.close(watching.pop())

        def readable() -> None:
            end()
            ended()

        self._loop.add_reader(fd, readable)
        return end


def _nothing() -> None:
    pass
