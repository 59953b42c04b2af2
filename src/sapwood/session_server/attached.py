"""The port of a session whose root is in another process.

What a client does with streams, requests, messages and groups is the same as where the root is
its own: the same classes make events and take effects. Here the events go to the root as messages.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

import msgspec

from sapwood.comm import events as ev
from sapwood.comm import values
from sapwood.comm.content import ContentRef, FileStamp
from sapwood.comm.groups import events as gev
from sapwood.comm.machine import machine_id
from sapwood.comm.messaging import events as mev
from sapwood.comm.payload import Payload
from sapwood.comm.pool import BlockPool
from sapwood.comm.shared_memory import MappedBlocks, SharedRef
from sapwood.comm.transport.base import Connection, ConnectionHandler, Failed
from sapwood.core import typed
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
from sapwood.core.rankset import to_ranges
from sapwood.core.request import Request
from sapwood.core.topology import Tree
from sapwood.environment.logs import logger
from sapwood.session.back_pressure import DEFAULT_BACKLOG, ByteLimiter, check_size
from sapwood.session.client_groups import ClientGroups
from sapwood.session.content import hash_of_memory
from sapwood.session.draining import drain
from sapwood.session.embedded import CLOSING, DRAINING
from sapwood.session.loop_thread import LoopThread
from sapwood.session.mailbox import Mailbox
from sapwood.session.options import PlacesChanged
from sapwood.session.port import InvitationView, NewAgent, PlaceView, StreamPort
from sapwood.session.requests import PendingRequests, RequestFuture
from sapwood.session.shared_reactor import SharedReactor
from sapwood.session.shortcut import NoShortcut
from sapwood.session.streams import StreamHandle, StreamOptions, StreamTable
from sapwood.session.wave_result import WaveResult
from sapwood.session_server import session_calls, wire
from sapwood.session_server.rights import ClientRole

T = TypeVar("T")

ATTACH_TIMEOUT = 10.0
"""Seconds in which a root answers a client that comes."""

CALL_TIMEOUT = 30.0
"""Seconds that a root may take for what it does at once."""

_log = logger("session")

Connect = Callable[[ConnectionHandler, SharedReactor, Failed], None]
"""Connects to the server of a session: ``connect(handler, loop, failed)``."""


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


class MadeSession(NamedTuple):
    """How a session ends with the client that has made it.

    Attributes:
        end_at_head: Ends the session where its session server does not answer, or raises the error
            that says so.
        leave: Leaves the session where its session server was restarted, so that it continues, or
            raises the error that says that it may not.
        owned: Whether it ends soon after the client is gone without having left it.
    """

    end_at_head: Callable[[], None]
    leave: Callable[[], None]
    owned: bool


class AdoptedStream:
    """A stream that the last owner of a session has left open.

    Args:
        handle: The hold on it.
        waves: Futures of its waves, in their order.
        dropped: Number of results that were dropped meanwhile.
        paced: Whether agents push no faster than the client reads.

    Attributes:
        early: Results that arrived before they were awaited; on the session's thread.
    """

    def __init__(
        self,
        handle: StreamHandle,
        waves: list[Future[WaveResult]],
        dropped: int,
        *,
        paced: bool,
    ) -> None:
        self.handle = handle
        self.waves = waves
        self.dropped = dropped
        self.paced = paced
        self.early: list[WaveResult | SapwoodError] = []


class AttachedSession:
    """A session whose root is elsewhere, as a client holds it.

    Args:
        address: Which session.
        connect: Connects to its root.
        role: What this client wants to be.
        backlog: Bytes of open waves of one stream.
        inline_limit: Bytes up to which arrays travel in the message.
        made: How the session ends with this client, which has made it; else closing leaves it.
        thread: Its thread; by default a new one.

    Raises (from :meth:`start`):
        CommunicationError: The root does not answer.
        SapwoodError: It does not let this client in.
    """

    def __init__(
        self,
        address: SessionAddress,
        connect: Connect,
        *,
        role: ClientRole = ClientRole.OWNER,
        backlog: int = DEFAULT_BACKLOG,
        inline_limit: int = 64 * 1024,
        made: MadeSession | None = None,
        thread: LoopThread | None = None,
    ) -> None:
        self.address = address
        self.ends = made is not None
        self._made = made
        self._role = role
        self._connect = connect
        self._inline_limit = inline_limit
        thread = self._thread = thread or LoopThread("sapwood-session", self._lost)
        self._lock = threading.Lock()
        self._closed = False
        self._over: SapwoodError | None = None
        self._connection: Connection | None = None
        self._welcome: Future[wire.Admitted] = CallerFuture()
        self._reader = wire.WireReader(wire.TO_CLIENT, own=self._lent_block)
        self._sharing = False
        self._lent: dict[int, Payload] = {}
        self._pool = BlockPool(inline_limit)
        self._calls: dict[int, Future[Any]] = {}
        self._numbers = itertools.count(1)
        self._tree: Tree
        self._facts: wire.Admitted
        self._places: dict[int, PlaceView] = {}
        self._failure: SapwoodError | None = None
        self._listeners: list[Callable[[PlacesChanged], None]] = []
        self._answers: dict[str, Callable[[int, Any], None]] = {}
        self.kept: list[AdoptedStream] = []
        self._next_stream = 1
        post, pool = self._post, self._pool
        self.streams = StreamTable(thread, post, pool, backlog, NoShortcut(), self._new_stream)
        self.streams.members_of = lambda _stream: frozenset(self._tree.agent_ranks)
        limiter = self._limiter = ByteLimiter(4 * backlog, thread)
        self.requests = PendingRequests(thread, post, pool, limiter)
        self.mailbox = Mailbox(thread, post, inline_limit, self._cancel_receive)
        self.groups = ClientGroups(thread, post, pool)
        self.content = AttachedContent(self)
        self.invitations = AttachedInvitations(self)
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            **self.streams.handlers(),
            ev.Answered: self.requests.answered,
            **self.groups.handlers,
            **self.mailbox.handlers(),
            wire.Admitted: self._admitted,
            wire.NotAdmitted: self._refused,
            wire.SessionAnswer: self._called,
            wire.SweepRefused: self._sweep_refused,
            wire.StreamsKept: self._adopt,
            wire.AllHandedOver: self._handed_over,
            wire.PlaceWrote: self._wrote,
            wire.OutputDropped: self._dropped,
            wire.TreeNews: self._news,
            wire.SessionEnds: self._session_ends,
        }
        self._on_failure: Mapping[type[Any], Callable[[Any, SapwoodError], None]] = {
            **self.streams.failure_handlers(),
            ev.Answered: self.requests.not_answered,
            **self.groups.failure_handlers,
            **self.mailbox.failure_handlers(),
            wire.Admitted: self._not_admitted,
            wire.SessionAnswer: self._call_failed,
        }

    # --- life --------------------------------------------------------------------------------

    def start(self) -> None:
        """Connect to the root, and be let in."""
        self._thread.start()
        try:
            admitted = self.begin().result(ATTACH_TIMEOUT)
        except TimeoutError:
            self._leave()
            raise CommunicationError(
                f"the server of the session did not answer within {ATTACH_TIMEOUT:g} s",
                where=self.address.name,
            ) from None
        except BaseException:
            self._leave()
            raise
        _log.debug("attached", session=admitted.name, client=admitted.number)

    def begin(self) -> Future[wire.Admitted]:
        """Connect to the root; the future says whether it lets this client in."""
        self._thread.post(self._connect, self, self._thread.loop, self._failed)
        return self._welcome

    def detach(self) -> None:
        """Leave the session, which continues; this client's pending calls fail."""
        self._finish(ClosedError("this client has left the session"), session_calls.DETACH)

    def close(self) -> None:
        """Leave the session, or end it if this client is to; a second call does nothing."""
        if not self.ends:
            self.detach()
            return
        if not self._closed and self._over is None and not self.on_loop_thread:
            drain(self.streams.pushing(), CLOSING, self.places)
        self._finish(ClosedError("the cluster was closed"), session_calls.END)

    def _finish(self, reason: SapwoodError, last_call: str) -> None:
        with self._lock:
            if self._closed:
                return
            self._thread.refuse_own_thread()  # before it counts as closed: it can be closed later
            self._closed = True
        answered = False
        try:
            with contextlib.suppress(SapwoodError, TimeoutError):
                self.ask_server(last_call).result(CALL_TIMEOUT)
                answered = True
        finally:
            over = self._over
            self.part(reason)
        ended = answered or isinstance(over, ClosedError)
        if self._made is None or ended:
            return
        if last_call == session_calls.END:
            self._made.end_at_head()  # its session server may be starting again
        elif self._made.owned:
            self._made.leave()  # else the next session server ends it soon

    def part(self, reason: SapwoodError) -> None:
        """Leave without telling the root, or when it knows."""
        with contextlib.suppress(ClosedError):
            self._thread.call(self._part, reason)
        self._leave()

    def _part(self, reason: SapwoodError) -> None:
        with self._lock:
            self._over = self._over or reason  # from now on nothing is sent to the root
        self._fail_calls(reason)
        self._abandon(reason)

    def _leave(self) -> None:
        self._closed = True
        with contextlib.suppress(ClosedError):
            self._thread.call(self._disconnect)
        self._thread.stop()
        self._reader.blocks = None
        self._pool.close()

    @property
    def closed(self) -> bool:
        """Whether it was left."""
        return self._closed

    @property
    def failure(self) -> SapwoodError | None:
        """Why places stay lost, or why the root is out of reach."""
        return self._over or self._failure

    @property
    def on_loop_thread(self) -> bool:
        """Whether the caller is the session's own thread, which must not wait for it."""
        return self._thread.is_current

    @property
    def in_forked_child(self) -> bool:
        """Whether this process was forked from the one that attached."""
        return self._thread.in_forked_child

    def refuse_forked_child(self) -> None:
        """Raise ClosedError in a process that was forked from the one that attached."""
        self._thread.refuse_forked_child()

    # --- the tree ----------------------------------------------------------------------------

    @property
    def tree(self) -> Tree:
        """The present tree."""
        return self._tree

    @property
    def platforms(self) -> tuple[tuple[str, str], ...]:
        """Architecture and C library of each kind of processes."""
        return self._facts.platforms

    @property
    def pythons(self) -> tuple[str, ...]:
        """Versions of the Pythons of all processes when this client attached."""
        return self._facts.pythons

    def places(self, ranks: Iterable[int] | None = None) -> list[PlaceView]:
        """Return places as they were when the root told of them last; by default all agents."""
        known, wanted = self._places, self._tree.agent_ranks if ranks is None else ranks
        return [known[rank] for rank in wanted]

    @property
    def hosts(self) -> tuple[int, ...]:
        """The machine of each place, by rank; none where all are on one."""
        return self._machines()[0]

    def ready_hosts(self) -> list[int]:
        """Return the other machines on which processes can begin now."""
        return self._machines()[1]

    def _machines(self) -> tuple[tuple[int, ...], list[int]]:
        found = self.ask_server(session_calls.MACHINES).result(CALL_TIMEOUT)
        return typed.convert(found, tuple[tuple[int, ...], list[int]])

    def shares_machine(self, rank: int | None = None) -> bool:
        """Whether a place sees the memory and the files of this process; by default all of them."""
        if not self._sharing:
            return False
        hosts, places = self._facts.hosts, self._places
        if rank is not None:
            joined = rank in places and places[rank].joined
            return not joined and (not hosts or (rank < len(hosts) and hosts[rank] == 0))
        some_joined = any(place.joined for place in list(places.values()))
        return not (any(hosts) or some_joined or self.invitations.used)

    def subscribe(self, listener: Callable[[PlacesChanged], None]) -> Callable[[], None]:
        """Call a function for lost and replaced places, until the returned function is called."""
        self._listeners.append(listener)

        def end() -> None:
            with contextlib.suppress(ValueError):
                self._listeners.remove(listener)

        return end

    def expand(self, places: Sequence[NewAgent]) -> tuple[int, ...]:
        """Add agents while the session runs, and wait until they are ready; return their ranks."""
        wanted = msgspec.to_builtins(list(places))
        return typed.convert(
            self.ask_server(session_calls.EXPAND, wanted).result(), tuple[int, ...]
        )

    def contract(
        self,
        ranks: Sequence[int],
        seconds: float = DRAINING,
        reason: str = "it was removed from the session",
    ) -> None:
        """Remove places for good: wait for what they were asked for, then end their processes."""
        self.ask_server(session_calls.CONTRACT, [list(ranks), seconds, reason]).result()

    def drain(self, streams: Sequence[StreamPort], seconds: float) -> None:
        """Wait until what agents have sent of themselves so far has arrived."""
        drain(streams, seconds, self.places)

    # --- streams, requests, messages -----------------------------------------------------------

    def open_stream(
        self,
        handler: str,
        reduce: Mapping[str, str],
        members: Sequence[int] | None = None,
        context: str = "",
        options: StreamOptions = StreamOptions(),  # noqa: B008 - frozen
    ) -> StreamHandle:
        """Open a stream to agents."""
        ranks = self._tree.agent_ranks if members is None else members
        return self.streams.open(handler, reduce, to_ranges(ranks), context, options)

    def ask(self, rank: int, handler: str, value: Any) -> RequestFuture:
        """Have a handler called at an agent; the future is its answer."""
        encoded = values.encode(value).owned()
        return self.ask_encoded(rank, handler, encoded.body, encoded)

    def ask_encoded(
        self,
        rank: int,
        handler: str,
        body: bytes,
        arrays: values.Encoded,
        future: RequestFuture | None = None,
    ) -> RequestFuture:
        """As :meth:`ask`, with a body that the caller encoded and the arrays that belong to it."""
        return self.requests.ask(rank, handler, body, arrays, future)

    def withdraw(self, answer: RequestFuture) -> None:
        """Take a request back: its future ends with CancelledError."""
        self.requests.withdraw(answer)

    def answer(self, handler: str, function: Callable[[int, Any], None]) -> None:
        """Have ``function(rank, value)`` called when an agent asks; on the session's thread."""
        self._answers[handler] = function

    def send(self, destination: int | Iterable[int], value: Any, tag: int) -> Request:
        """Send a tagged message."""
        return self.mailbox.send(destination, value, tag)

    def receive(self, source: int, tag: int) -> Request:
        """Wait for a tagged message."""
        return self.mailbox.receive(source, tag)

    def _cancel_receive(self, number: int) -> bool:
        try:
            return bool(self.ask_server(session_calls.CANCEL_RECEIVE, number).result(CALL_TIMEOUT))
        except (SapwoodError, TimeoutError):
            return False

    # --- calls of the root ---------------------------------------------------------------------

    def ask_server(
        self, name: str, value: Any = None, payload: Payload | None = None
    ) -> Future[Any]:
        """Want something of the root itself; the future gets its answer. From any thread."""
        future: Future[Any] = CallerFuture()
        future.set_running_or_notify_cancel()
        with self._lock:
            if self._over is not None:
                future.set_exception(self._over)
                return future
            number = next(self._numbers)
            self._calls[number] = future
        self._thread.post(self._write, wire.SessionCall(number, name, value, payload))
        return future

    def tell_server(self, name: str, value: Any, payload: Payload | None = None) -> None:
        """Want something of the root that has no answer. From any thread."""
        self._thread.post(self._write, wire.SessionCall(0, name, value, payload))

    @property
    def sharing(self) -> bool:
        """Whether the root maps memory of this process."""
        return self._sharing

    # --- on the loop's thread ------------------------------------------------------------------

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
            owned=self._made is not None and self._made.owned,
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
                log_failure("decoding what the server of a session sent", exception)
            what = as_error(exception).what
            self._lost(CommunicationError(f"the session server violated the protocol: {what}"))
            if self._connection is not None:
                self._connection.abort()
            return
        for message in messages:
            try:
                self._take(message)
            except (Exception, SystemExit) as exception:  # noqa: BLE001 - it is this message's
                self._not_taken(message, exception)

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
        self._lost(
            CommunicationError(
                f"the connection to the session has ended: {reason}",
                where=self.address.name,
                hint=command("session", "show", self.address.name, cluster=self.address.cluster)
                + " says whether it still runs; attach again then",
            )
        )

    def _named(self, record: ErrorRecord) -> SapwoodError:
        """Return an error of the root, whose hint names the cluster."""
        error = SapwoodError.from_record(record)
        error.hint = naming(error.hint, self.address.cluster)
        return error

    def _failed(self, error: CommunicationError) -> None:
        self._welcome.set_exception(error)

    def _refused(self, message: wire.NotAdmitted) -> None:
        self._welcome.set_exception(self._named(message.error))

    def _admitted(self, admitted: wire.Admitted) -> None:
        """Go on, unless the streams that the last owner has left come first."""
        if self._role is not ClientRole.OWNER:
            self._welcome.set_result(admitted)

    def _not_admitted(self, _message: wire.Admitted, error: SapwoodError) -> None:
        self._welcome.set_exception(error)

    def _take_in(self, admitted: wire.Admitted) -> None:
        self._facts = admitted
        self._tree = admitted.tree
        self._places = {one.rank: one for one in admitted.places}
        if admitted.failure is not None:
            self._failure = self._named(admitted.failure)
        self._sharing = admitted.shares_memory
        if self._sharing:
            self._reader.blocks = MappedBlocks()
        else:
            largest = admitted.largest
            self._limiter.largest = self.streams.largest = self.mailbox.largest = largest

    @property
    def largest(self) -> int:
        """Bytes of the largest payload that may be sent to the root at once."""
        return self._limiter.largest

    def _take(self, message: msgspec.Struct) -> None:
        if isinstance(message, wire.Admitted):
            self._take_in(message)
        handler = self._handlers.get(type(message))
        if handler is None:
            return
        try:
            handler(message)
        finally:
            payload: Payload | None = getattr(message, "payload", None)
            ref = payload.ref if payload is not None else None
            if ref is not None and not isinstance(message, ev.Released | gev.Discarded):
                self._write(wire.MemoryTaken(ref.fd))

    def _lent_block(self, ref: SharedRef) -> Any:
        """Return the owner of memory that the root gives back; None for the root's own."""
        if ref.pid != os.getpid():
            return None
        payload = self._lent.pop(ref.fd, None)
        return None if payload is None else payload.owner

    def _post(self, event: ev.Event) -> None:
        """Give the root an event."""
        if isinstance(event, gev.ForgetGroups):
            return  # the root does so itself when this client is gone
        payload: Payload | None = getattr(event, "payload", None)
        if payload is not None and isinstance(event, ev.Broadcast | gev.CallGroup):
            if self._sharing and payload.ref is not None:
                self._lent[payload.ref.fd] = payload
            elif payload.owner is not None:
                self._write(event)
                self._used(event, payload)
                return
        self._write(event)

    def _used(self, event: ev.Event, payload: Payload) -> None:
        """Release messages that have been written."""
        if isinstance(event, ev.Broadcast):
            self._handlers[ev.Released](ev.Released(payload))
        elif isinstance(event, gev.CallGroup):
            self._handlers[gev.Discarded](gev.Discarded(payload))

    def _write(self, message: msgspec.Struct) -> None:
        if self._over is not None or self._connection is None:
            if isinstance(message, wire.SessionCall):
                self._called(wire.SessionAnswer(message.number, None, self._why().to_record()))
                return
            self._refuse(message)
            return
        try:
            buffers = wire.pack(message, sharing=self._sharing)
        except ProtocolError as error:
            if not isinstance(message, wire.SessionCall):
                raise
            self._called(wire.SessionAnswer(message.number, None, error.to_record()))
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

    def _why(self) -> SapwoodError:
        return self._over or ClosedError("the session was left")

    def _called(self, message: wire.SessionAnswer) -> None:
        with self._lock:
            future = self._calls.pop(message.number, None)
        if future is None:
            return
        if message.error is not None:
            future.set_exception(self._named(message.error))
        else:
            future.set_result(message.value)

    def _call_failed(self, message: wire.SessionAnswer, error: SapwoodError) -> None:
        with self._lock:
            future = self._calls.pop(message.number, None)
        if future is not None:
            future.set_exception(error)

    def _new_stream(self) -> int:
        number = self._next_stream
        self._next_stream += 1
        return number

    def _adopt(self, message: wire.StreamsKept) -> None:
        """Hold the streams that the last owner has left."""
        for one in message.streams:
            handle, futures = self.streams.adopt(one.spec, one.begun, one.waiting)
            adopted = AdoptedStream(handle, futures, one.dropped, paced=one.paced)
            handle.on_contribution = adopted.early.append
            self._next_stream = max(self._next_stream, one.spec.stream + 1)
            self.kept.append(adopted)
        self._welcome.set_result(self._facts)

    def _handed_over(self, message: wire.AllHandedOver) -> None:
        """Say that what was kept is here: until then the root gives it to the next one as well."""
        del message
        self._write(wire.SessionCall(0, session_calls.TAKEN))

    def call(self, function: Callable[[], T]) -> T:
        """Call a function on the session's thread and return its result."""
        return self._thread.call(function)

    def _sweep_refused(self, message: wire.SweepRefused) -> None:
        error = self._named(message.error)
        self.streams.sweep_refused(message.stream, message.number, error)

    def _wrote(self, message: wire.PlaceWrote) -> None:
        for function in self._answers.values():
            function(message.rank, message.data)

    def _dropped(self, message: wire.OutputDropped) -> None:
        for rank, nbytes in sorted(message.nbytes.items()):
            text = f"[{nbytes} bytes were dropped while no client was attached]\n"
            self._wrote(wire.PlaceWrote(rank, text.encode()))

    def _news(self, message: wire.TreeNews) -> None:
        self._places |= {one.rank: one for one in message.places}
        if message.tree is not None:  # after its places, because a receiver of one asks for it
            self._tree = message.tree
        if message.failure is not None:
            self._failure = self._named(message.failure)
        if message.change.ranks:
            self._tell_listeners(message.change)

    def _session_ends(self, message: wire.SessionEnds) -> None:
        if message.error is not None:
            self._lost(self._named(message.error))
            return
        self._lost(ClosedError(f"the session has ended: {message.reason}", where=self.address.name))

    def _lost(self, error: SapwoodError) -> None:
        with self._lock:
            if self._over is None and not self._closed:
                self._over = error
        self._welcome.set_exception(error)
        left = ClosedError("this client has left the session")
        self._fail_calls(error if self._over is error else left)
        if self._over is error:
            self._abandon(error)
            gone = PlacesChanged(
                tuple(self._places) if self._places else (),
                tuple(self._tree.agent_ranks) if self._places else (),
                back=False,
                reason=error.what,
                for_good=True,
            )
            self._tell_listeners(gone)

    def _tell_listeners(self, change: PlacesChanged) -> None:
        for listener in tuple(self._listeners):  # also after one that raises
            fail("a change of places", listener, change)

    def _fail_calls(self, error: SapwoodError) -> None:
        """Fail calls that the root will not answer."""
        with self._lock:
            calls, self._calls = list(self._calls.values()), {}
        for future in calls:
            future.set_exception(error)

    def _abandon(self, reason: SapwoodError) -> None:
        self.streams.refuse(reason)
        self.requests.abandon(reason)
        self.groups.abandon(reason)
        self.mailbox.abandon(reason)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.abort()


