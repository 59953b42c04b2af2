"""Faults of the processes and links of a session while it is used."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading

from sapwood.session.embedded import EmbeddedSession


class Mischief:
    """Kills, cuts and pauses, the same for the same seed."""

    def __init__(self, session: EmbeddedSession, seed: int) -> None:
        self.rng = random.Random(seed)  # noqa: S311 - the same for the same seed
        self.session = session

    def cut(self) -> None:
        """Break some connections."""
        self.session.on_loop(self._cut)

    def kill(self) -> None:
        """Kill an agent."""
        self._signal(self._victim(), signal.SIGKILL)

    def pause(self) -> None:
        """Stop an agent for a moment."""
        pid = self._victim()
        self._signal(pid, signal.SIGSTOP)
        threading.Timer(0.02, self._signal, [pid, signal.SIGCONT]).start()

    def _cut(self) -> None:
        for line in list(self.session.host.driver.links.connections.values()):
            if self.rng.random() < 0.5:
                line.connection.abort()

    def _victim(self) -> int:
        return self.session.supervisor.processes[self.rng.randint(1, self.session.tree.agents)].pid

    def _signal(self, pid: int, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):  # it was killed meanwhile
            if pid > 0:  # else it has no process at present
                os.kill(pid, number)
