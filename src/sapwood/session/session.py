"""A session on this machine: a tree of forked processes, its streams and requests.

The front end is the user's process. A thread of its own runs the event loop with the root of
the tree; everything that changes happens on that thread, and the methods here may be called
from any other.
"""

import contextlib
import os
import secrets
import shutil
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from sapwood.comm import events as ev
from sapwood.comm import values
from sapwood.comm.link import Identity
from sapwood.comm.loop import Loop
from sapwood.comm.machine import machine_id
from sapwood.comm.node import Node
from sapwood.comm.place import Place
from sapwood.comm.pool import BlockPool
from sapwood.comm.reduction import gathering
from sapwood.comm.streams.sweeps import FLUSH
from sapwood.comm.transport.base import Listener
from sapwood.comm.transport.unix import UnixTransport
from sapwood.contexts import orders
from sapwood.contexts.forge import Forge
from sapwood.contexts.plan import Plan
from sapwood.core.clock import MonotonicClock
from sapwood.core.errors import ClosedError, SapwoodError
from sapwood.core.optional import fastpath
from sapwood.core.rankset import from_ranges, to_ranges
from sapwood.core.topology import ROOT
from sapwood.environment.lifecycle import Lifecycle, State
from sapwood.environment.logs import logger
from sapwood.session.agent import READY
from sapwood.session.folder import make_folder
from sapwood.session.gate import Gate
from sapwood.session.groups import SessionGroups
from sapwood.session.hosts import Tenancy
from sapwood.session.keeper import Beginning, Change, Keeper, Patience
from sapwood.session.loop_thread import LoopThread
from sapwood.session.mailbox import Mailbox
from sapwood.session.member import MemberConfiguration
from sapwood.session.options import PlacesChanged, SessionOptions
from sapwood.session.places import PlaceState, census_of
from sapwood.session.questions import Answer, Questions
from sapwood.session.shortcut import NoShortcut, Shortcut
from sapwood.session.stream_table import Filters, StreamTable
from sapwood.session.streams import StreamHandle, StreamOptions

CLOSING = 5.0
"""Seconds that the end of a cluster waits for what agents have sent of themselves."""

DRAIN_PAUSE = 0.02
"""Seconds between two looks for places that are cut off from the tree."""

_log = logger("session")

REHEARSAL = "sapwood.session.member:rehearse"


MakeFilters = Callable[[Loop, Callable[[], Forge], Callable[[ev.Event], None]], Filters]


