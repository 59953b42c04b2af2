"""The connection of a client to a session server: calls, events, and the memory of both."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

import msgspec

from sapwood.comm import events as ev
from sapwood.comm.groups import events as gev
from sapwood.comm.machine import machine_id
from sapwood.comm.messaging import events as mev
from sapwood.comm.payload import Payload
from sapwood.comm.shared_memory import MappedBlocks, SharedRef
from sapwood.comm.transport.base import Connection, ConnectionHandler, Failed
from sapwood.core.errors import (
    ClosedError,
    CommunicationError,
    ErrorRecord,
    ProtocolError,
    SapwoodError,
)
from sapwood.core.failures import as_error, fail, log_failure
from sapwood.core.futures import CallerFuture
from sapwood.core.hints import DEFAULT_CLUSTER, command, naming
from sapwood.session.back_pressure import LARGEST
from sapwood.session.loop_thread import LoopThread
from sapwood.session.shared_reactor import SharedReactor
from sapwood.session_server import session_calls, wire
from sapwood.session_server.rights import ClientRole

CALL_TIMEOUT = 30.0
"""Seconds that a session server may take for what it does at once."""

Connect = Callable[[ConnectionHandler, SharedReactor, Failed], None]
"""Connects to the server of a session: ``connect(handler, loop, failed)``."""

Handlers = Mapping[type[Any], Callable[[Any], None]]
FailureHandlers = Mapping[type[Any], Callable[[Any, SapwoodError], None]]


class SessionAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server of a session is, and what lets a client in.

    Attributes:
        session: The session's id.
        name: What users call it.
        secret: What proves that this client may attach; empty for the same user.
        cluster: What the user calls its cluster, for hints.
    """

    session: str
    name: str
    secret: str = ""
    cluster: str = DEFAULT_CLUSTER


