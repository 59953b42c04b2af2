"""How front ends speak with a head: calls with answers, and notices, over one connection.

A message is its size (4 bytes, little-endian) and msgpack. At a Unix socket of the same user, as
the kernel says, a front end may do all that the head's user may. Over TLS it shows a credential
first, and may do what that allows; until then the head reads little, and waits not long.

::

    front end                      head
      ---- ServiceCall(1, "greet") -------->      over TLS, or to have less than all rights
      <--- Reply(1, challenge) ------
      ---- ServiceCall(2, "present") ------>
      <--- Reply(2, rights) ---------
      ---- ServiceCall(3, "nodes") -------->
      <--- Reply(3, [...]) ---------
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

from sapwood.comm.loop import Loop
from sapwood.comm.transport.base import Connection, ConnectionHandler, Failed
from sapwood.comm.transport.tls import TlsConnection
from sapwood.comm.transport.unix import UnixConnection, UnixTransport
from sapwood.core import typed
from sapwood.core.errors import (
    ClosedError,
    CommunicationError,
    ErrorRecord,
    ProtocolError,
    SapwoodError,
    SecurityError,
)
from sapwood.core.failures import as_error, log_failure
from sapwood.core.futures import CallerFuture, wait_for_peer, when_done
from sapwood.core.hints import DEFAULT_CLUSTER, command, naming
from sapwood.environment.logs import logger
from sapwood.head.calls import CUT_OFF, GREET, PRESENT
from sapwood.head.gate import Gate
from sapwood.security.capabilities import Shown
from sapwood.security.rights import ALL_RIGHTS, Rights
from sapwood.session.loop_thread import LoopThread

MAX_MESSAGE = 64 * 2**20
"""Bytes of one message."""

MAX_UNSENT = 2 * MAX_MESSAGE
"""Bytes that may wait for a front end that does not read; with more it is cut off."""

MAX_CALLS = 10_000
"""Calls of one front end that may wait for an answer."""

MAX_FRONT_ENDS = 256
"""Front ends that may be there at a time."""

MAX_STRANGERS = 64
"""Front ends that have shown no credential yet; with more, the first of them is cut off."""

STRANGER_PATIENCE = 10.0
"""Seconds that a front end has to show one."""

MAX_STRANGE_MESSAGE = 64 * 1024
"""Bytes of a message of a peer that has not."""

FAREWELL = 1.0
"""Seconds that a front end has to read why it is cut off."""

LONGEST_TIMER = 3600.0
"""Seconds after which the end of a credential is looked at again at the latest."""

CONNECT_TIMEOUT = 5.0
"""Seconds in which a head answers a front end that comes."""

ServiceConnection = UnixConnection | TlsConnection

_SIZE = struct.Struct("<I")

_log = logger("head")


class ServiceCall(msgspec.Struct, frozen=True, tag="call"):
    """A front end wants something."""

    number: int
    name: str
    value: Any = None


class Reply(msgspec.Struct, frozen=True, tag="reply"):
    """The outcome of a call."""

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
    """Divides a connection's bytes into messages.

    Attributes:
        limit: Bytes of a message at most.
    """

    def __init__(self, limit: int = MAX_MESSAGE) -> None:
        self.limit = limit
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
            if size > self.limit:
                raise ProtocolError(f"a message has more than {self.limit} bytes")
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
        address: Where it is; empty on the head's machine.
        rights: What it may do; None before it has shown a credential, if it needs one.
        challenge: What it is to sign.
        session: The id of the session whose root it is, if it has said so; else empty.
        session_name: What users call that session.
        runs: Since when its runs in progress run, by name; bounded, the oldest first.
    """

    def __init__(self, number: int, connection: ServiceConnection) -> None:
        self.number = number
        self.connection = connection
        local = isinstance(connection, UnixConnection)
        self.address = "" if local else connection.facts().address
        self.rights: Rights | None = ALL_RIGHTS if local else None
        self.challenge = b""
        self.session = ""
        self.session_name = ""
        self.runs: dict[str, float] = {}
        self.frames = Frames(MAX_MESSAGE if local else MAX_STRANGE_MESSAGE)
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

    @property
    def is_local(self) -> bool:
        """Whether it is on the head's machine, at a Unix socket."""
        return not self.address

    def __repr__(self) -> str:
        return f"<front end {self.number}>"


class Handler(Protocol):
    """A handler of calls, on the loop's thread."""

    def __call__(self, caller: ServiceCaller, value: Any, /) -> Any:
        """Return the answer, or a future that gets it.

        Raises:
            SapwoodError: There is none.
        """


