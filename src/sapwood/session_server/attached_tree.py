"""The tree of a session, as a client of its server knows it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

from sapwood.core import typed
from sapwood.core.errors import SapwoodError
from sapwood.core.failures import fail
from sapwood.core.topology import Tree
from sapwood.session.interface import ProcessView
from sapwood.session.options import PlacesChanged
from sapwood.session_server import session_calls, wire
from sapwood.session_server.server_link import CALL_TIMEOUT, ServerLink


class AttachedTree:
    """The tree and the places of a session; its server reports each change.

    Args:
        link: The connection to the server.

    Attributes:
        tree: The present tree.
        facts: What the server has said when it let this client in.
        failure: Why places stay lost.
    """

    def __init__(self, link: ServerLink) -> None:
        self._link = link
        self.tree: Tree
        self.facts: wire.Admitted
        self.failure: SapwoodError | None = None
        self._processes: dict[int, ProcessView] = {}
        self._listeners: list[Callable[[PlacesChanged], None]] = []

    def admitted(self, admitted: wire.Admitted) -> None:
        """Take over what the server says at first; on the loop's thread."""
        self.facts = admitted
        self.tree = admitted.tree
        self._processes = {one.rank: one for one in admitted.processes}
        if admitted.failure is not None:
            self.failure = self._link.named(admitted.failure)

    def news(self, message: wire.TreeNews) -> None:
        """Take over a change; on the loop's thread."""
        self._processes |= {one.rank: one for one in message.processes}
        if message.tree is not None:  # after its processes, because a receiver of one asks for it
            self.tree = message.tree
        if message.failure is not None:
            self.failure = self._link.named(message.failure)
        if message.change.ranks:
            self._tell_listeners(message.change)

    def lost(self, error: SapwoodError) -> None:
        """Report that all places are out of reach; on the loop's thread."""
        gone = PlacesChanged(
            tuple(self._processes) if self._processes else (),
            tuple(self.tree.agent_ranks) if self._processes else (),
            back=False,
            reason=error.what,
            for_good=True,
        )
        self._tell_listeners(gone)

    def processes(self, ranks: Iterable[int] | None = None) -> list[ProcessView]:
        """Return processes as the server has reported them last; by default all agents."""
        known, wanted = self._processes, self.tree.agent_ranks if ranks is None else ranks
        return [known[rank] for rank in wanted]

    def machines(self) -> tuple[tuple[int, ...], list[int]]:
        """Return the machine of each place, and those on which processes can begin now."""
        found = self._link.ask(session_calls.MACHINES).result(CALL_TIMEOUT)
        return typed.convert(found, tuple[tuple[int, ...], list[int]])

    def shares_machine(self, rank: int | None, *, invited: bool) -> bool:
        """Whether a place sees the memory and the files of this process; by default all of them.

        Args:
            rank: The place.
            invited: Whether this client has invited agents.
        """
        if not self._link.sharing:
            return False
        hosts, processes = self.facts.hosts, self._processes
        if rank is not None:
            joined = rank in processes and processes[rank].joined
            return not joined and (not hosts or (rank < len(hosts) and hosts[rank] == 0))
        some_joined = any(one.joined for one in list(processes.values()))
        return not (any(hosts) or some_joined or invited)

    def subscribe(self, listener: Callable[[PlacesChanged], None]) -> Callable[[], None]:
        """Call a function for lost and replaced places, until the returned function is called."""
        self._listeners.append(listener)

        def end() -> None:
            with contextlib.suppress(ValueError):
                self._listeners.remove(listener)

        return end

    def _tell_listeners(self, change: PlacesChanged) -> None:
        for listener in tuple(self._listeners):  # also after one that raises
            fail("a change of places", listener, change)
