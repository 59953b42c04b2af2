"""The connection of a client with a head: calls, and notices of the head."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from typing import Any, ParamSpec, Protocol, TypeVar

import msgspec

from sapwood.comm.framing import Buffers
from sapwood.comm.loop import Loop
from sapwood.comm.transport.base import Connection, ConnectionHandler, Failed
from sapwood.comm.transport.unix import UnixTransport
from sapwood.core.errors import (
    ClosedError,
    CommunicationError,
    ProtocolError,
    SapwoodError,
    SecurityError,
)
from sapwood.core.futures import CallerFuture, wait_for_peer
from sapwood.core.hints import DEFAULT_CLUSTER, command, naming
from sapwood.head.folder import find_head
from sapwood.head.protocol.call import HeadCall
from sapwood.head.protocol.framing import (
    Notice,
    Reply,
    ServiceCall,
    packed,
    raw,
    reader_of_answers,
)
from sapwood.head.protocol.greeting import CUT_OFF
from sapwood.session.loop_thread import LoopThread

SCHEME = "sapwood://"
"""How the address of a head on another machine begins."""

CONNECT_TIMEOUT = 5.0
"""Seconds in which a head answers a client that comes."""

CALL_TIMEOUT = 30.0
"""Seconds that a head may take for what it does at once."""

P = ParamSpec("P")
R = TypeVar("R")

Read = Callable[[msgspec.Raw], Any]
"""Reads an answer; it raises :class:`ProtocolError` if that is malformed."""


class WayToHead(Protocol):
    """How a client reaches a head.

    Attributes:
        address: Where the head is, for messages.
        cluster: What the user calls the cluster.
    """

    address: str
    cluster: str

    def open(self, handler: ConnectionHandler, loop: Loop, failed: Failed) -> None:
        """Connect, on the loop's thread; one of handler and ``failed`` hears of it."""


class UnixWay:
    """The way to a head on this machine.

    Args:
        address: Its socket.
        cluster: What the user calls the cluster.
    """

    def __init__(self, address: str, cluster: str = DEFAULT_CLUSTER) -> None:
        self.address = address
        self.cluster = cluster

    def open(self, handler: ConnectionHandler, loop: Loop, failed: Failed) -> None:
        """Connect."""
        UnixTransport().connect(self.address, handler, loop, failed)


