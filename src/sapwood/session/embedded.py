"""A session whose host lives in the user's process, and the interface to it.

A separate thread drives the host with the event loop; every change happens on that
thread, and the methods here may be called from any other.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from sapwood.comm import events as ev
from sapwood.comm import values
from sapwood.comm.driver import FailureHandlers
from sapwood.comm.loop import Loop
from sapwood.content.messages import GET, NAME
from sapwood.content.offers import ContentOffers
from sapwood.content.refs import ContentChunk
from sapwood.contexts.runner_factory import RunnerFactory
from sapwood.core.clock import MonotonicClock
from sapwood.core.errors import ClosedError, ConfigurationError, SapwoodError
from sapwood.core.failures import run_all
from sapwood.core.optional import fastpath
from sapwood.core.rankset import to_ranges
from sapwood.core.request import Request
from sapwood.core.topology import Tree
from sapwood.environment.lifecycle import Lifecycle, State
from sapwood.environment.logs import logger
from sapwood.session.agent import READY
from sapwood.session.back_pressure import ByteLimiter
from sapwood.session.client_groups import ClientGroups
from sapwood.session.draining import drain
from sapwood.session.host import SessionHost
from sapwood.session.interface import (
    HostedInvitations,
    NewAgent,
    ProcessView,
    SessionInterface,
    StreamInterface,
)
from sapwood.session.loop_thread import LoopThread
from sapwood.session.mailbox import Mailbox
from sapwood.session.options import PlacesChanged, SessionOptions
from sapwood.session.readiness import ReadinessNews
from sapwood.session.requests import PendingRequests, RequestFuture
from sapwood.session.secondary_tree import PrimarySession
from sapwood.session.shared_reactor import SharedReactor
from sapwood.session.shortcut import NoShortcut, Shortcut
from sapwood.session.streams import Filters, StreamHandle, StreamOptions, StreamTable
from sapwood.session.supervisor import NodeSource
from sapwood.session.tree_changes import TreeChanges

CLOSING = 5.0
"""Seconds that the end of a cluster waits for what agents have sent of themselves."""

DRAINING = 10.0
"""Seconds for which places that are removed finish what they were asked for, by default."""

_log = logger("session")

MakeFilters = Callable[[Loop, Callable[[], RunnerFactory], Callable[[ev.Event], None]], Filters]


class EmbeddedSession:
    """A session in this process: a :class:`SessionHost`, the thread that drives it, and its port.

    Args:
        options: How it is made.
        lender: The session whose agents take part, as leaves of this secondary tree; without one it
            starts its own.
        nodes: What begins the processes of places on other machines.

    Attributes:
        invited: How processes that others start become its agents; None until one is invited.

    Raises (from :meth:`start`):
        ConfigurationError: The transport that links places is not there, or does not work.
        ResourceError: Processes cannot be started.
        AgentLostError: A process ended before it was ready, again and again.
    """

    def __init__(
        self,
        options: SessionOptions,
        lender: PrimarySession | None = None,
        nodes: NodeSource | None = None,
    ) -> None:
        self.options = options
        self._thread = LoopThread("sapwood-session", self._end)
        host = self.host = SessionHost(options, self._thread.loop, lender, nodes)
        self.loop = self._thread.loop
        self.supervisor = host.supervisor
        self.pool = host.pool
        self.shortcut = _new_shortcut(options, self.loop)
        self.streams = StreamTable(
            self._thread, host.post, host.pool, options.backlog, self.shortcut, host.new_stream
        )
        self.streams.members_of = lambda stream: _members_of(host, stream)
        self._lock = threading.Lock()
        self._closed = False
        self._changes = TreeChanges(host, self._thread, self.begin_contract, options.ready_timeout)
        self.life = Lifecycle("session", MonotonicClock())
        self.ready_seconds = 0.0
        limiter = ByteLimiter(4 * options.backlog, self._thread)
        self.requests = PendingRequests(self._thread, host.post, host.pool, limiter)
        tagged = host.node.point_to_point
        self.content = ContentOffers()
        self.requests.serve(GET, self.content.asked_for_chunk)
        self.requests.serve(NAME, self.content.asked_for_name)
        self.mailbox = Mailbox(
            self._thread,
            host.post,
            options.inline_limit,
            lambda number: self._thread.call(tagged.matching.cancel, number),
        )
        self.groups = ClientGroups(self._thread, host.post, host.pool)
        on_failure: FailureHandlers = {
            **self.streams.failure_handlers(),
            ev.Answered: self.requests.not_answered,
            ev.Asked: self.requests.not_handled,
            **self.groups.failure_handlers,
            **self.mailbox.failure_handlers(),
        }
        host.connect(self._handlers(), self.ask, on_failure)
        self._make_invitations: Callable[[], HostedInvitations] | None = None
        self.invited: HostedInvitations | None = None

    def _handlers(self) -> dict[type[ev.Effect], Callable[[Any], None]]:
        """Return what to do with the effects of the root."""
        return {
            **self.streams.handlers(),
            ev.Answered: self.requests.answered,
            ev.Asked: self.requests.asked,
            **self.groups.handlers,
            **self.mailbox.handlers(),
            ev.Released: partial(take_released, self.streams),
        }

    # --- life --------------------------------------------------------------------------------

    def start(self) -> None:
        """Start all processes and wait until they are ready; then tell all of them so."""
        self.life.move(State.STARTING)
        begin = time.perf_counter()
        try:
            self.host.try_transport()
            self.supervisor.start()
            self._thread.start()
            self._thread.post(self.host.listen)
            self.supervisor.wait_ready(self.options.ready_timeout)
            self.ready_seconds = time.perf_counter() - begin
            self.life.move(State.READY)
            _log.info("ready", agents=self.tree.agents, seconds=round(self.ready_seconds, 3))
            service = self.open_stream(READY, {}, options=StreamOptions(follows=True))
            news = ReadinessNews(
                service, self.ready_seconds, lambda: self.tree.agents, lambda: self._closed
            )
            self.subscribe(news.changed)
        except BaseException:
            self.close()
            raise

    @property
    def tree(self) -> Tree:
        """The present tree."""
        return self.host.tree

    @property
    def hosts(self) -> tuple[int, ...]:
        """The machine of each place, by rank; none where all are on one."""
        return self.host.hosts

    def ready_hosts(self) -> list[int]:
        """Return the other machines on which processes can begin now."""
        return self.host.ready_hosts()

    @property
    def platforms(self) -> tuple[tuple[str, str], ...]:
        """Architecture and C library of each kind of processes; none before :meth:`start`."""
        return self.host.platforms

    @property
    def pythons(self) -> tuple[str, ...]:
        """Versions of the Pythons of all processes, the root's first, each once."""
        return self.host.pythons

    def processes(self, ranks: Iterable[int] | None = None) -> list[ProcessView]:
        """Return the processes of places as they are now; without ranks all agents, in order."""
        records = self.supervisor.processes
        wanted = records.agents() if ranks is None else [records[rank] for rank in ranks]
        life = self.supervisor.life
        return [
            ProcessView(one.rank, one.pid, one.state, one.incarnation, life.has_joined(one.rank))
            for one in wanted
        ]

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function on the loop's thread and return its result."""
        return self._thread.call(function, *args)

    def let_join(self, make: Callable[[], HostedInvitations]) -> None:
        """Let processes that others start become agents, by what ``make`` returns when needed."""
        self._make_invitations = make

    @property
    def invitations(self) -> HostedInvitations:
        """The invitations by which other processes become its agents.

        Raises:
            ConfigurationError: This session has its own agents only.
            ClosedError: The session is closed.
        """
        with self._lock:
            if self._closed:
                raise ClosedError("the session is closed")
            if self.invited is None:
                if self._make_invitations is None:
                    raise ConfigurationError("this session has its own agents only")
                self.invited = self._make_invitations()
            return self.invited

    @property
    def thread(self) -> LoopThread:
        """The thread of its loop."""
        return self._thread

    def drain(self, streams: Sequence[StreamInterface], seconds: float) -> None:
        """Wait until what agents have sent of themselves so far has arrived.

        Args:
            streams: On which.
            seconds: How long to wait at most. Processes that have ended are not waited for.
        """
        drain(streams, seconds, self.processes)

    def close(self) -> None:
        """End all processes and leave nothing behind; a second call does nothing.

        What agents have sent of themselves before arrives first, if that takes no longer than
        :data:`CLOSING`.

        Raises:
            SapwoodError: This is the session's own thread, which cannot wait for it.
        """
        with self._lock:
            if self._closed:
                return
            self._thread.refuse_own_thread()  # before it counts as closed: it can be closed later
            self._closed = True
        pushing = self.streams.pushing() if self.life.state is State.READY else []
        run_all(
            "closing the session",
            (
                lambda: self.drain(pushing, CLOSING),
                _nothing if self.invited is None else self.invited.close,
                self._end_on_loop,
                self.host.close,
                self.content.close,
                self._thread.stop,
                self.shortcut.close,
                self.host.remove,
                partial(self.life.move, State.STOPPED),
            ),
        )
        _log.debug("closed")

    def _end_on_loop(self) -> None:
        if self.life.state is not State.CREATED:
            self.life.move(State.STOPPING)
        if self._thread.started:
            try:
                self._thread.call(self._end, ClosedError("the cluster was closed"))
            except ClosedError:  # its loop has failed, and it ends the session by the same method
                self._thread.stop()

    # --- the tree changes --------------------------------------------------------------------

    def expand(self, places: Sequence[NewAgent]) -> tuple[int, ...]:
        """Add agents while the session runs, and wait until they are ready.

        Streams that follow the tree have them from the next wave on; others keep their members.

        Args:
            places: Where they have their home, and on which machine.

        Returns:
            Their ranks, which no other place ever had.

        Raises:
            ConfigurationError: There cannot be such an agent.
            ResourceError: They cannot be started, or are not ready in time.
            AgentLostError: Their processes end again and again.
            ClosedError: The session is closed.
        """
        return self._changes.expand(places)

    def contract(
        self,
        ranks: Sequence[int],
        seconds: float = DRAINING,
        reason: str = "it was removed from the session",
    ) -> None:
        """Remove places for good: wait for what they were asked for, then end their processes.

        They take part in no wave that begins from now on, and are asked nothing more.

        Args:
            ranks: Which; with a place all that are below it.
            seconds: How long to wait at most. Open waves then continue without them, or fail,
                by their loss policy.
            reason: The reason in errors of waiting callers.

        Raises:
            ConfigurationError: One is not a place, or has places below it that stay.
            ClosedError: The session is closed.
        """
        self._changes.contract(ranks, seconds, reason)

    def begin_contract(self, ranks: Sequence[int]) -> list[Future[Any]]:
        """Take places out of the tree; return what is open of them. On the loop's thread."""
        self.host.drain(ranks)
        return [*self.streams.under_way(ranks), *self.requests.waiting_for(ranks)]

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._closed

    def subscribe(self, listener: Callable[[PlacesChanged], None]) -> Callable[[], None]:
        """Have a function told of lost and replaced places, on the loop's thread.

        Returns:
            A function that ends the subscription.
        """
        return self.host.listeners.subscribe(listener)

    # --- streams and requests ----------------------------------------------------------------

    def open_stream(
        self,
        handler: str,
        reduce: Mapping[str, str],
        members: Sequence[int] | None = None,
        context: str = "",
        options: StreamOptions = StreamOptions(),  # noqa: B008 - frozen
    ) -> StreamHandle:
        """Open a stream to agents.

        Args:
            handler: What the agents do with a wave.
            reduce: Reduction of each field of their answers.
            members: Agents that take part; all by default.
            context: What the handler belongs to.
            options: What else the stream is to be.

        Raises:
            ProtocolError: A reduction is unknown.
            ClosedError: The session is closed.

        Example:
            A stream of the built-in handler ``echo``, which returns what it is sent::

                with_all = session.open_stream("echo", {"x": "sum"})
                with_all.broadcast({"x": 1}).result().total  # {'x': number of agents}
        """
        ranks = self.tree.agent_ranks if members is None else members
        return self.streams.open(handler, reduce, to_ranges(ranks), context, options)

    def ask(self, rank: int, handler: str, value: Any) -> RequestFuture:
        """Have a handler called at an agent; the future is its answer.

        Raises:
            DataValueError: The value cannot travel.
            ClosedError: The session is closed.
        """
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
        """As :meth:`ask`, with a body that the caller encoded and the arrays that belong to it.

        The answer goes to ``future``, if there is one.
        """
        return self.requests.ask(rank, handler, body, arrays, future)

    def withdraw(self, answer: RequestFuture) -> None:
        """Take a request back: its future ends with CancelledError."""
        self.requests.withdraw(answer)

    def send(self, destination: int | Iterable[int], value: Any, tag: int) -> Request:
        """Send a tagged message.

        Raises:
            DataValueError: The value cannot travel.
            ConfigurationError: The destination or the tag is none.
            ClosedError: The session is closed.
        """
        return self.mailbox.send(destination, value, tag)

    def receive(self, source: int, tag: int) -> Request:
        """Wait for a tagged message; the request is that.

        Raises:
            ConfigurationError: The source or the tag is none.
            ClosedError: The session is closed.
        """
        return self.mailbox.receive(source, tag)

    def answer(self, handler: str, function: Callable[[int, Any], None]) -> None:
        """Have ``function(rank, value)`` called when an agent asks; on the loop's thread."""
        self.requests.answer(handler, function)

    def host_filters(self, make: MakeFilters) -> None:
        """Have own filters of the root called by what ``make(loop, new_factory, post)`` returns."""
        self.streams.filters = make(
            self._thread.loop, self.supervisor.new_runner_factory, self.host.post
        )

    def on_loop(self, function: Callable[..., Any], *args: Any) -> None:
        """Have a function called on the loop's thread, from any other."""
        self._thread.post(function, *args)

    @property
    def failure(self) -> SapwoodError | None:
        """Why places stay lost, if the restart policy gave up."""
        return self.supervisor.failure

    def shares_machine(self, rank: int | None = None) -> bool:
        """Whether a place sees the memory and the files of the root; without a rank, all do."""
        if not self.options.shared_memory:
            return False
        hosts = self.host.hosts
        if rank is not None:
            return not hosts or hosts[rank] == 0
        return not any(hosts) and self.invited is None  # what begins now may be theirs as well

    # --- on the loop's thread ----------------------------------------------------------------

    def _end(self, reason: SapwoodError) -> None:
        parts = (
            self.streams.refuse,
            self.requests.abandon,
            self.groups.abandon,
            self.mailbox.abandon,
            self._changes.abandon,
        )
        ends = [partial(part, reason) for part in parts]
        run_all("the end of the session", (*ends, self.host.end))


def take_released(streams: StreamTable, effect: ev.Released) -> None:
    """Have memory of the root used again."""
    owner = effect.payload.owner
    if isinstance(owner, ContentChunk):
        owner.taken()
    else:
        streams.released(effect)


def _nothing() -> None:
    pass


def _members_of(host: SessionHost, stream: int) -> frozenset[int]:
    found = host.node.streams.get(stream)
    return found.roster.members if found is not None else frozenset()


def _new_shortcut(options: SessionOptions, loop: SharedReactor) -> Shortcut:
    room = fastpath("exchange") if options.fastpath else None
    if room is None:
        return NoShortcut()
    made: Shortcut = room.WaveExchange(loop, options.inline_limit, options.spin)
    return made


def embedded(session: SessionInterface) -> EmbeddedSession:
    """Return the session behind a port, whose host is in this process.

    Raises:
        SapwoodError: It is in another process.
    """
    if not isinstance(session, EmbeddedSession):
        raise SapwoodError("this needs a session whose root is in this process")
    return session
