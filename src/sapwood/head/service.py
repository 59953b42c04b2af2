"""How front ends speak with a head: calls with answers, and notices, over one connection.

A message is its size (4 bytes, little-endian) and msgpack. Whoever has the connection may do
everything that the head's user may: it is a Unix socket of the same user, as the kernel says.

::

    front end                      head
      ---- ServiceServiceCall(1, "nodes") ------->
      <--- Reply(1, [...]) ---------
      <--- Notice("places", ...) ---      what it did not ask for
"""

from __future__ import annotations

import contextlib
import itertools
import struct
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future, InvalidStateError
from functools import partial
from typing import Any, Protocol

import msgspec

from sapwood.comm.transport.base import Connection
from sapwood.comm.transport.unix import UnixConnection, UnixTransport
from sapwood.core import typed
from sapwood.core.errors import (
    ClosedError,
    CommunicationError,
    ErrorRecord,
    ProtocolError,
    SapwoodError,
)
from sapwood.environment.logs import logger
from sapwood.session.loop_thread import LoopThread

MAX_MESSAGE = 64 * 2**20
"""Bytes of one message."""

MAX_UNSENT = 2 * MAX_MESSAGE
"""Bytes that may wait for a front end that does not read; with more it is cut off."""

MAX_CALLS = 10_000
"""Calls of one front end that may wait for an answer."""

MAX_FRONT_ENDS = 256
"""Front ends that may be there at a time."""

CONNECT_TIMEOUT = 5.0
"""Seconds in which a head answers a front end that comes."""

_SIZE = struct.Struct("<I")

_log = logger("head")


class ServiceCall(msgspec.Struct, frozen=True, tag="call"):
    """A front end wants something."""

    number: int
    name: str
    value: Any = None


class Reply(msgspec.Struct, frozen=True, tag="reply"):
    """What came of a call."""

    number: int
    value: Any = None
    error: ErrorRecord | None = None


class Notice(msgspec.Struct, frozen=True, tag="notice"):
    """What a front end should know."""

    name: str
    value: Any = None


_encode = msgspec.msgpack.Encoder().encode
_read_call: Callable[[bytes], ServiceCall] = typed.unpacker(ServiceCall)
_read_answer: Callable[[bytes], Reply | Notice] = typed.unpacker(Reply | Notice)


def _packed(message: msgspec.Struct) -> bytes:
    try:
        body = _encode(message)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ProtocolError(f"a message to or from the head cannot be written: {error}") from error
    if len(body) > MAX_MESSAGE:
        raise ProtocolError(f"a message to or from the head has more than {MAX_MESSAGE} bytes")
    return _SIZE.pack(len(body)) + body


class Frames:
    """Divides a connection's bytes into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def add(self, data: bytes) -> list[bytes]:
        """Take bytes in; return the messages that are whole now.

        Raises:
            ProtocolError: A message is too long.
        """
        self._buffer += data
        found: list[bytes] = []
        start = 0
        while len(self._buffer) - start >= _SIZE.size:
            (size,) = _SIZE.unpack_from(self._buffer, start)
            if size > MAX_MESSAGE:
                raise ProtocolError(f"a message has more than {MAX_MESSAGE} bytes")
            end = start + _SIZE.size + size
            if len(self._buffer) < end:
                break
            found.append(bytes(self._buffer[start + _SIZE.size : end]))
            start = end
        del self._buffer[:start]
        return found


# --- at the head ----------------------------------------------------------------------------------


class ServiceCaller:
    """A front end, as the head sees it.

    Attributes:
        number: Which one it is; no other has it.
    """

    def __init__(self, number: int, connection: UnixConnection) -> None:
        self.number = number
        self.connection = connection
        self.frames = Frames()
        self.waiting = 0
        self.there = True
        self._left: list[Callable[[], None]] = []

    def write(self, message: msgspec.Struct) -> None:
        """Send a message; on the loop's thread.

        Raises:
            ProtocolError: It cannot be written, or is too long.
        """
        if not self.there:
            return
        self.connection.write([_packed(message)])
        if self.connection.unsent > MAX_UNSENT:
            _log.warning("front end cut off", number=self.number, reason="it does not read")
            self.connection.abort()

    def when_gone(self, function: Callable[[], None]) -> Callable[[], None]:
        """Have a function called when it is gone; return what takes that back."""
        self._left.append(function)

        def forget() -> None:
            with contextlib.suppress(ValueError):
                self._left.remove(function)

        return forget

    def gone(self) -> None:
        """It is gone."""
        self.there = False
        left, self._left = self._left, []
        for function in left:
            function()

    def __repr__(self) -> str:
        return f"<front end {self.number}>"


class Handler(Protocol):
    """What does what a call asks for, on the loop's thread."""

    def __call__(self, caller: ServiceCaller, value: Any, /) -> Any:
        """Return the answer, or a future that gets it.

        Raises:
            SapwoodError: There is none.
        """


