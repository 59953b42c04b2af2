"""The zygotes of a session: one for each interpreter that its processes run on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, cast

from sapwood.contexts import orders
from sapwood.contexts.forge import Forge
from sapwood.contexts.spawner import Spawner
from sapwood.session.shared_reactor import SharedReactor

Command = tuple[str, ...]
"""The command that starts an interpreter; empty for the one that all run on by default."""


class Starter(Protocol):
    """What begins and ends the processes of places: a zygote, or agents that are there already."""

    def start(self) -> None:
        """Start it; orders may follow at once."""

    def listen(self, loop: SharedReactor) -> None:
        """Hear reports on a loop; called on its thread."""

    def spawn(self, processes: Sequence[orders.ProcessSpec]) -> None:
        """Begin processes."""

    def kill(self, pid: int) -> None:
        """End a process."""

    def is_silent(self, looks: int, first: int) -> bool:
        """Ask it for a sign of life; say whether it gave none to ``looks`` requests.

        Until it is ready, to ``first`` requests.
        """

    def end(self) -> None:
        """Kill it, as it hangs."""

    def detach(self) -> None:
        """Stop listening."""

    def close(self) -> None:
        """End all, and wait for that."""


class Zygotes:
    """Starts zygotes and sends each order to the right one.

    Args:
        make: Returns what starts the zygote of an interpreter.
        interpreters: The interpreter of each place that does not have the default one.
    """

    def __init__(
        self, make: Callable[[Command], Starter], interpreters: Mapping[int, Command]
    ) -> None:
        self._make = make
        self._interpreters = dict(interpreters)
        commands: tuple[Command, ...] = ((), *self._interpreters.values())
        self._spawners = {command: make(command) for command in dict.fromkeys(commands)}

    def __iter__(self) -> Iterator[Starter]:
        return iter(self._spawners.values())

    @property
    def main(self) -> Spawner:
        """The one of the default interpreter."""
        return cast("Spawner", self._spawners[()])  # only what is not the default can be another

    def of(self, rank: int) -> Starter:
        """Return the one that forks the process of a place."""
        return self._spawners[self._interpreters.get(rank, ())]

    def start(self, specs: Sequence[orders.ProcessSpec]) -> None:
        """Start all of them and order processes.

        Raises:
            ResourceError: A process cannot be started.
        """
        for spawner in self:
            spawner.start()
        self.spawn(specs)

    def listen(self, loop: SharedReactor) -> None:
        """Hear reports on a loop; called on its thread."""
        for spawner in self:
            spawner.listen(loop)

    def spawn(self, specs: Sequence[orders.ProcessSpec]) -> None:
        """Have processes forked, each by its zygote."""
        for spawner in self:
            mine = [spec for spec in specs if self.of(spec.rank) is spawner]
            if mine:
                spawner.spawn(mine)

    def kill(self, rank: int, pid: int) -> None:
        """End the process of a place."""
        self.of(rank).kill(pid)

    def silent(self, looks: int, first: int) -> list[Command]:
        """Ask all zygotes for a sign of life; return the interpreters of those that hang.

        Args:
            looks: How many looks in a row must have found nothing.
            first: How many of a zygote that is not ready yet.
        """
        spawners = self._spawners.items()
        return [command for command, spawner in spawners if spawner.is_silent(looks, first)]

    def end(self, command: Command) -> None:
        """Kill a zygote that hangs."""
        self._spawners[command].end()

    def forge(self) -> Forge:
        """Return what has runners forked for the front end itself.

        Raises:
            ResourceError: The zygote is gone.
        """
        return self.main.forge()

    def replace(self, command: Command, loop: SharedReactor | None) -> None:
        """Start another zygote in place of one that ended.

        Raises:
            ResourceError: The process cannot be started.
        """
        self._spawners[command].close()
        self._spawners[command] = self._make(command)
        self._spawners[command].start()
        if loop is not None:
            self._spawners[command].listen(loop)

    def runs_on(self, rank: int, command: Command) -> bool:
        """Whether the process of a place runs on an interpreter."""
        return self._interpreters.get(rank, ()) == command

    def detach(self) -> None:
        """Stop listening; called on the loop's thread before :meth:`close`."""
        for spawner in self:
            spawner.detach()

    def close(self) -> None:
        """End all zygotes and all their descendants, and wait for that."""
        for spawner in self:
            spawner.close()
