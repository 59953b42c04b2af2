"""Secondary trees: the agents of a primary session take places in further trees.

The client of a secondary tree starts no agents. It asks the agents of the primary session to
attach (:class:`AttachRequest`): in the eyes of its supervisor they are a kind of zygote
(:class:`SharedAgentStarter`). An agent that is asked takes a :class:`SecondaryPlace`, in the same
process and on the same loop. When an agent's process ends, the primary session replaces it, and the
new one is asked to attach.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from sapwood.contexts import orders
from sapwood.core import typed
from sapwood.core.errors import AgentLostError, ClosedError, CommunicationError, SapwoodError
from sapwood.core.futures import when_done
from sapwood.core.shown import shown
from sapwood.session.agent import JOIN, LEAVE, Agent, IncomingRequest
from sapwood.session.member import MemberConfiguration, read_configuration

if TYPE_CHECKING:  # agents import this module, and are to stay small
    import socket

    from sapwood.session.options import PlacesChanged
    from sapwood.session.shared_reactor import SharedReactor
    from sapwood.session.starters import ProcessStarter
    from sapwood.session.supervisor import ProcessSupervisor

LEAVE_TIMEOUT = 5.0
"""Seconds that agents get to leave a tree when it ends."""


class AttachRequest(msgspec.Struct, frozen=True):
    """Which place of which tree an agent is to take.

    Attributes:
        configuration: What all places of the tree share, encoded.
        incarnation: Which process at its place it is to be.
    """

    configuration: bytes
    incarnation: int


# --- in the client -----------------------------------------------------------------------------


class PrimarySession(Protocol):
    """The session that the agents belong to."""

    @property
    def supervisor(self) -> ProcessSupervisor:
        """Supervises its processes."""

    @property
    def platforms(self) -> tuple[tuple[str, str], ...]:
        """Architecture and C library of each kind of its processes."""

    @property
    def pythons(self) -> tuple[str, ...]:
        """Versions of the Pythons of all its processes."""

    def ask(self, rank: int, handler: str, value: Any) -> Future[Any]:
        """Have a handler called at an agent."""

    def subscribe(self, listener: Callable[[PlacesChanged], None]) -> Callable[[], None]:
        """Call a function for lost and replaced places, until the returned function is called."""


_NO_AGENT = "make a further tree over the agents that there are"


class SharedAgents:
    """What a secondary tree has of the primary session, whose agents it shares.

    Args:
        session: Theirs.
        tree: Name of the secondary tree.
        configuration: Returns what a place shares with the others of its machine, encoded.
    """

    def __init__(
        self, session: PrimarySession, tree: str, configuration: Callable[[int], bytes]
    ) -> None:
        self._session = session
        self._tree = tree
        self._configuration = configuration

    def agents(self, on_report: Callable[[orders.Report], None]) -> ProcessStarter:
        """Return what begins and ends the places of agents."""
        return SharedAgentStarter(self._session, self._tree, self._configuration, on_report)

    def lend(self) -> socket.socket:
        """Return a control socket of the session's zygote, for the junctions.

        Raises:
            ResourceError: It is gone.
        """
        return self._session.supervisor.lend()


class SharedAgentStarter:
    """Has the agents of the primary session take their places in a secondary tree.

    Args:
        session: Theirs.
        tree: Name of the secondary tree.
        configuration: Returns what a place shares with the others of its machine, encoded.
        on_report: Receives the state changes of the places, on the loop's thread.
    """

    def __init__(
        self,
        session: PrimarySession,
        tree: str,
        configuration: Callable[[int], bytes],
        on_report: Callable[[orders.Report], None],
    ) -> None:
        self._session = session
        self._tree = tree
        self._configuration = configuration
        self._on_report = on_report
        self._loop: SharedReactor | None = None
        self._wanted: dict[int, orders.ProcessSpec] = {}
        self._asked: set[int] = set()
        self._there: dict[int, tuple[orders.ProcessSpec, int]] = {}
        self._left: dict[int, str] = {}  # agents that will not be back, and why
        self._unsubscribe: Callable[[], None] = _nothing

    def start(self) -> None:
        """Subscribe to the losses of the agents' processes."""
        self._unsubscribe = self._session.subscribe(
            lambda change: self._on_loop(self._changed, change)
        )

    def listen(self, loop: SharedReactor) -> None:
        """Invite those that are wanted; called on the loop's thread."""
        self._loop = loop
        for rank in self._wanted:
            self._ask_to_attach(rank)

    def spawn(self, processes: Sequence[orders.ProcessSpec]) -> None:
        """Ask agents to take places."""
        for spec in processes:
            self._wanted[spec.rank] = spec
            if self._loop is not None:
                self._ask_to_attach(spec.rank)

    def kill(self, pid: int) -> None:
        """Have the agent of a process leave its place."""
        for rank, (spec, known) in list(self._there.items()):
            if known == pid:
                with contextlib.suppress(ClosedError):  # then its process ends as well
                    left = self._session.ask(rank, LEAVE, self._tree)
                    when_done(left, partial(self._has_left, rank, spec.incarnation))

    def detach(self) -> None:
        """Report nothing any more."""
        self._unsubscribe()
        self._loop = None

    def close(self) -> None:
        """Have all leave, and wait for that; from any thread."""
        asked: list[Future[Any]] = []
        with contextlib.suppress(ClosedError):  # then their processes are gone
            asked = [self._session.ask(rank, LEAVE, self._tree) for rank in self._there]
        wait(asked, LEAVE_TIMEOUT)
        self._there.clear()

    # --- on the loop's thread --------------------------------------------------------------------

    def _ask_to_attach(self, rank: int) -> None:
        if rank in self._asked:
            return
        spec = self._wanted[rank]
        if rank in self._left:
            del self._wanted[rank]
            self._on_report(orders.SpawnFailed(rank, spec.incarnation, self._left[rank], _NO_AGENT))
            return
        self._asked.add(rank)
        attach = AttachRequest(self._configuration(rank), spec.incarnation)
        try:
            joined = self._session.ask(
                rank, JOIN, msgspec.to_builtins(attach, builtin_types=(bytes,))
            )
        except ClosedError as error:
            self._on_report(orders.SpawnFailed(rank, spec.incarnation, error.what))
            return
        when_done(joined, lambda done: self._on_loop(self._answered, spec, done))

    def _answered(self, spec: orders.ProcessSpec, joined: Future[Any]) -> None:
        rank = spec.rank
        self._asked.discard(rank)
        error = joined.exception()
        if error is None:
            pid = int(joined.result())
            self._there[rank] = (spec, pid)
            if self._wanted.get(rank) is spec:
                del self._wanted[rank]
            self._on_report(orders.Spawned(rank, spec.incarnation, pid))
        elif not isinstance(error, AgentLostError):
            what = error.what if isinstance(error, SapwoodError) else shown(error)
            self._on_report(orders.SpawnFailed(rank, spec.incarnation, what))
        elif self._is_ready(rank):
            self._ask_to_attach(rank)  # it is back already
        if self._wanted.get(rank, spec) is not spec:
            self._ask_to_attach(rank)  # another one is wanted meanwhile

    def _is_ready(self, rank: int) -> bool:
        return self._session.supervisor.processes[rank].is_ready

    def _changed(self, change: PlacesChanged) -> None:
        if change.for_good:
            self._left |= dict.fromkeys(change.agents, f"its agent is gone: {change.reason}")
        for rank in change.agents:
            if (change.back or change.for_good) and rank in self._wanted:
                self._ask_to_attach(rank)
            elif not change.back and not change.disconnected and rank in self._there:
                self._gone(rank, self._there[rank][0].incarnation, change.reason)

    def _has_left(self, rank: int, incarnation: int, _left: Future[Any]) -> None:
        self._on_loop(self._gone, rank, incarnation, "it was taken for dead")

    def _gone(self, rank: int, incarnation: int, reason: str) -> None:
        spec, pid = self._there.get(rank, (None, 0))
        if spec is not None and spec.incarnation == incarnation:
            del self._there[rank]
            self._on_report(orders.Exited(rank, incarnation, pid, 0, reason))

    def _on_loop(self, function: Callable[..., None], *args: Any) -> None:
        if self._loop is not None:
            with contextlib.suppress(ClosedError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._if_listening, function, args)

    def _if_listening(self, function: Callable[..., None], args: tuple[Any, ...]) -> None:
        if self._loop is not None:
            function(*args)


