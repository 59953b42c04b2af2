"""Results that lie in a runner's memory: opened by the agent, kept past the runner's end."""

import os

from sapwood.code.runner import calls
from sapwood.code.runner.jobs import Lease
from sapwood.comm.payload import Payload
from sapwood.comm.shared_memory import MappedBlocks, SharedRef
from sapwood.core.errors import RunnerCrashError


class Adoption:
    """The blocks of one runner after the other that this process has open.

    Args:
        blocks: What is mapped here.

    Attributes:
        opened: This process' descriptors of the present runner's blocks, by their inodes.
        returned: Blocks that the runner may use again and does not know of yet.
    """

    def __init__(self, blocks: MappedBlocks) -> None:
        self._blocks = blocks
        self.opened: dict[int, int] = {}
        self._leased: set[int] = set()
        self.returned: list[int] = []

    def body(self, bulk: calls.Bulk) -> bytes:
        """Return the body of a result."""
        if bulk.shared is None:
            return bulk.inline
        data = bytes(self._blocks.view(bulk.shared))
        self.returned.append(bulk.shared.inode)
        return data

    def payload(self, bulk: calls.Bulk) -> Payload | None:
        """Return the arrays of a result; their memory stays open here until it is given back.

        Raises:
            RunnerCrashError: The runner is gone, and its memory with it.
        """
        if bulk.shared is None:
            return Payload(bulk.inline) if bulk.inline else None
        ref = bulk.shared
        fd = self.opened.get(ref.inode)
        if fd is None:
            try:
                fd = os.open(f"/proc/{ref.pid}/fd/{ref.fd}", os.O_RDWR | os.O_CLOEXEC)
            except OSError as error:
                raise RunnerCrashError("the runner ended before its result was taken") from error
            self.opened[ref.inode] = fd
        self._leased.add(fd)
        own = SharedRef(os.getpid(), fd, ref.inode, ref.capacity, ref.offset, ref.nbytes)
        return Payload.mapped(own, self._blocks, Lease(ref.pid, ref.inode, fd))

    def give_back(self, lease: Lease, runner: int) -> None:
        """Let the runner use a result's memory again, if it is still the one that made it."""
        self._leased.discard(lease.fd)
        if lease.runner == runner:
            self.returned.append(lease.inode)
        else:
            os.close(lease.fd)  # kept open past the end of its runner

    def take_returned(self) -> tuple[int, ...]:
        """Return the blocks that the runner may use again, and forget them."""
        returned, self.returned = tuple(self.returned), []
        return returned

    def runner_ended(self) -> None:
        """Close what nobody reads any more."""
        for fd in self.opened.values():
            if fd not in self._leased:
                os.close(fd)
        self.opened.clear()
        self.returned.clear()

    def close(self) -> None:
        """Close everything."""
        self.runner_ended()
        for fd in self._leased:
            os.close(fd)
        self._leased.clear()
