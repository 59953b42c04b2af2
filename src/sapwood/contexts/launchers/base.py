"""What a launcher is: an adapter to whatever starts processes on machines."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Protocol


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