class ServiceClient:
    """A connection to a head.

    Args:
        way: How it is reached.
        noticed: Receives notices, on a separate thread: ``noticed(name, value)``.
        ended: Told why the connection ended, if it was not closed here.

    Raises:
        CommunicationError: No process answers there in time.
    """

    def __init__(
        self,
        way: WayToHead,
        noticed: Callable[[str, Any], None] | None = None,
        ended: Callable[[str], None] | None = None,
    ) -> None:
        self._address = way.address
        self._cluster = way.cluster
        self._cut_off = ""
        self._noticed = noticed or _nobody
        self._on_end = ended
        self._numbers = itertools.count(1)
        self._open: dict[int, tuple[Future[Any], Read]] = {}
        self._reader = reader_of_answers()
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._over = ""
        self._thread = LoopThread(
            "sapwood-head", lambda error: self._ended(f"its thread has ended: {error.what}")
        )
        opened: Future[None] = CallerFuture()
        self._opened = opened
        self._thread.start()
        self._thread.post(way.open, self, self._thread.loop, opened.set_exception)
        try:
            wait_for_peer(opened, CONNECT_TIMEOUT)
        except TimeoutError:
            self._thread.stop()
            raise self._too_slow(CONNECT_TIMEOUT) from None
        except BaseException:
            self._thread.stop()
            raise

    def ask(self, call: HeadCall[P, R], *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Call the head; the future gets the answer. From any thread."""
        return self._send(call.name, call.with_values(*args, **kwargs), call.read_answer)

    def ask_raw(self, name: str, value: Any = None) -> Future[Any]:
        """Call the head by the name of a call, whose values are not checked here.

        Args:
            name: The name in messages.
            value: What the message carries.
        """
        return self._send(name, value, msgspec.msgpack.decode)

    def call_within(
        self, seconds: float | None, call: HeadCall[P, R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Call the head and return the answer.

        Args:
            seconds: How long the head may take; None for as long as it takes.
            call: The call.
            args: Its arguments.
            kwargs: Likewise.

        Raises:
            CommunicationError: The head is gone, or did not answer in time.
            SapwoodError: What the head says.
        """
        return self._waited(self.ask(call, *args, **kwargs), seconds)

    def call_once(
        self, seconds: float | None, call: HeadCall[P, R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Call the head as :meth:`call_within` does, and close the connection."""
        try:
            return self.call_within(seconds, call, *args, **kwargs)
        finally:
            self.close()

    def call(self, call: HeadCall[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the head and return the answer, as long as that takes.

        Raises:
            CommunicationError: The head is gone.
            SapwoodError: What the head says.
        """
        return self.call_within(None, call, *args, **kwargs)

    def call_raw(self, name: str, value: Any = None, timeout: float | None = None) -> Any:
        """Call the head as :meth:`ask_raw` does, and return the answer.

        Args:
            name: The name in messages.
            value: What the message carries.
            timeout: Seconds that the head may take; None for as long as it takes.
        """
        return self._waited(self.ask_raw(name, value), timeout)

    def _waited(self, answer: Future[R], timeout: float | None) -> R:
        try:
            return wait_for_peer(answer, timeout)
        except TimeoutError:
            raise self._too_slow(timeout or 0.0) from None

    def _send(self, name: str, value: Any, read: Read) -> Future[Any]:
        future: Future[Any] = CallerFuture()
        future.set_running_or_notify_cancel()
        with self._lock:
            if self._over:
                future.set_exception(self._error())
                return future
            number = next(self._numbers)
            self._open[number] = (future, read)
        try:
            frame = packed(ServiceCall(number, name, raw(value)))
            self._thread.post(self._write, frame)
        except SapwoodError as error:
            with self._lock:
                self._open.pop(number, None)
            _end(future, error)
        return future

    @property
    def is_over(self) -> bool:
        """Whether the connection has ended."""
        return bool(self._over)

    def close(self) -> None:
        """Leave."""
        with self._lock:
            self._on_end = None
        with contextlib.suppress(ClosedError):
            self._thread.call(self._leave)
        self._thread.stop()

    # --- on the loop's thread --------------------------------------------------------------------

    def connection_opened(self, connection: Connection, *, initiator: bool) -> int:
        """Note that the head is there."""
        del initiator
        self._connection = connection
        self._opened.set_result(None)
        return 0

    def bytes_received(self, number: int, data: bytes) -> None:
        """Take bytes of the head in."""
        del number
        try:
            for message in self._reader.feed(data):
                self._take(message)
        except ProtocolError as error:
            self._ended(f"it broke the protocol: {error}")
            if self._connection is not None:
                self._connection.abort()

    def connection_closed(self, number: int, reason: str) -> None:
        """Note that the head is gone."""
        del number
        self._ended(reason)

    def _write(self, frame: Buffers) -> None:
        if self._connection is not None:
            self._connection.write(frame)

    def _take(self, message: Reply | Notice) -> None:
        if isinstance(message, Notice) and message.name == CUT_OFF:
            self._cut_off = str(message.value)
            return
        if isinstance(message, Notice):
            self._noticed(message.name, message.value)
            return
        with self._lock:
            future, read = self._open.pop(message.number, (None, None))
        if future is None or read is None:
            return
        if message.error is not None:
            error = SapwoodError.from_record(message.error)
            error.hint = naming(error.hint, self._cluster)
            _end(future, error)
            return
        try:
            value = read(message.value)
        except ProtocolError as error:
            _end(future, error)
            return
        with contextlib.suppress(InvalidStateError):
            future.set_result(value)

    def _leave(self) -> None:
        if self._connection is not None:
            self._connection.abort()
        self._ended("the connection was closed")

    def _ended(self, reason: str) -> None:
        reason = self._cut_off or reason
        with self._lock:
            if self._over:
                return
            self._over = reason
            waiting, self._open = self._open, {}
            on_end, self._on_end = self._on_end, None
        for future, _ in waiting.values():
            _end(future, self._error())
        if on_end is not None:
            on_end(reason)

    def cut(self, reason: str) -> None:
        """End the connection as if the head were gone; from any thread."""

        def work() -> None:
            if self._connection is not None:
                self._connection.abort()
            self._ended(reason)

        with contextlib.suppress(ClosedError):
            self._thread.post(work)

    def later(self, seconds: float, function: Callable[[], None]) -> None:
        """Call a function on the connection's thread, if it still runs."""
        with contextlib.suppress(ClosedError):
            self._thread.post(self._thread.loop.call_later, seconds, function)

    def _too_slow(self, seconds: float) -> CommunicationError:
        return CommunicationError(
            f"the head did not answer within {seconds:g} s",
            where=self._address,
            hint="it may be stopped, or its machine overloaded; "
            f"{command('down', cluster=self._cluster)} ends it",
        )

    def _error(self) -> SapwoodError:
        if self._cut_off:
            return SecurityError(
                f"the head has ended the connection: {self._cut_off}", where=self._address
            )
        return CommunicationError(
            f"the head is gone: {self._over}",
            where=self._address,
            hint=f"{command('up', cluster=self._cluster)} starts it again",
        )


def _end(future: Future[Any], error: SapwoodError) -> None:
    with contextlib.suppress(InvalidStateError):
        future.set_exception(error)


def _nobody(_name: str, _value: Any) -> None:
    pass


def open_here(name: str) -> ServiceClient:
    """Connect to a head on this machine for some calls.

    Args:
        name: Of the cluster.

    Raises:
        NodeLostError: No head runs on this machine.
        CommunicationError: It does not answer.
    """
    info = find_head(name)
    try:
        return ServiceClient(UnixWay(info.socket, name))
    except CommunicationError as error:
        raise CommunicationError(
            f"the head of the cluster '{name}' does not answer",
            where=f"process {info.pid}",
            hint=f"it may have been killed: {command('up', cluster=name)} starts it again",
        ) from error