class ServerLink:
    """A connection to a session server, until it ends; it does not come back.

    Args:
        address: Which session.
        connect: Connects to its server.
        role: What this client wants to be.
        owned: Whether the session ends soon after this client is gone without having left it.
        lost: Told on the thread why the connection ended, unless the client closes it.
        thread: Its thread.

    Attributes:
        address: Which session.
        welcome: Gets what the server says first.
        over: Why nothing is sent any more; None while the connection lasts.
        closing: Whether the client leaves, or has left.
        sharing: Whether the server maps memory of this process.
        largest: Bytes of the largest payload that may be sent at once.
    """

    def __init__(
        self,
        address: SessionAddress,
        connect: Connect,
        role: ClientRole,
        lost: Callable[[SapwoodError], None],
        thread: LoopThread,
        *,
        owned: bool = False,
    ) -> None:
        self.address = address
        self.welcome: Future[wire.Admitted] = CallerFuture()
        self.over: SapwoodError | None = None
        self.closing = False
        self.sharing = False
        self.largest = LARGEST
        self._connect = connect
        self._role = role
        self._owned = owned
        self._ended = lost
        self._thread = thread
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._reader = wire.WireReader(wire.TO_CLIENT, own=self._lent_block)
        self._lent: dict[int, Payload] = {}
        self._calls: dict[int, Future[Any]] = {}
        self._numbers = itertools.count(1)
        self._handlers: Handlers = {}
        self._on_failure: FailureHandlers = {}

    def serve(self, handlers: Handlers, on_failure: FailureHandlers) -> None:
        """Name what receives the server's messages, and what fails when that raises."""
        self._handlers = {
            **handlers,
            wire.NotAdmitted: self._refused,
            wire.SessionAnswer: self._answered,
            wire.AllHandedOver: self._handed_over,
            wire.SessionEnds: self._session_ends,
        }
        self._on_failure = {
            **on_failure,
            wire.Admitted: lambda _message, error: self.welcome.set_exception(error),
            wire.SessionAnswer: self._not_answered,
        }

    # --- life ----------------------------------------------------------------------------------

    def begin(self) -> Future[wire.Admitted]:
        """Connect to the server; the future says whether it lets this client in."""
        failed: Failed = self.welcome.set_exception
        self._thread.post(self._connect, self, self._thread.loop, failed)
        return self.welcome

    def begin_closing(self) -> bool:
        """Note that the client leaves; return whether it did not before. Not on its own thread."""
        with self._lock:
            if self.closing:
                return False
            self._thread.refuse_own_thread()  # before it counts as closed: it can be closed later
            self.closing = True
            return True

    def end(self, reason: SapwoodError) -> None:
        """Send nothing any more, and fail the pending calls; on the thread."""
        with self._lock:
            self.over = self.over or reason
        self._fail_calls(reason)

    def disconnect(self) -> None:
        """End the connection; on the thread."""
        if self._connection is not None:
            self._connection.abort()

    def release_memory(self) -> None:
        """Map the server's memory no more."""
        self._reader.blocks = None

    def lose(self, error: SapwoodError) -> None:
        """Note that the connection, or the session, is over; on the thread."""
        with self._lock:
            if self.over is None and not self.closing:
                self.over = error
        self.welcome.set_exception(error)
        is_why = self.over is error
        self._fail_calls(error if is_why else ClosedError("this client has left the session"))
        if is_why:
            self._ended(error)

    def admitted(self, admitted: wire.Admitted) -> None:
        """Use what the server has said of memory and sizes."""
        self.sharing = admitted.shares_memory
        if self.sharing:
            self._reader.blocks = MappedBlocks()
        else:
            self.largest = admitted.largest

    # --- calls of the server -------------------------------------------------------------------

    def ask(self, name: str, value: Any = None, payload: Payload | None = None) -> Future[Any]:
        """Want something of the server itself; the future gets its answer. From any thread."""
        future: Future[Any] = CallerFuture()
        future.set_running_or_notify_cancel()
        with self._lock:
            if self.over is not None:
                future.set_exception(self.over)
                return future
            number = next(self._numbers)
            self._calls[number] = future
        self._thread.post(self.write, wire.SessionCall(number, name, value, payload))
        return future

    def tell(self, name: str, value: Any, payload: Payload | None = None) -> None:
        """Want something of the server that has no answer. From any thread."""
        self._thread.post(self.write, wire.SessionCall(0, name, value, payload))

    def cancel_receive(self, number: int) -> bool:
        """Take a receive back; return whether that was in time."""
        try:
            return bool(self.ask(session_calls.CANCEL_RECEIVE, number).result(CALL_TIMEOUT))
        except (SapwoodError, TimeoutError):
            return False

    # --- what the client sends -----------------------------------------------------------------

    def post(self, event: ev.Event) -> None:
        """Give the server an event."""
        if isinstance(event, gev.ForgetGroups):
            return  # the server does so itself when this client is gone
        payload: Payload | None = getattr(event, "payload", None)
        if payload is not None and isinstance(event, ev.Broadcast | gev.CallGroup):
            if self.sharing and payload.ref is not None:
                self._lent[payload.ref.fd] = payload
            elif payload.owner is not None:
                self.write(event)
                self._used(event, payload)
                return
        self.write(event)

    def _used(self, event: ev.Event, payload: Payload) -> None:
        """Release messages that have been written."""
        if isinstance(event, ev.Broadcast):
            self._handlers[ev.Released](ev.Released(payload))
        elif isinstance(event, gev.CallGroup):
            self._handlers[gev.Discarded](gev.Discarded(payload))

    def write(self, message: msgspec.Struct) -> None:
        """Send a message, or fail what it is for; on the thread."""
        if self.over is not None or self._connection is None:
            if isinstance(message, wire.SessionCall):
                self._answered(wire.SessionAnswer(message.number, None, self._why().to_record()))
                return
            self._refuse(message)
            return
        try:
            buffers = wire.pack(message, sharing=self.sharing)
        except ProtocolError as error:
            if not isinstance(message, wire.SessionCall):
                raise
            self._answered(wire.SessionAnswer(message.number, None, error.to_record()))
            return
        self._connection.write(buffers)

    def _refuse(self, message: msgspec.Struct) -> None:
        """Answer what cannot be sent any more."""
        error = self._why().to_record()
        if isinstance(message, ev.Broadcast):
            return  # the stream is closed
        if isinstance(message, ev.Ask):
            self._take(ev.Answered(message.number, b"", None, error))
        elif isinstance(message, mev.SendTagged):
            for rank in message.destinations:
                self._take(mev.SendEnded(message.number, rank, error))
        elif isinstance(message, mev.PostReceive):
            self._take(mev.ReceiveFailed(message.number, error))

    # --- what the server sends -----------------------------------------------------------------

    def connection_opened(self, connection: Connection, *, initiator: bool) -> int:
        """Ask to be let in."""
        del initiator
        self._connection = connection
        address = self.address
        asked = wire.AskToAttach(
            version=wire.VERSION,
            session=address.session,
            secret=address.secret,
            role=self._role.value,
            machine=machine_id(),
            pid=os.getpid(),
            label=f"process {os.getpid()}",
            owned=self._owned,
        )
        connection.write(wire.pack(asked, sharing=False))
        return 0

    def bytes_received(self, number: int, data: bytes) -> None:
        """Take in what the root says."""
        del number
        try:
            messages = self._reader.feed(data)
        except Exception as exception:  # noqa: BLE001 - whatever it is, it is this connection's
            if not isinstance(exception, ProtocolError):
                log_failure("decoding what a session server sent", exception)
            what = as_error(exception).what
            self.lose(CommunicationError(f"the session server violated the protocol: {what}"))
            if self._connection is not None:
                self._connection.abort()
            return
        for message in messages:
            try:
                self._take(message)
            except (Exception, SystemExit) as exception:  # noqa: BLE001 - it is this message's
                self._not_taken(message, exception)

    def _take(self, message: msgspec.Struct) -> None:
        handler = self._handlers.get(type(message))
        if handler is None:
            return
        try:
            handler(message)
        finally:
            payload: Payload | None = getattr(message, "payload", None)
            ref = payload.ref if payload is not None else None
            if ref is not None and not isinstance(message, ev.Released | gev.Discarded):
                self.write(wire.MemoryTaken(ref.fd))

    def _not_taken(self, message: msgspec.Struct, exception: BaseException) -> None:
        """Fail what a message was for whose handler raised an unexpected exception."""
        doing = f"taking in {type(message).__name__} of the root"
        log_failure(doing, exception)
        handler = self._on_failure.get(type(message))
        if handler is not None:
            fail(doing, handler, message, as_error(exception, doing))

    def connection_closed(self, number: int, reason: str) -> None:
        """Note that the way to the root is gone."""
        del number
        self.lose(
            CommunicationError(
                f"the connection to the session has ended: {reason}",
                where=self.address.name,
                hint=command("session", "show", self.address.name, cluster=self.address.cluster)
                + " says whether it still runs; attach again then",
            )
        )

    def _lent_block(self, ref: SharedRef) -> Any:
        """Return the owner of memory that the root gives back; None for the root's own."""
        if ref.pid != os.getpid():
            return None
        payload = self._lent.pop(ref.fd, None)
        return None if payload is None else payload.owner

    def named(self, record: ErrorRecord) -> SapwoodError:
        """Return an error of the server, whose hint names the cluster."""
        error = SapwoodError.from_record(record)
        error.hint = naming(error.hint, self.address.cluster)
        return error

    def _refused(self, message: wire.NotAdmitted) -> None:
        self.welcome.set_exception(self.named(message.error))

    def _handed_over(self, message: wire.AllHandedOver) -> None:
        """Say that what was kept is here: until then the root gives it to the next one as well."""
        del message
        self.write(wire.SessionCall(0, session_calls.TAKEN))

    def _session_ends(self, message: wire.SessionEnds) -> None:
        ended = ClosedError(f"the session has ended: {message.reason}", where=self.address.name)
        self.lose(ended if message.error is None else self.named(message.error))

    def _answered(self, message: wire.SessionAnswer) -> None:
        with self._lock:
            future = self._calls.pop(message.number, None)
        if future is None:
            return
        if message.error is not None:
            future.set_exception(self.named(message.error))
        else:
            future.set_result(message.value)

    def _not_answered(self, message: wire.SessionAnswer, error: SapwoodError) -> None:
        with self._lock:
            future = self._calls.pop(message.number, None)
        if future is not None:
            future.set_exception(error)

    def _fail_calls(self, error: SapwoodError) -> None:
        """Fail calls that the root will not answer."""
        with self._lock:
            calls, self._calls = list(self._calls.values()), {}
        for future in calls:
            future.set_exception(error)

    def _why(self) -> SapwoodError:
        return self.over or ClosedError("the session was left")
