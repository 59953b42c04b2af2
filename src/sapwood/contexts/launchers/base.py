"""What a launcher is: an adapter to whatever starts processes on machines."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from sapwood.contexts.launchers.allocation import WaitCallback


class Launcher(Protocol):
    """Starts a command on machines and connects its standard streams with this process.

    What it starts lives no longer than its standard input is open.

    Attributes:
        name: What users call it, for example ``ssh``.
        hosts: The machines, as users name them.
        concurrency: How many machines may be on their way at once.
    """

    name: str
    hosts: Sequence[str]
    concurrency: int

    def start(self, host: str, command: str) -> subprocess.Popen[bytes]:
        """Start a command of the shell on a machine, with pipes for its standard streams.

        Raises:
            ResourceError: The process that leads there cannot be started.
        """

    def explain(self, host: str, status: int, said: str) -> str:
        """Return why a machine did not come.

        Args:
            host: The machine.
            status: Exit code of what :meth:`start` returned, or minus the signal's number.
            said: What it wrote to standard error.
        """

    def close(self) -> None:
        """End what the launcher itself holds."""


@runtime_checkable
class AllocatingLauncher(Launcher, Protocol):
    """A launcher that asks for its machines, and may have to wait for them."""

    def request(self, on_wait: WaitCallback | None = None) -> None:
        """Get the machines, and wait for them; they are given back if this fails.

        Args:
            on_wait: Told from time to time what is waited for, and since how many seconds. It may
                raise an error, which ends the wait.

        Raises:
            ConfigurationError: There cannot be such machines.
            ResourceError: They are refused, or are not there in time.
        """


@runtime_checkable
class LimitedLauncher(Launcher, Protocol):
    """A launcher whose machines are there for a time only."""

    owns_job: bool
    """Whether it has asked for the machines itself, so that it may ask for others later."""

    def seconds_left(self) -> float | None:
        """Return how long the machines stay available, s; ``inf`` for ever, None if unknown."""

    def is_gone(self) -> bool:
        """Return whether the machines were taken away, or their time is over."""

    def fate(self) -> str:
        """Return the end of the machines as a text for people."""


@runtime_checkable
class ForwardingLauncher(Launcher, Protocol):
    """A launcher that can also lead connections from a machine to this one."""

    def forward(self, channel: subprocess.Popen[bytes], path: str, target: str) -> None:
        """Have connections with a Unix socket on a machine come out of this process's machine.

        They do as long as the channel lives. The caller removes the socket there.

        Args:
            channel: What :meth:`Launcher.start` returned for that machine.
            path: Of the socket, which does not exist yet.
            target: Where they go to, ``host:port``.

        Raises:
            ResourceError: That cannot be done; the error says why.
        """

    def settle(self, channel: subprocess.Popen[bytes]) -> None:
        """Remove what :meth:`forward` needs here: the machine has joined, or will not."""