class AttachedInvitations:
    """How processes that others start become agents of a session: its root does all of it.

    Attributes:
        listed_by: What shows the invitations, for hints.
        used: Whether this client has invited any.
    """

    def __init__(self, session: AttachedSession) -> None:
        self._session = session
        at = session.address
        self.listed_by = command("agent", "list", at.name or at.session, cluster=at.cluster)
        self.used = False

    def create(self, count: int, lifetime: float, listen: str = "") -> list[str]:
        """Make invitations; return their lines, which are secrets."""
        self.used = True
        found = self._session.ask_server(session_calls.INVITE, [count, lifetime, listen])
        return typed.convert(found.result(CALL_TIMEOUT), list[str])

    def views(self) -> list[InvitationView]:
        """Return snapshots of all invitations."""
        found = self._session.ask_server(session_calls.INVITATIONS)
        return typed.convert(found.result(CALL_TIMEOUT), list[InvitationView])

    def revoke(self, invitation: str) -> bool:
        """Revoke an invitation; return whether it existed."""
        found = self._session.ask_server(session_calls.REVOKE_INVITATION, invitation)
        return typed.convert(found.result(CALL_TIMEOUT), bool)

    def close(self) -> None:
        """Do nothing: the agents belong to the root, which continues."""


class AttachedContent:
    """What a client offers to places, by its hash, through the server of its session.

    Nothing here waits for the root: it has an offer before what needs it, as both go one way.
    """

    def __init__(self, session: AttachedSession) -> None:
        self._session = session

    def offer(self, data: bytes | bytearray | memoryview) -> ContentRef:
        """Offer bytes, of which a copy is made."""
        view = memoryview(data).cast("B")
        return self._offer(bytes(view), hashlib.sha256(view).hexdigest())

    def offer_memory(self, memory: SharedRef) -> ContentRef:
        """Offer shared memory of this process, which must not change meanwhile."""
        sha256 = hash_of_memory(memory)
        if self._session.sharing:
            wanted = [msgspec.to_builtins(memory), sha256]
            self._session.tell_server(session_calls.OFFER_MEMORY, wanted)
            return ContentRef(sha256, memory.nbytes)
        return self._offer(bytes(MappedBlocks().view(memory)), sha256)

    def offer_file(
        self, stamp: FileStamp, offset: int = 0, nbytes: int | None = None, sha256: str = ""
    ) -> ContentRef:
        """Offer a file, or a part of it; places that see the same file are to use that."""
        length = stamp.size - offset if nbytes is None else nbytes
        if self._session.sharing:
            ref = ContentRef(sha256, length, stamp, offset)
            self._session.tell_server(
                session_calls.OFFER_FILE, msgspec.to_builtins(ref, builtin_types=(bytes,))
            )
            return ref
        fd = os.open(stamp.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.pread(fd, length, offset)
        finally:
            os.close(fd)
        found = sha256 or hashlib.sha256(data).hexdigest()
        self._offer(data, found)
        return ContentRef(found, length, stamp, offset)

    def withdraw(self, ref: ContentRef) -> None:
        """Offer something once less; with the last time it is gone."""
        with contextlib.suppress(ClosedError):
            self._session.tell_server(
                session_calls.WITHDRAW, msgspec.to_builtins(ref, builtin_types=(bytes,))
            )

    def _offer(self, data: bytes, sha256: str) -> ContentRef:
        check_size(len(data), self._session.largest)
        self._session.tell_server(session_calls.OFFER, sha256, Payload(data))
        return ContentRef(sha256, len(data))