class ServiceServer:
    """Answers front ends; what a listener gives their connections to.

    Args:
        handlers: Handlers by name.
        thread: Its loop watches the connections.
        gate: Says who may call what; without one, only front ends at a Unix socket may.
        serves: Whether calls are answered; otherwise peers are disconnected.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        thread: LoopThread,
        gate: Gate | None = None,
        serves: Callable[[], bool] = lambda: True,
    ) -> None:
        self._handlers = dict(handlers)
        self._serves = serves
        self._thread = thread
        self._gate = gate
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
        assert isinstance(connection, UnixConnection | TlsConnection)  # noqa: S101 - no others come
        caller = ServiceCaller(number, connection)
        strangers = [one for one in self._callers.values() if one.rights is None]
        if caller.rights is None:
            if len(strangers) >= MAX_STRANGERS:
                self._cut_off(strangers[0], "others wait, and it has shown no credential")
            self._thread.loop.call_later(STRANGER_PATIENCE, self._too_late, caller)
        elif len(self._callers) - len(strangers) >= MAX_FRONT_ENDS:
            self._refuse(caller)
            return number
        self._callers[number] = caller
        return number

    def _refuse(self, caller: ServiceCaller) -> None:
        _log.warning("front end refused", reason=f"{MAX_FRONT_ENDS} are there")
        self._thread.loop.call_soon(caller.connection.abort)

    def _too_late(self, caller: ServiceCaller) -> None:
        if caller.there and caller.rights is None:
            self._cut_off(caller, "it has shown no credential in time")

    def _cut_off(self, caller: ServiceCaller, reason: str) -> None:
        """End a connection, and tell the front end why: it has no rights from now on."""
        _log.warning("front end cut off", number=caller.number, reason=reason)
        if self._callers.pop(caller.number, None) is None:
            return
        if caller.rights is not None and self._gate is not None:
            self._gate.note_cut_off(caller, caller.rights, reason)
        caller.rights = None
        self._notify(caller, Notice(CUT_OFF, reason))
        caller.gone()
        caller.connection.close()
        self._thread.loop.call_later(FAREWELL, caller.connection.abort)

    def speaks_for(self, caller: ServiceCaller, address: str) -> None:
        """Leave a front end no rights until it shows the credential of whom it speaks for.

        Args:
            caller: The HTTP server, on this machine.
            address: Where that one is.
        """
        caller.rights, caller.address = None, address
        caller.frames.limit = MAX_STRANGE_MESSAGE
        self._thread.loop.call_later(STRANGER_PATIENCE, self._too_late, caller)

    def deny(self, ids: frozenset[str]) -> int:
        """Cut off those whose credential was revoked; return how many. On the loop's thread."""
        found = [
            one for one in self.callers if one.rights is not None and ids & set(one.rights.ids)
        ]
        for caller in found:
            self._cut_off(caller, "its credential was revoked")
        return len(found)

    def bytes_received(self, number: int, data: bytes) -> None:
        """Take bytes of a front end in."""
        caller = self._callers.get(number)
        if caller is None:
            return
        try:
            for body in caller.frames.add(data):
                self._serve(caller, _read_call(body))
        except (ProtocolError, msgspec.MsgspecError, UnicodeError, RecursionError) as error:
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

    def _admit(self, caller: ServiceCaller, call: ServiceCall, gate: Gate) -> None:
        """Ask the peer for a credential."""
        if call.name == GREET:
            self._reply(caller, Reply(call.number, plain(gate.greet(caller))))
            return
        try:
            rights = gate.admit(caller, typed.convert(call.value, Shown))
        except (SecurityError, msgspec.ValidationError) as error:
            problem = error if isinstance(error, SecurityError) else ProtocolError(str(error))
            self._reply(caller, Reply(call.number, error=problem.to_record()))
            self._cut_off(caller, problem.what)
            return
        others = [one for one in self._callers.values() if one.rights is not None]
        if len(others) > MAX_FRONT_ENDS:
            self._refuse(caller)
            return
        caller.frames.limit = MAX_MESSAGE
        self._look_at_end(caller, rights, gate)
        said = gate.facts_of(rights)
        self._reply(caller, Reply(call.number, plain(said)))

    def _look_at_end(self, caller: ServiceCaller, rights: Rights, gate: Gate) -> None:
        """Cut a front end off when its credential ends."""
        if not caller.there or caller.rights is not rights:
            return
        left = gate.seconds_left(rights)
        if left <= 0:
            self._cut_off(caller, "its credential has expired")
        else:
            self._thread.loop.call_later(
                min(left, LONGEST_TIMER), self._look_at_end, caller, rights, gate
            )

    def _serve(self, caller: ServiceCaller, call: ServiceCall) -> None:
        if not caller.there:
            return
        if not self._serves():
            caller.connection.abort()
            return
        if call.name in {GREET, PRESENT} and self._gate is not None:
            self._admit(caller, call, self._gate)
            return
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
            if self._gate is not None:
                self._gate.require(caller, call.name)
            elif caller.rights is None:
                raise SecurityError("this head takes no credentials")
            answer = handler(caller, call.value)
        except SapwoodError as error:
            self._reply(caller, Reply(call.number, error=error.to_record()))
            return
        except Exception as error:  # noqa: BLE001 - a mistake here must not end the head
            doing = f"call '{call.name}'"
            log_failure(doing, error)
            self._reply(caller, Reply(call.number, error=as_error(error, doing).to_record()))
            return
        if isinstance(answer, Future):
            caller.waiting += 1
            when_done(answer, partial(self._answered, caller, call.number))
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
        else:
            reply = Reply(number, error=as_error(error, "a call of the head").to_record())

        def write() -> None:
            caller.waiting -= 1
            self._reply(caller, reply)

        with contextlib.suppress(ClosedError):
            self._thread.post(write)


