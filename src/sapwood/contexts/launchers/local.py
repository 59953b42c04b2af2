"""Nodes on this machine: each is a separate process group, as if it were another machine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from sapwood.contexts.process import describe_status
from sapwood.core.errors import ResourceError

CONCURRENCY = 8
"""Nodes that start at once."""


class LocalLauncher:
    """Starts nodes on this machine.

    Args:
        nodes: How many.
        names: What they are called; by default ``local1`` and so on.

    Example:
        >>> LocalLauncher(2).hosts
        ('local1', 'local2')
    """

    name = "local"

    def __init__(self, nodes: int, names: Sequence[str] = ()) -> None:
        numbered = tuple(f"local{number}" for number in range(1, nodes + 1))
        self.hosts: Sequence[str] = tuple(names) or numbered
        self.concurrency = CONCURRENCY

    def start(self, host: str, command: str) -> subprocess.Popen[bytes]:
        """Start a command; see :class:`~sapwood.contexts.launchers.base.Launcher`."""
        del host
        try:
            return subprocess.Popen(
                ["/bin/sh", "-c", command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(os.environ),
                start_new_session=True,
            )
        except OSError as error:
            raise ResourceError(f"cannot start a process: {error.strerror}") from error

    def explain(self, host: str, status: int, said: str) -> str:
        """Return why a node did not come."""
        del host
        last = said.strip().rpartition("\n")[2]
        return last or describe_status(status)

    def close(self) -> None:
        """Hold nothing."""
