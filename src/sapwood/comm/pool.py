"""Shared memory that is used again: the first touch of a page costs more than all later ones."""

from sapwood.comm.payload import Payload
from sapwood.comm.shared_memory import SharedBlock
from sapwood.comm.values import Encoded

MAX_POOL_BYTES = 2**30
"""Bytes of free blocks that one process keeps."""


class BlockPool:
    """Blocks of this process, by size class.

    Args:
        inline_limit: Payloads up to this many bytes travel in the message instead.
    """

    def __init__(self, inline_limit: int) -> None:
        self._inline_limit = inline_limit
        self._free: dict[int, list[SharedBlock]] = {}
        self._free_bytes = 0
        self._used: set[SharedBlock] = set()
        self._closed = False

    def take(self, nbytes: int) -> SharedBlock:
        """Return a block of at least ``nbytes`` bytes.

        Raises:
            ResourceError: The machine has not that much memory left.
        """
        size = size_class(nbytes)
        block = self._reused(size) or SharedBlock(size)
        self._used.add(block)
        return block

    def _reused(self, size: int) -> SharedBlock | None:
        free = self._free.get(size)
        if not free:
            return None
        self._free_bytes -= size
        return free.pop()

    def give_back(self, block: SharedBlock) -> None:
        """Keep a block for the next user; free it if there are enough or the pool is closed."""
        self._used.discard(block)
        if self._closed:
            block.close()
            return
        size = block.capacity
        if self._free_bytes + size > MAX_POOL_BYTES:
            block.discard()
            return
        self._free_bytes += size
        self._free.setdefault(size, []).append(block)

    def store(self, encoded: Encoded) -> Payload | None:
        """Put the arrays of a value where its receiver can reach them best."""
        if not encoded.nbytes:
            return None
        if encoded.nbytes <= self._inline_limit:
            return Payload(encoded.payload())
        size = size_class(encoded.nbytes)
        block = self._reused(size)
        if block is None:
            block = SharedBlock(size, encoded.parts())
        else:
            encoded.write_into(block.view)
        self._used.add(block)
        nbytes = encoded.nbytes
        return Payload(block.view[:nbytes], block.ref(0, nbytes), owner=block)

    def close(self) -> None:
        """Free all blocks, including blocks in use, because they cannot be given back any more."""
        self._closed = True
        for blocks in (self._used, *self._free.values()):
            for block in blocks:
                block.close()
        self._used.clear()
        self._free.clear()
        self._free_bytes = 0


def size_class(nbytes: int) -> int:
    """Round up to a power of two, at least a page, or to a multiple of 16 MiB above that.

    Example:
        >>> size_class(5000), size_class(40 * 2**20) // 2**20
        (8192, 48)
    """
    large = 16 * 2**20
    if nbytes > large:
        return -(-nbytes // large) * large
    return max(4096, 1 << (nbytes - 1).bit_length())
