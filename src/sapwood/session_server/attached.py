"""The interface of a session whose root is in another process.

What a client does with streams, requests, messages and groups is the same as where the root is
its own: the same classes make events and take effects. Here the events travel as messages.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import msgspec

from sapwood.comm import events as ev
from sapwood.comm import values
from sapwood.comm.pool import BlockPool
from sapwood.core import typed
from sapwood.core.errors import ClosedError, CommunicationError, SapwoodError
from sapwood.core.rankset import to_ranges
from sapwood.core.request import Request
from sapwood.core.topology import Tree
from sapwood.environment.logs import logger
from sapwood.session.back_pressure import DEFAULT_BACKLOG, ByteLimiter
from sapwood.session.client_groups import ClientGroups
from sapwood.session.draining import drain
from sapwood.session.embedded import CLOSING, DRAINING
from sapwood.session.interface import NewAgent, ProcessView, StreamInterface
from sapwood.session.loop_thread import LoopThread
from sapwood.session.mailbox import Mailbox
from sapwood.session.options import PlacesChanged
from sapwood.session.requests import PendingRequests, RequestFuture
from sapwood.session.shortcut import NoShortcut
from sapwood.session.streams import StreamHandle, StreamOptions, StreamTable
from sapwood.session_server import session_calls, wire
from sapwood.session_server.adopted import AdoptedStreams
from sapwood.session_server.attached_content import AttachedContent, AttachedInvitations
from sapwood.session_server.attached_tree import AttachedTree
from sapwood.session_server.rights import ClientRole
from sapwood.session_server.server_link import (
    CALL_TIMEOUT,
    Connect,
    FailureHandlers,
    Handlers,
    ServerLink,
    SessionAddress,
)

T = TypeVar("T")

ATTACH_TIMEOUT = 10.0
"""Seconds in which a session server answers a client that comes."""

_log = logger("session")


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


class _Output:
    """Receives what agents print, and what they send unasked."""

    def __init__(self) -> None:
        self._answers: dict[str, Callable[[int, Any], None]] = {}

    def answer(self, handler: str, function: Callable[[int, Any], None]) -> None:
        """Have a function called when an agent asks."""
        self._answers[handler] = function

    def wrote(self, message: wire.PlaceWrote) -> None:
        """Pass on what a place has printed."""
        for function in self._answers.values():
            function(message.rank, message.data)

    def dropped(self, message: wire.OutputDropped) -> None:
        """Report how much output was dropped."""
        for rank, nbytes in sorted(message.nbytes.items()):
            text = f"[{nbytes} bytes were dropped while no client was attached]\n"
            self.wrote(wire.PlaceWrote(rank, text.encode()))


class AttachedSession:
    """A session whose root is in another process, as its client holds it.

    Args:
        address: Which session.
        connect: Connects to its server.
        role: What this client wants to be.
        backlog: Bytes of open waves of one stream.
        inline_limit: Bytes up to which arrays travel in the message.
        made: How the session ends with this client, which has made it; else closing leaves it.
        thread: Its thread; by default a new one.

    Attributes:
        address: Which session.
        ends: Whether closing ends the session.
        link: The connection to its server.
        kept: The streams that the last owner has left open.

    Raises (from :meth:`start`):
        CommunicationError: The server does not answer.
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
        thread = self._thread = thread or LoopThread(
            "sapwood-session",
            lambda error: self.link.lose(error),  # noqa: PLW0108 - it is made later
        )
        owned = made is not None and made.owned
        link = self.link = ServerLink(address, connect, role, self._lost, thread, owned=owned)
        self._tree = tree = AttachedTree(link)
        self._output = output = _Output()
        adopted = self._adopted = AdoptedStreams()
        self.kept = adopted.streams
        self._pool = pool = BlockPool(inline_limit)
        post, new_stream = link.post, adopted.new_number
        self.streams = StreamTable(thread, post, pool, backlog, NoShortcut(), new_stream)
        self.streams.members_of = lambda _stream: frozenset(tree.tree.agent_ranks)
        self._limiter = ByteLimiter(4 * backlog, thread)
        self.requests = PendingRequests(thread, post, pool, self._limiter)
        self.mailbox = Mailbox(thread, post, inline_limit, link.cancel_receive)
        self.groups = ClientGroups(thread, post, pool)
        self.content = AttachedContent(link)
        self.invitations = AttachedInvitations(link)
        handlers: Handlers = {
            **self.streams.handlers(),
            ev.Answered: self.requests.answered,
            **self.groups.handlers,
            **self.mailbox.handlers(),
            wire.Admitted: self._admitted,
            wire.SweepRefused: partial(_refuse_sweep, link, self.streams),
            wire.StreamsKept: self._adopt,
            wire.PlaceWrote: output.wrote,
            wire.OutputDropped: output.dropped,
            wire.TreeNews: tree.news,
        }
        on_failure: FailureHandlers = {
            **self.streams.failure_handlers(),
            ev.Answered: self.requests.not_answered,
            **self.groups.failure_handlers,
            **self.mailbox.failure_handlers(),
        }
        link.serve(handlers, on_failure)

    # --- life ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Connect to the server, and be let in."""
        self._thread.start()
        try:
            admitted = self.link.begin().result(ATTACH_TIMEOUT)
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

    def detach(self) -> None:
        """Leave the session, which continues; this client's pending calls fail."""
        self._finish(ClosedError("this client has left the session"), session_calls.DETACH)

    def close(self) -> None:
        """Leave the session, or end it if this client is to; a second call does nothing."""
        if not self.ends:
            self.detach()
            return
        if not self.link.closing and self.link.over is None and not self._thread.is_current:
            drain(self.streams.pushing(), CLOSING, self.processes)
        self._finish(ClosedError("the cluster was closed"), session_calls.END)

    def _finish(self, reason: SapwoodError, last_call: str) -> None:
        link = self.link
        if not link.begin_closing():
            return
        answered = False
        try:
            with contextlib.suppress(SapwoodError, TimeoutError):
                link.ask(last_call).result(CALL_TIMEOUT)
                answered = True
        finally:
            over = link.over
            self.part(reason)
        ended = answered or isinstance(over, ClosedError)
        if self._made is None or ended:
            return
        if last_call == session_calls.END:
            self._made.end_at_head()  # its session server may be starting again
        elif self._made.owned:
            self._made.leave()  # else the next session server ends it soon

    def part(self, reason: SapwoodError) -> None:
        """Leave without telling the server, or when it knows."""

        def end() -> None:
            self.link.end(reason)
            self._abandon(reason)

        with contextlib.suppress(ClosedError):
            self._thread.call(end)
        self._leave()

    def _leave(self) -> None:
        self.link.closing = True
        with contextlib.suppress(ClosedError):
            self._thread.call(self.link.disconnect)
        self._thread.stop()
        self.link.release_memory()
        self._pool.close()

    @property
    def closed(self) -> bool:
        """Whether it was left."""
        return self.link.closing

    @property
    def failure(self) -> SapwoodError | None:
        """Why places stay lost, or why the root is out of reach."""
        return self.link.over or self._tree.failure

    @property
    def thread(self) -> LoopThread:
        """The thread of its loop."""
        return self._thread

    # --- the tree ----------------------------------------------------------------------------

    @property
    def tree(self) -> Tree:
        """The present tree."""
        return self._tree.tree

    @property
    def platforms(self) -> tuple[tuple[str, str], ...]:
        """Architecture and C library of each kind of processes."""
        return self._tree.facts.platforms

    @property
    def pythons(self) -> tuple[str, ...]:
        """Versions of the Pythons of all processes when this client attached."""
        return self._tree.facts.pythons

    def processes(self, ranks: Iterable[int] | None = None) -> list[ProcessView]:
        """Return processes as the server has reported them last; by default all agents."""
        return self._tree.processes(ranks)

    @property
    def hosts(self) -> tuple[int, ...]:
        """The machine of each place, by rank; none where all are on one."""
        return self._tree.machines()[0]

    def ready_hosts(self) -> list[int]:
        """Return the other machines on which processes can begin now."""
        return self._tree.machines()[1]

    def shares_machine(self, rank: int | None = None) -> bool:
        """Whether a place sees the memory and the files of this process; by default all of them."""
        return self._tree.shares_machine(rank, invited=self.invitations.used)

    def subscribe(self, listener: Callable[[PlacesChanged], None]) -> Callable[[], None]:
        """Call a function for lost and replaced places, until the returned function is called."""
        return self._tree.subscribe(listener)

    def expand(self, places: Sequence[NewAgent]) -> tuple[int, ...]:
        """Add agents while the session runs, and wait until they are ready; return their ranks."""
        wanted = msgspec.to_builtins(list(places))
        return typed.convert(self.link.ask(session_calls.EXPAND, wanted).result(), tuple[int, ...])

    def contract(
        self,
        ranks: Sequence[int],
        seconds: float = DRAINING,
        reason: str = "it was removed from the session",
    ) -> None:
        """Remove places for good: wait for what they were asked for, then end their processes."""
        self.link.ask(session_calls.CONTRACT, [list(ranks), seconds, reason]).result()

    def drain(self, streams: Sequence[StreamInterface], seconds: float) -> None:
        """Wait until what agents have sent of themselves so far has arrived."""
        drain(streams, seconds, self.processes)

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
        ranks = self._tree.tree.agent_ranks if members is None else members
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
        self._output.answer(handler, function)

    def send(self, destination: int | Iterable[int], value: Any, tag: int) -> Request:
        """Send a tagged message."""
        return self.mailbox.send(destination, value, tag)

    def receive(self, source: int, tag: int) -> Request:
        """Wait for a tagged message."""
        return self.mailbox.receive(source, tag)

    def call(self, function: Callable[[], T]) -> T:
        """Call a function on the session's thread and return its result."""
        return self._thread.call(function)

    # --- on the loop's thread ------------------------------------------------------------------

    def _admitted(self, admitted: wire.Admitted) -> None:
        """Go on, unless the streams that the last owner has left come first."""
        self._tree.admitted(admitted)
        self.link.admitted(admitted)
        if not admitted.shares_memory:
            largest = admitted.largest
            self._limiter.largest = self.streams.largest = self.mailbox.largest = largest
        if self._role is not ClientRole.OWNER:
            self.link.welcome.set_result(admitted)

    def _adopt(self, message: wire.StreamsKept) -> None:
        self._adopted.adopt(self.streams, message)
        self.link.welcome.set_result(self._tree.facts)

    def _lost(self, error: SapwoodError) -> None:
        self._abandon(error)
        self._tree.lost(error)

    def _abandon(self, reason: SapwoodError) -> None:
        self.streams.refuse(reason)
        self.requests.abandon(reason)
        self.groups.abandon(reason)
        self.mailbox.abandon(reason)


def _refuse_sweep(link: ServerLink, streams: StreamTable, message: wire.SweepRefused) -> None:
    streams.sweep_refused(message.stream, message.number, link.named(message.error))
