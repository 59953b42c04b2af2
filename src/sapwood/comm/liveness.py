"""Whether a process of this machine has ended: known at once, without asking its parent."""

import os
from collections.abc import Callable
from typing import Protocol

from sapwood.comm.loop import Loop


class Watch(Protocol):
    """Tells of the end of a process."""

    def __call__(self, pid: int, ended: Callable[[], None]) -> Callable[[], None]:
        """Have ``ended`` called once the process is gone, perhaps at once.

        Returns:
            A function that ends the watch.
        """


class ProcessWatch:
    """Watches processes through ``pidfd_open``: the kernel tells, also of zombies.

    Args:
        loop: Waits for the kernel.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def __call__(self, pid: int, ended: Callable[[], None]) -> Callable[[], None]:
        """Have ``ended`` called once the process is gone; see :class:`Watch`."""
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            ended()
            return _nothing
        except OSError:  # no more descriptors: then time decides
            return _nothing

        watching = [fd]

        def end() -> None:
            while watching:
                self._loop.remove_reader(watching[0])
                os.close(watching.pop())

        def readable() -> None:
            end()
            ended()

        self._loop.add_reader(fd, readable)
        return end


def _nothing() -> None:
    pass
