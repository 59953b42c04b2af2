"""The agents of a session get places in a further tree: in the keeper's eyes, a kind of zygote.

A place of an agent in a further tree is begun by asking the agent to join, and ended by asking it
to leave. When its process ends, the session that it belongs to replaces that, and the new
one is asked to join.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from functools import partial
from typing import Any, Protocol

import msgspec

from sapwood.contexts import orders
from sapwood.core.errors import AgentLostError, ClosedError, SapwoodError
from sapwood.session.agent import JOIN, LEAVE
from sapwood.session.guest import Invitation
from sapwood.session.keeper import Keeper
from sapwood.session.options import PlacesChanged
from sapwood.session.shared_reactor import SharedReactor
from sapwood.session.zygotes import Starter

LEAVE_TIMEOUT = 5.0
"""Seconds that agents get to leave a tree when it ends."""


class Home(Protocol):
    """The session that the agents belong to."""

    @property
    def keeper(self) -> Keeper:
        """Supervises its processes."""

    def ask(self, rank: int, handler: str, value: Any) -> Future[Any]:
        """Have a handler called at an agent."""

    def subscribe(self, listener: Callable[[PlacesChanged], None]) -> Callable[[], None]:
        """Have a function told of lost and replaced places; what is returned ends that."""


class Tenancy:
    """What a further tree has of the session of its agents.

    Args:
        session: Theirs.
        tree: Name of the further tree.
        configuration: What all its places share, encoded.
    """

    def __init__(self, session: Home, tree: str, configuration: bytes) -> None:
        self._session = session
        self._tree = tree
        self._configuration = configuration

    def agents(self, on_report: Callable[[orders.Report], None]) -> Starter:
        """Return what begins and ends the places of agents."""
        return Hosts(self._session, self._tree, self._configuration, on_report)

    def lend(self) -> socket.socket:
        """Return a control socket of the session's zygote, for the junctions.

        Raises:
            ResourceError: It is gone.
        """
        return self._session.keeper.lend()


class Hosts:
    """Has the agents of a session take their places in a further tree.

    Args:
        session: Theirs.
        tree: Name of the further tree.
        configuration: What all its places share, encoded.
        on_report: Told what becomes of the places, on the loop's thread.
    """

    def __init__(
        self,
        session: Home,
        tree: str,
        configuration: bytes,
        on_report: Callable[[orders.Report], None],
    ) -> None:
        self._session = session
        self._tree = tree
        self._configuration = configuration
        self._on_report = on_report
        self._loop: SharedReactor | None = None
        self._wanted: dict[int, orders.ProcessSpec] = {}
        self._invited: set[int] = set()
        self._there: dict[int, tuple[orders.ProcessSpec, int]] = {}
        self._unsubscribe: Callable[[], None] = _nothing

    def start(self) -> None:
        """Hear what becomes of the agents' processes."""
        self._unsubscribe = self._session.subscribe(
            lambda change: self._on_loop(self._changed, change)
        )

    def listen(self, loop: SharedReactor) -> None:
        """Invite those that are wanted; called on the loop's thread."""
        self._loop = loop
        for rank in self._wanted:
            self._invite(rank)

    def spawn(self, processes: Sequence[orders.ProcessSpec]) -> None:
        """Have agents take places."""
        for spec in processes:
            self._wanted[spec.rank] = spec
            if self._loop is not None:
                self._invite(spec.rank)

    def kill(self, pid: int) -> None:
        """Have the agent of a process leave its place."""
        for rank, (spec, known) in list(self._there.items()):
            if known == pid:
                with contextlib.suppress(ClosedError):  # then its process ends as well
                    left = self._session.ask(rank, LEAVE, self._tree)
                    left.add_done_callback(partial(self._has_left, rank, spec.incarnation))

    def is_silent(self, looks: int, first: int) -> bool:
        """Return False: the session of the agents looks after them."""
        del looks, first
        return False

    def end(self) -> None:
        """Do nothing, as they are never silent."""

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

    def _invite(self, rank: int) -> None:
        if rank in self._invited:
            return
        self._invited.add(rank)
        spec = self._wanted[rank]
        invitation = Invitation(self._configuration, spec.incarnation)
        try:
            joined = self._session.ask(
                rank, JOIN, msgspec.to_builtins(invitation, builtin_types=(bytes,))
            )
        except ClosedError as error:
            self._on_report(orders.SpawnFailed(rank, spec.incarnation, error.what))
            return
        joined.add_done_callback(lambda done: self._on_loop(self._answered, spec, done))

    def _answered(self, spec: orders.ProcessSpec, joined: Future[Any]) -> None:
        rank = spec.rank
        self._invited.discard(rank)
        error = joined.exception()
        if error is None:
            pid = int(joined.result())
            self._there[rank] = (spec, pid)
            if self._wanted.get(rank) is spec:
                del self._wanted[rank]
            self._on_report(orders.Spawned(rank, spec.incarnation, pid))
        elif not isinstance(error, AgentLostError):
            what = error.what if isinstance(error, SapwoodError) else repr(error)
            self._on_report(orders.SpawnFailed(rank, spec.incarnation, what))
        elif self._is_ready(rank):
            self._invite(rank)  # it is back already
        if self._wanted.get(rank, spec) is not spec:
            self._invite(rank)  # another one is wanted meanwhile

    def _is_ready(self, rank: int) -> bool:
        return self._session.keeper.places[rank].is_ready

    def _changed(self, change: PlacesChanged) -> None:
        for rank in change.agents:
            if change.back and rank in self._wanted:
                self._invite(rank)
            elif not change.back and not change.adrift and rank in self._there:
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
                self._loop.call_from_any_thread(self._if_listening, function, args)

    def _if_listening(self, function: Callable[..., None], args: tuple[Any, ...]) -> None:
        if self._loop is not None:
            function(*args)


def _nothing() -> None:
    pass
