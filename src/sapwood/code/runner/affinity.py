"""CPU affinity: an agent and its runner stay on one core while agents compute in step.

In an iteration all agents of a machine begin at the same moment. Where there are as many as cores,
or a multiple, an even share for each core is the shortest way to the end. Linux does not find it
within milliseconds: it wakes several on the same core and leaves them there
(``docs/decisions/0010-binding.md``).
"""

import contextlib
import os
from collections.abc import Sequence

NOWHERE = -1
"""No core: the operating system may choose."""


def core_for(ordinal: int, agents: int, cores: Sequence[int]) -> int:
    """Return the core on which an agent computes, or :data:`NOWHERE`.

    Args:
        ordinal: Which of its machine's agents it is, from 0 on.
        agents: How many there are; 0 if they shall not be bound.
        cores: Those that it may use.

    Example:
        >>> [core_for(ordinal, 4, [0, 1]) for ordinal in range(4)]
        [0, 1, 0, 1]
        >>> core_for(0, 3, [0, 1]), core_for(0, 2, [0, 1, 2, 3])
        (-1, -1)
    """
    if len(cores) < 2 or agents == 0 or agents % len(cores):
        return NOWHERE
    return cores[ordinal % len(cores)]


class CoreAffinity:
    """Binds this process to a core while it has holders.

    Args:
        ordinal: Which of its machine's agents it is, from 0 on.
        agents: How many there are; 0 if they shall not be bound.

    Example:
        >>> affinity = CoreAffinity(ordinal=0, agents=0)
        >>> affinity.hold("a run"), affinity.release("a run"), affinity.core
        (None, None, -1)
    """

    def __init__(self, ordinal: int, agents: int) -> None:
        self.core = NOWHERE
        self._ordinal = ordinal
        self._agents = agents
        self._holders: set[str] = set()
        self._before: set[int] = set()

    def hold(self, name: str) -> None:
        """Stay on the core from now on, on behalf of ``name``."""
        if self._agents:
            self._holders.add(name)
            self._settle()

    def release(self, name: str) -> None:
        """Remove a holder; without any, the operating system may choose the core again."""
        if name in self._holders:
            self._holders.discard(name)
            self._settle()

    def _settle(self) -> None:
        with contextlib.suppress(OSError):  # then it goes without
            self._bind() if self._holders else self._unbind()

    def _bind(self) -> None:
        if self.core != NOWHERE:
            return
        self._before = os.sched_getaffinity(0)
        core = core_for(self._ordinal, self._agents, sorted(self._before))
        if core != NOWHERE:
            os.sched_setaffinity(0, {core})
            self.core = core

    def _unbind(self) -> None:
        core, self.core = self.core, NOWHERE
        if core != NOWHERE and os.sched_getaffinity(0) == {core}:  # else user code has chosen
            os.sched_setaffinity(0, self._before)