# --- in the process of an agent -------------------------------------------------------------------


class SecondaryPlace(Agent):
    """A leaf of a secondary tree, in the process of an agent and on its loop.

    What happens in that tree is no reason for the process to end: a secondary place that no
    parent takes any more only leaves.

    Args:
        configuration: What all places of the tree share.
        incarnation: Which process at its place it is.
        host: The agent whose process and loop it shares; its rank is the same.
        on_end: Told when it has left.
    """

    def __init__(
        self,
        configuration: MemberConfiguration,
        incarnation: int,
        host: Agent,
        on_end: Callable[[], None],
    ) -> None:
        super().__init__(configuration, host.rank, incarnation, host.loop)
        self.tree = configuration.cluster
        self._on_end = on_end
        self._left = False

    def end(self) -> None:
        """Leave the tree; what it kept for others is given back."""
        if self._left:
            return
        self._left = True
        for stream in self.driver.node.streams.values():
            for several in stream.kept.values():
                for one in several:
                    if one.payload is not None:
                        self.on_released(one.payload)
        self.driver.close()
        self._on_end()

    def _try_to_reach(self, rank: int) -> None:
        if not self._left:
            super()._try_to_reach(rank)

    def _unreachable(self, rank: int, error: CommunicationError) -> None:
        if not self._left:
            super()._unreachable(rank, error)


class SecondaryPlaces:
    """The secondary trees of an agent: joined and left as the client asks.

    Args:
        host: The agent.
        settle: Makes a secondary place work; what it returns ends that.
    """

    def __init__(self, host: Agent, settle: Callable[[SecondaryPlace], Callable[[], None]]) -> None:
        self._host = host
        self._settle = settle
        self._places: dict[str, SecondaryPlace] = {}
        host.requests[JOIN] = self.join
        host.requests[LEAVE] = self._leave

    def join(self, request: IncomingRequest) -> None:
        """Take a place as a request asks."""
        attach = typed.convert(request.value(), AttachRequest)
        own = self._host.configuration
        configuration = msgspec.structs.replace(
            read_configuration(attach.configuration), host=own.host, credentials=own.credentials
        )
        if configuration.machine:
            configuration = msgspec.structs.replace(configuration, machine=own.machine)
        self._end(configuration.cluster)

        def left() -> None:
            if self._places.get(place.tree) is place:
                del self._places[place.tree]
            stop_working()

        place = SecondaryPlace(configuration, attach.incarnation, self._host, left)
        stop_working = self._settle(place)
        self._places[place.tree] = place
        request.reply(os.getpid())
        place.begin()

    def _leave(self, request: IncomingRequest) -> None:
        self._end(str(request.value()))
        request.reply(None)

    def _end(self, tree: str) -> None:
        place = self._places.get(tree)
        if place is not None:
            place.end()


def _nothing() -> None:
    pass
