"""Leases on results in a runner's memory: the agent keeps them open past the runner's end."""

import os

from sapwood.code.runner import calls
from sapwood.comm import address_space
from sapwood.comm.payload import Payload
from sapwood.comm.shared_memory import MappedBlocks, SharedRef, open_block
from sapwood.core.errors import ProtocolError, RunnerCrashError

MAX_OPENED = 64
"""Blocks of a runner that stay open without a reader: it may have given them up itself."""


class Lease:
    """A block of the runner that is still read; kept open past the runner's death."""

    __slots__ = ("fd", "inode", "runner")

    def __init__(self, runner: int, inode: int, fd: int) -> None:
        self.runner = runner
        self.inode = inode
        self.fd = fd


class LeasedResults:
    """The blocks of one runner after the other that this process has open, and the leases on them.

    Args:
        blocks: The blocks that are mapped here.

    Attributes:
        opened: This process' descriptors of the present runner's blocks, by their inodes; those
            that were used last at the end.
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
        fd = self.opened.pop(ref.inode, None)
        if fd is None:
            self._make_room()
            try:
                fd = open_block(ref, os.O_RDWR)
            except ProtocolError as error:
                raise RunnerCrashError("the runner ended before its result was taken") from error
        self.opened[ref.inode] = fd
        self._leased.add(fd)
        own = SharedRef(os.getpid(), fd, ref.inode, ref.capacity, ref.offset, ref.nbytes)
        return Payload.mapped(own, self._blocks, Lease(ref.pid, ref.inode, fd))

    def _make_room(self) -> None:
        """Close unread blocks, the least recently used ones first."""
        if len(self.opened) >= MAX_OPENED:
            unread = [inode for inode, fd in self.opened.items() if fd not in self._leased]
            for inode in unread[: len(self.opened) - MAX_OPENED + 1]:
                os.close(self.opened.pop(inode))

    def give_back(self, lease: Lease, runner: int) -> None:
        """Let the runner use a result's memory again, if it is still the one that made it."""
        self._leased.discard(lease.fd)
        if lease.runner == runner:
            self.returned.append(lease.inode)
        else:
            _let_go(lease.fd)  # kept open past the end of its runner
            self._blocks.forget_gone()

    def take_returned(self) -> tuple[int, ...]:
        """Return the blocks that the runner may use again, and forget them."""
        returned, self.returned = tuple(self.returned), []
        return returned

    def runner_ended(self) -> None:
        """Close the blocks that are not read any more."""
        for fd in self.opened.values():
            if fd not in self._leased:
                _let_go(fd)
        self.opened.clear()
        self.returned.clear()
        self._blocks.forget_gone()

    def close(self) -> None:
        """Close everything."""
        self.runner_ended()
        for fd in self._leased:
            os.close(fd)
        self._leased.clear()


def _let_go(fd: int) -> None:
    """Close a block of a runner that has ended, and give its memory back.

    Those who have read it may still have it mapped, for the next time.
    """
    address_space.empty(fd, os.fstat(fd).st_size)
    os.close(fd)