class ServiceServer:
    """Answers front ends; what a listener gives their connections to.

    Args:
        handlers: What does what, by name.
        thread: Its loop watches the connections.
    """

    def __init__(self, handlers: Mapping[str, Handler], thread: LoopThread) -> None:
        self._handlers = dict(handlers)
        self._thread = thread
        self._callers: dict[int, ServiceCaller] = {}
        self._numbers = itertools.count(1)

    @property
    def callers(self) -> list[ServiceCaller]:
        """Those that are there."""
        return list(self._callers.values())

    def tell(self, caller: ServiceCaller, name: str, value: Any) -> None:
        """Send a front end a notice; from any thread."""
        with contextlib.suppress(ClosedError):
            self._thread.post(self._notify, caller, Notice(name, value))

    def connection_opened(self, connection: Connection, *, initiator: bool) -> int:
        """Take a front end in."""
        del initiator
        number = next(self._numbers)
        assert isinstance(connection, UnixConnection)  # noqa: S101 - it listens at a path
        if len(self._callers) >= MAX_FRONT_ENDS:
            _log.warning("front end refused", reason=f"{MAX_FRONT_ENDS} are there")
            self._thread.loop.call_soon(connection.abort)
            return number
        self._callers[number] = ServiceCaller(number, connection)
        return number

    def bytes_received(self, number: int, data: bytes) -> None:
        """Take bytes of a front end in."""
        caller = self._callers.get(number)
        if caller is None:
            return
        try:
            for body in caller.frames.add(data):
                self._serve(caller, _read_call(body))
        except (ProtocolError, msgspec.MsgspecError, RecursionError) as error:
            _log.warning("front end cut off", reason=str(error))
            caller.connection.abort()

    def connection_closed(self, number: int, reason: str) -> None:
        """Forget a front end."""
        del reason
        caller = self._callers.pop(number, None)
        if caller is not None:
            caller.gone()

    def close(self) -> None:
        """End all connections, after what is on its way."""
        for caller in self.callers:
            caller.connection.close()

    def _serve(self, caller: ServiceCaller, call: ServiceCall) -> None:
        handler = self._handlers.get(call.name)
        if handler is None:
            error = ProtocolError(
                f"the head knows no '{call.name}'", hint="is it of another version of Sapwood?"
            )
            self._reply(caller, Reply(call.number, error=error.to_record()))
            return
        if caller.waiting >= MAX_CALLS:
            raise ProtocolError(f"a front end has more than {MAX_CALLS} open calls")
        try:
            answer = handler(caller, call.value)
        except SapwoodError as error:
            self._reply(caller, Reply(call.number, error=error.to_record()))
            return
        except Exception as error:  # noqa: BLE001 - a mistake here must not end the head
            _log.exception("call failed", call=call.name)
            problem = SapwoodError(f"the head could not do this: {error!r}")
            self._reply(caller, Reply(call.number, error=problem.to_record()))
            return
        if isinstance(answer, Future):
            caller.waiting += 1
            answer.add_done_callback(partial(self._answered, caller, call.number))
        else:
            self._reply(caller, Reply(call.number, answer))

    def _reply(self, caller: ServiceCaller, reply: Reply) -> None:
        """Answer a call, if only by saying why the answer cannot be sent."""
        try:
            caller.write(reply)
        except ProtocolError as error:
            caller.write(Reply(reply.number, error=error.to_record()))

    def _notify(self, caller: ServiceCaller, notice: Notice) -> None:
        try:
            caller.write(notice)
        except ProtocolError as error:
            _log.warning("notice left out", name=notice.name, reason=str(error))

    def _answered(self, caller: ServiceCaller, number: int, answer: Future[Any]) -> None:
        error: BaseException | None
        try:
            error = answer.exception()
        except CancelledError:
            error = ClosedError("the head ends")
        if error is None:
            reply = Reply(number, answer.result())
        elif isinstance(error, SapwoodError):
            reply = Reply(number, error=error.to_record())
        else:
            reply = Reply(
                number, error=SapwoodError(f"the head could not do this: {error!r}").to_record()
            )

        def write() -> None:
            caller.waiting -= 1
            self._reply(caller, reply)

        with contextlib.suppress(ClosedError):
            self._thread.post(write)