class Session:
    """A tree of processes on this machine.

    Args:
        options: How it is made.
        host: The session whose agents take part, as leaves of this further tree; without one it
            starts its own.

    Raises (from :meth:`start`):
        ResourceError: Processes cannot be started.
        AgentLostError: A process ended before it was ready, again and again.
    """

    def __init__(self, options: SessionOptions, host: "Session | None" = None) -> None:
        self.options = options
        self._host = host
        self.tree = options.tree
        self.pool = BlockPool(options.inline_limit)
        self._folder = make_folder()
        self._thread = LoopThread("sapwood-session")
        self.shortcut = self._make_shortcut()
        self.streams = StreamTable(
            self._thread, self._post, self.pool, options.backlog, self.shortcut
        )
        self._listeners: list[Callable[[PlacesChanged], None]] = []
        self._lock = threading.Lock()
        self._closed = False
        self.life = Lifecycle("session", MonotonicClock())
        self.ready_seconds = 0.0
        self._server: Listener | None = None
        timing = msgspec.structs.replace(options.timing, give_up_after=options.ready_timeout)
        configuration = MemberConfiguration(
            cluster=self._folder.name,
            folder=str(self._folder),
            credential=secrets.token_bytes(32),
            machine=machine_id() if options.shared_memory else "",
            tree=options.tree,
            timing=timing,
            inline_limit=options.inline_limit,
            extra=options.extra,
        )
        identity = Identity(
            configuration.cluster,
            ROOT,
            1,
            os.getpid(),
            configuration.machine or "front end",
            configuration.credential,
        )
        node = Node(identity, options.tree, timing, gathering(self.pool.place))
        self._address = configuration.address(ROOT)
        self.keeper = Keeper(
            options.tree,
            self._beginning(configuration),
            options.restart,
            Patience(
                attach=2 * timing.failure_after,
                join=options.join_timeout,
                heartbeat=timing.heartbeat,
                silence=timing.failure_after,
            ),
            self._places_changed,
        )
        gate = Gate(4 * options.backlog, self._thread)
        self.questions = Questions(self._thread, self._post, self.pool, gate)
        self.mailbox = Mailbox(self._thread, self._post, options.inline_limit, node.tagged)
        self.groups = SessionGroups(self._thread, self._post, self.pool)
        self._place = Place(
            node,
            {
                ev.PlaceJoined: self.keeper.joined,
                ev.PlacesLost: self.keeper.lost,
                **self.streams.handlers(),
                ev.Answered: self.questions.answered,
                ev.Asked: self.questions.asked,
                **self.groups.handlers,
                **self.mailbox.handlers(),
            },
            self._thread.loop,
            _problem,
        )
        self._thread.on_error = self._broken

    # --- life --------------------------------------------------------------------------------

    def start(self) -> None:
        """Start all processes and wait until they are ready; then tell all of them so."""
        self.life.move(State.STARTING)
        begin = time.perf_counter()
        try:
            self.keeper.start()
            self._thread.start()
            self._thread.post(self._listen)
            self.keeper.wait_ready(self.options.ready_timeout)
            self.ready_seconds = time.perf_counter() - begin
            self.life.move(State.READY)
            self._announce_readiness()
        except BaseException:
            self.close()
            raise

    @property
    def platforms(self) -> tuple[tuple[str, str], ...]:
        """Architecture and C library of each kind of processes; none before :meth:`start`."""
        if self._host is not None:
            return self._host.platforms
        return tuple((zygote.architecture, zygote.libc) for zygote in self.keeper.zygotes)

    @property
    def is_own_thread(self) -> bool:
        """Whether the caller is the session's own thread, which must not wait for it."""
        return self._thread.is_current

    @property
    def is_foreign(self) -> bool:
        """Whether this process was forked from the one that has the session."""
        return self._thread.is_foreign

    def must_be_own(self) -> None:
        """Raise ClosedError in a process that was forked from the one that has the session."""
        self._thread.must_be_own()

    def drain(self, streams: Sequence[StreamHandle], seconds: float) -> None:
        """Wait until what agents have sent of themselves so far has arrived.

        Args:
            streams: On which.
            seconds: How long to wait at most. Processes that have ended are not waited for.
        """
        end = time.monotonic() + seconds
        for stream in streams:
            with contextlib.suppress(SapwoodError, TimeoutError):
                while self._is_unheard(stream, end) and time.monotonic() < end:
                    time.sleep(DRAIN_PAUSE)  # until places that were cut off are back

    def _is_unheard(self, stream: StreamHandle, end: float) -> bool:
        """Flush a stream; say whether agents that live were not reached."""
        swept = stream.sweep(FLUSH).result(max(0.0, end - time.monotonic()))
        unheard = from_ranges(stream.spec.members) - from_ranges(swept.reached)
        alive = (PlaceState.READY, PlaceState.ADRIFT)
        return any(self.keeper.places[rank].state in alive for rank in unheard)

    def close(self) -> None:
        """End all processes and leave nothing behind; a second call does nothing.

        What agents have sent of themselves before arrives first, if that takes no longer than
        :data:`CLOSING`.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if self.life.state is State.READY and not self.is_own_thread:
            self.drain(self.streams.unasked(), CLOSING)
        if self.life.state is not State.CREATED:
            self.life.move(State.STOPPING)
        if self._thread.started:
            self._thread.call(self._end)
        self.keeper.close()
        self._thread.stop()
        self.shortcut.close()
        self.pool.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        self.life.move(State.STOPPED)
        _log.debug("closed")

    def _announce_readiness(self) -> None:
        """Tell every agent that all are there; nobody waits for their answers."""
        agents = self.tree.agents
        _log.info("ready", agents=agents, seconds=round(self.ready_seconds, 3))
        self._service = self.open_stream(READY, {})
        self._service.broadcast({"agents": agents, "seconds": self.ready_seconds})

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._closed

    def subscribe(self, listener: Callable[[PlacesChanged], None]) -> Callable[[], None]:
        """Have a function told of lost and replaced places, on the loop's thread.

        Returns:
            A function that ends the subscription.
        """
        self._listeners.append(listener)

        def end() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return end

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
        ranks = range(1, self.tree.agents + 1) if members is None else members
        return self.streams.open(handler, reduce, to_ranges(ranks), context, options)

    def ask(self, rank: int, handler: str, value: Any) -> Answer:
        """Have a handler called at an agent; the future is its answer.

        Raises:
            DataValueError: The value cannot travel.
            ClosedError: The session is closed.
        """
        encoded = values.encode(value)
        return self.ask_encoded(rank, handler, encoded.body, encoded)

    def ask_encoded(
        self,
        rank: int,
        handler: str,
        body: bytes,
        arrays: values.Encoded,
        future: Answer | None = None,
    ) -> Answer:
        """As :meth:`ask`, with a body that the caller encoded and the arrays that belong to it.

        The answer goes to ``future``, if there is one.
        """
        return self.questions.ask(rank, handler, body, arrays, future)

    def answer(self, handler: str, function: Callable[[int, Any], None]) -> None:
        """Have ``function(rank, value)`` called when an agent asks; on the loop's thread."""
        self.questions.answer(handler, function)

    def host_filters(self, make: MakeFilters) -> None:
        """Have own filters of the root called by what ``make(loop, forge, post)`` returns."""
        self.streams.filters = make(self._thread.loop, self.keeper.forge, self._post)

    def _make_shortcut(self) -> Shortcut:
        room = fastpath("exchange") if self.options.fastpath else None
        if room is None:
            return NoShortcut()
        options = self.options
        made: Shortcut = room.WaveExchange(self._thread.loop, options.inline_limit, options.spin)
        return made

    def start_shortcut(self) -> bool:
        """Have waves exchanged from now on, if that can be; on the loop's thread."""
        return self.shortcut.start(self._place)

    def on_loop(self, function: Callable[..., Any], *args: Any) -> None:
        """Have a function called on the loop's thread."""
        self._thread.post(function, *args)

    @property
    def failure(self) -> SapwoodError | None:
        """Why places stay lost, if the restart policy gave up."""
        return self.keeper.failure

    # --- on the loop's thread ----------------------------------------------------------------

    def _post(self, event: ev.Event) -> None:
        self._place.post(event)

    def _listen(self) -> None:
        loop = self._thread.loop
        loop.spawn(self._accept(UnixTransport(loop)))
        self._place.start()
        self.keeper.listen(loop)

    async def _accept(self, transport: UnixTransport) -> None:
        try:
            self._server = await transport.listen(self._address, self._place)
        except SapwoodError as error:
            self.keeper.give_up(error)

    def _end(self) -> None:
        reason = ClosedError("the cluster was closed")
        self.streams.refuse(reason)
        self.questions.abandon(reason)
        self.groups.abandon(reason)
        self.mailbox.abandon(reason)
        self.keeper.detach()
        if self._server is not None:
            self._server.close()
        self._place.close()

    def _broken(self, exception: Exception) -> None:
        """Fail everything that is under way: a mistake of Sapwood itself must not be a hang."""
        traceback.print_exception(exception)
        error = SapwoodError(
            f"internal error: {exception!r}",
            hint="please report this with the traceback above",
        )
        self.streams.abandon(error)
        self.questions.abandon(error)
        self.groups.abandon(error)
        self.mailbox.abandon(error)
        self.keeper.give_up(error)

    def _places_changed(self, change: Change) -> None:
        if not change.adrift:
            self._post(census_of(self.keeper.places, change.ranks, change.reason, back=change.back))
        agents = tuple(rank for rank in change.ranks if self.tree.is_agent(rank))
        told = PlacesChanged(change.ranks, agents, change.back, change.reason, change.adrift)
        for listener in tuple(self._listeners):
            listener(told)

    def _beginning(self, configuration: MemberConfiguration) -> Beginning:
        options, host = self.options, self._host
        encoded = msgspec.msgpack.encode(configuration)
        return Beginning(
            self._entry,
            orders.Configure(str(self._folder), encoded, options.environment),
            Plan(
                () if host is not None else (options.agent_entry.partition(":")[0],),
                (options.junction_entry.partition(":")[0], *options.runner_modules),
                options.runner_entry,
                REHEARSAL,
                options.interpreter,
            ),
            options.interpreters,
            Tenancy(host, configuration.cluster, encoded) if host is not None else None,
        )

    def _entry(self, rank: int) -> str:
        return self.options.agent_entry if self.tree.is_agent(rank) else self.options.junction_entry


def _problem(text: str) -> None:
    _log.warning("peer cut off", reason=text)