# --- at a front end -------------------------------------------------------------------------------


class WayToHead(Protocol):
    """How a front end reaches a head.

    Attributes:
        place: Where the head is, for messages.
        cluster: What the user calls the cluster.
    """

    place: str
    cluster: str

    def open(self, handler: ConnectionHandler, loop: Loop, failed: Failed) -> None:
        """Connect, on the loop's thread; one of handler and ``failed`` hears of it."""


class UnixWay:
    """The way to a head on this machine.

    Args:
        place: Its socket.
        cluster: What the user calls the cluster.
    """

    def __init__(self, place: str, cluster: str = DEFAULT_CLUSTER) -> None:
        self.place = place
        self.cluster = cluster

    def open(self, handler: ConnectionHandler, loop: Loop, failed: Failed) -> None:
        """Connect."""
        UnixTransport().connect(self.place, handler, loop, failed)


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
        self._place = way.place
        self._cluster = way.cluster
        self._cut_off = ""
        self._noticed = noticed or _nobody
        self._told_end = ended
        self._numbers = itertools.count(1)
        self._open: dict[int, Future[Any]] = {}
        self._frames = Frames()
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._over = ""
        self._thread = LoopThread("sapwood-head")
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

    def ask(self, name: str, value: Any = None) -> Future[Any]:
        """Call; the future gets the answer. From any thread."""
        future: Future[Any] = CallerFuture()
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
            CommunicationError: The head is gone, or did not answer in time.
            SapwoodError: What the head says.
        """
        try:
            return wait_for_peer(self.ask(name, value), timeout)
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
        except (ProtocolError, msgspec.MsgspecError, UnicodeError, RecursionError) as error:
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
        if isinstance(message, Notice) and message.name == CUT_OFF:
            self._cut_off = str(message.value)
            return
        if isinstance(message, Notice):
            self._noticed(message.name, message.value)
            return
        with self._lock:
            future = self._open.pop(message.number, None)
        if future is None:
            return
        if message.error is not None:
            error = SapwoodError.from_record(message.error)
            error.hint = naming(error.hint, self._cluster)
            _end(future, error)
        else:
            with contextlib.suppress(InvalidStateError):
                future.set_result(message.value)

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
            told, self._told_end = self._told_end, None
        for future in waiting.values():
            _end(future, self._error())
        if told is not None:
            told(reason)

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
            where=self._place,
            hint="it may be stopped, or its machine overloaded; "
            f"{command('down', cluster=self._cluster)} ends it",
        )

    def _error(self) -> SapwoodError:
        if self._cut_off:
            return SecurityError(
                f"the head has ended the connection: {self._cut_off}", where=self._place
            )
        return CommunicationError(
            f"the head is gone: {self._over}",
            where=self._place,
            hint=f"{command('up', cluster=self._cluster)} starts it again",
        )


def plain(value: msgspec.Struct) -> Any:
    """Return a structure as what messages carry."""
    return msgspec.to_builtins(value, builtin_types=(bytes,))


def _end(future: Future[Any], error: SapwoodError) -> None:
    with contextlib.suppress(InvalidStateError):
        future.set_exception(error)


def _nobody(_name: str, _value: Any) -> None:
    pass