# --- at a front end -------------------------------------------------------------------------------


class ServiceClient:
    """A connection to a head.

    Args:
        path: The head's socket.
        noticed: Told of notices, on a thread of its own: ``noticed(name, value)``.
        ended: Told why the connection ended, if it was not closed here.

    Raises:
        CommunicationError: Nobody answers there, or not in time.
    """

    def __init__(
        self,
        path: str,
        noticed: Callable[[str, Any], None] | None = None,
        ended: Callable[[str], None] | None = None,
    ) -> None:
        self._path = path
        self._noticed = noticed or _nobody
        self._told_end = ended
        self._numbers = itertools.count(1)
        self._open: dict[int, Future[Any]] = {}
        self._frames = Frames()
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._over = ""
        self._thread = LoopThread("sapwood-head")
        opened: Future[None] = Future()
        self._opened = opened
        self._thread.start()
        self._thread.post(
            UnixTransport().connect, path, self, self._thread.loop, opened.set_exception
        )
        try:
            opened.result(CONNECT_TIMEOUT)
        except TimeoutError:
            self._thread.stop()
            raise self._too_slow(CONNECT_TIMEOUT) from None
        except BaseException:
            self._thread.stop()
            raise

    def ask(self, name: str, value: Any = None) -> Future[Any]:
        """Call; the future gets the answer. From any thread."""
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            if self._over:
                future.set_exception(self._error())
                return future
            number = next(self._numbers)
            self._open[number] = future
        try:
            data = _packed(ServiceCall(number, name, value))
            self._thread.post(self._write, data)
        except SapwoodError as error:
            with self._lock:
                self._open.pop(number, None)
            _end(future, error)
        return future

    def call(self, name: str, value: Any = None, timeout: float | None = None) -> Any:
        """ServiceCall and return the answer.

        Raises:
            CommunicationError: The head is gone, or there was no answer in so many seconds.
            SapwoodError: What the head says.
        """
        try:
            return self.ask(name, value).result(timeout)
        except TimeoutError:
            raise self._too_slow(timeout or 0.0) from None

    @property
    def is_over(self) -> bool:
        """Whether the connection has ended."""
        return bool(self._over)

    def close(self) -> None:
        """Leave."""
        with self._lock:
            self._told_end = None
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
            for body in self._frames.add(data):
                self._take(_read_answer(body))
        except (ProtocolError, msgspec.MsgspecError, RecursionError) as error:
            self._ended(f"it broke the protocol: {error}")
            if self._connection is not None:
                self._connection.abort()

    def connection_closed(self, number: int, reason: str) -> None:
        """Note that the head is gone."""
        del number
        self._ended(reason)

    def _write(self, data: bytes) -> None:
        if self._connection is not None:
            self._connection.write([data])

    def _take(self, message: Reply | Notice) -> None:
        if isinstance(message, Notice):
            self._noticed(message.name, message.value)
            return
        with self._lock:
            future = self._open.pop(message.number, None)
        if future is None:
            return
        if message.error is not None:
            _end(future, SapwoodError.from_record(message.error))
        else:
            with contextlib.suppress(InvalidStateError):
                future.set_result(message.value)

    def _leave(self) -> None:
        if self._connection is not None:
            self._connection.abort()
        self._ended("the connection was closed")

    def _ended(self, reason: str) -> None:
        with self._lock:
            if self._over:
                return
            self._over = reason
            waiting, self._open = self._open, {}
            told, self._told_end = self._told_end, None
        for future in waiting.values():
            _end(future, self._error())
        if told is not None:
            told(reason)

    def later(self, seconds: float, function: Callable[[], None]) -> None:
        """Have a function called on the connection's thread, if it is there still."""
        with contextlib.suppress(ClosedError):
            self._thread.post(self._thread.loop.call_later, seconds, function)

    def _too_slow(self, seconds: float) -> CommunicationError:
        return CommunicationError(
            f"the head did not answer within {seconds:g} s",
            where=self._path,
            hint="it may be stopped, or its machine overloaded; `sapwood down` ends it",
        )

    def _error(self) -> CommunicationError:
        return CommunicationError(
            f"the head is gone: {self._over}",
            where=self._path,
            hint="`sapwood up` starts it again",
        )


def _end(future: Future[Any], error: SapwoodError) -> None:
    with contextlib.suppress(InvalidStateError):
        future.set_exception(error)


def _nobody(_name: str, _value: Any) -> None:
    pass
