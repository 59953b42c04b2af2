"""Starters: what starts and stops the processes of ranks.

A starter is a zygote of this machine, one for each interpreter; the node of another machine; or the
agents of another session. Processes that join by an invitation have none.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, cast, runtime_checkable

from sapwood.contexts import orders
from sapwood.contexts.spawner import Spawner
from sapwood.core.errors import ResourceError, SapwoodError
from sapwood.core.failures import new_thread, start_thread
from sapwood.lifecycle.starters import OnHost, StarterKey
from sapwood.session.shared_reactor import SharedReactor


class ProcessStarter(Protocol):
    """Starts and stops processes."""

    def start(self) -> None:
        """Start it; orders may follow at once."""

    def listen(self, loop: SharedReactor) -> None:
        """Receive reports on a loop; called on its thread."""

    def spawn(self, processes: Sequence[orders.ProcessSpec]) -> None:
        """Start processes."""

    def kill(self, pid: int) -> None:
        """Kill a process."""

    def detach(self) -> None:
        """Stop listening."""

    def close(self) -> None:
        """End all processes, and wait for that."""


@runtime_checkable
class ReconfiguredStarter(Protocol):
    """A starter that holds the configuration of its processes."""

    def reconfigure(self, configuration: bytes) -> None:
        """Give another configuration to processes that start from now on."""


@runtime_checkable
class HeartbeatStarter(Protocol):
    """A starter that can hang: it is asked for heartbeats."""

    def is_silent(self, looks: int, first: int) -> bool:
        """Ask for a heartbeat; return whether ``looks`` requests were not answered.

        Until it is ready, ``first`` requests.
        """

    def end(self) -> None:
        """Kill it, because it hangs."""


class Starters:
    """The starters of a session, by key.

    Args:
        make: Returns the starter of a key.
    """

    def __init__(self, make: Callable[[StarterKey], ProcessStarter]) -> None:
        self._make = make
        self._starters: dict[StarterKey, ProcessStarter] = {}
        self._loop: SharedReactor | None = None
        self._closing: list[threading.Thread] = []

    def __iter__(self) -> Iterator[ProcessStarter]:
        return iter(list(self._starters.values()))

    @property
    def main(self) -> Spawner:
        """The zygote of the default interpreter.

        Raises:
            ResourceError: It is gone.
        """
        if () not in self._starters:
            raise ResourceError("the zygote is gone")
        return cast("Spawner", self._starters[()])  # all other keys may have other starters

    def get(self, key: StarterKey) -> ProcessStarter | None:
        """Return a starter that was started."""
        return self._starters.get(key)

    def start(self, key: StarterKey) -> ProcessStarter:
        """Return the starter of a key; start it if it is not running.

        Raises:
            ResourceError: It cannot be started.
        """
        starter = self._starters.get(key)
        if starter is None:
            starter = self._starters[key] = self._make(key)
            try:
                starter.start()
                if self._loop is not None:
                    starter.listen(self._loop)
            except BaseException:
                del self._starters[key]
                starter.close()
                raise
        return starter

    def replace(self, key: StarterKey) -> None:
        """Start another starter in place of one that ended.

        Raises:
            ResourceError: It cannot be started.
        """
        old = self._starters.pop(key, None)
        if old is not None:
            old.close()
        self.start(key)

    def listen(self, loop: SharedReactor) -> None:
        """Receive reports on a loop; called on its thread."""
        self._loop = loop
        for starter in self:
            starter.listen(loop)

    def reconfigure(self, configuration_of: Callable[[int], bytes]) -> None:
        """Give another configuration to processes that start from now on.

        Args:
            configuration_of: Returns the configuration of a machine, by its number.
        """
        for key, starter in self._starters.items():
            if isinstance(starter, ReconfiguredStarter):
                starter.reconfigure(configuration_of(key.host if isinstance(key, OnHost) else 0))

    def silent(self, looks: int, first: int) -> Iterable[tuple[StarterKey, HeartbeatStarter]]:
        """Ask for heartbeats; return the starters that hang.

        Args:
            looks: How many requests in a row must not have been answered.
            first: How many of a starter that is not ready yet.
        """
        return [
            (key, starter)
            for key, starter in list(self._starters.items())
            if isinstance(starter, HeartbeatStarter) and starter.is_silent(looks, first)
        ]

    def close_one(self, key: StarterKey) -> None:
        """End a starter, without waiting for that; on the loop's thread."""
        starter = self._starters.pop(key, None)
        if starter is not None:
            starter.detach()
            closing = new_thread("sapwood-starter", starter.close)
            self._closing.append(closing)
            closing.start()

    def detach(self) -> None:
        """Stop listening; called on the loop's thread before :meth:`close`."""
        self._loop = None
        for starter in self:
            starter.detach()

    def close(self) -> None:
        """End all starters and all their descendants, and wait for that; after :meth:`detach`.

        All are waited for at the same time: several that hang take as long as one.

        Raises:
            Exception: What the first one that could not be ended raised.
        """
        problems: list[SapwoodError] = []
        first, *others = [*self] or [None]
        waits = self._closing + [
            start_thread("sapwood-starter", starter.close, failed=problems.append)
            for starter in others
            if starter is not None
        ]
        try:
            if first is not None:
                first.close()
        finally:
            for one in waits:
                one.join()
        if problems:
            raise problems[0]
