"""Memory that several processes of one machine map: anonymous, so a kill leaves nothing behind.

A block is a ``memfd``: it has no name in any file system and vanishes with its last holder.
Another process of the same user maps it through ``/proc/<pid>/fd/<fd>``; the inode in the
reference proves that the descriptor still is the block that was meant.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
from collections import OrderedDict
from collections.abc import Iterable
from typing import Self

import msgspec

from sapwood.comm import huge_pages
from sapwood.comm.huge_pages import HUGE_PAGE
from sapwood.core.errors import ProtocolError, ResourceError
from sapwood.core.failures import OUT_OF_DESCRIPTORS
from sapwood.core.shown import shown

MAX_MAPPED_BLOCKS = 256
"""Blocks of other processes that one process keeps mapped; the least recently used goes first."""

MAX_MAPPED_BYTES = 2**30
"""Bytes of other processes that one keeps mapped, beside the block that it looks at.

To map a block again costs little beside reading it.
"""

ALIGNMENT = 64
"""Bytes: arrays in a block start at multiples of this (a cache line, an AVX-512 vector)."""


LARGE_BLOCK = 64 * 2**20
"""Bytes from which it is asked first whether so much is free.

The kernel does not refuse to reserve too much: it hands out page after page and then kills a
process.
"""


Content = Iterable[tuple[int, bytes | memoryview]]
"""Parts of what a block holds: the offset of each, and its bytes."""


class SharedRef(msgspec.Struct, frozen=True, array_like=True):
    """The location of a payload in shared memory of a process of this machine; sizes in bytes."""

    pid: int
    fd: int
    inode: int
    capacity: int
    offset: int
    nbytes: int


class SharedBlock:
    """A block of shared memory that this process made.

    Args:
        nbytes: Size in bytes; memory is reserved now, so that using it cannot fail later.
        content: Parts of what it holds, each with its offset. Where that is all of it, this takes
            half the time of writing to the view.

    Raises:
        ResourceError: The machine has not that much memory left.

    Example:
        >>> block = SharedBlock(8)
        >>> block.view[:2] = b"ab"
        >>> bytes(MappedBlocks().view(block.ref(0, 2)))
        b'ab'
        >>> block.close()
    """

    __slots__ = ("capacity", "fd", "inode", "view")

    def __init__(self, nbytes: int, content: Content = ()) -> None:
        capacity = max(mmap.PAGESIZE, _round_up(nbytes, mmap.PAGESIZE))
        if capacity >= LARGE_BLOCK and capacity > _available_memory():
            raise _no_room(capacity)
        try:
            self.fd: int = os.memfd_create("sapwood", os.MFD_CLOEXEC)
        except OSError as error:
            raise _refused(error, capacity) from error
        try:
            self.view: memoryview = _reserved(self.fd, capacity, content)
        except OSError as error:
            os.close(self.fd)
            raise _refused(error, capacity) from error
        self.capacity: int = capacity
        self.inode: int = os.fstat(self.fd).st_ino

    def ref(self, offset: int = 0, nbytes: int | None = None) -> SharedRef:
        """Return a reference that another process of this user can map."""
        size = self.capacity - offset if nbytes is None else nbytes
        return SharedRef(os.getpid(), self.fd, self.inode, self.capacity, offset, size)

    def close(self) -> None:
        """Give the block back; mappings that other processes hold stay valid."""
        if self.fd < 0:
            return
        os.close(self.fd)
        self.fd = -1
        # Where an array still looks at it, the memory goes when the array does.
        with contextlib.suppress(BufferError):
            self.view.release()

    def discard(self) -> None:
        """Give the block back, and its memory to the machine: what others map of it is zero now."""
        if self.fd >= 0:
            from sapwood.comm import address_space  # noqa: PLC0415 - few processes need it

            address_space.empty(self.fd, self.capacity)
            self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"SharedBlock({self.capacity} bytes, fd {self.fd})"


class MappedBlocks:
    """Blocks of other processes, mapped once and kept for the next look.

    A block stays mapped only while it is referenced: the memory of a process that ended would
    otherwise never be free.

    Example:
        >>> blocks = MappedBlocks()
        >>> block = SharedBlock(8)
        >>> view = blocks.view(block.ref())
        >>> block.close()
        >>> blocks.forget_gone()
        >>> len(blocks)
        0
    """

    def __init__(self) -> None:
        self._maps: OrderedDict[tuple[int, bool], tuple[memoryview, SharedRef]] = OrderedDict()
        self._new = 0

    def __len__(self) -> int:
        return len(self._maps)

    def view(self, ref: SharedRef, *, writable: bool = False) -> memoryview:
        """Return the bytes that a reference names, without copying them.

        Raises:
            ProtocolError: The reference is out of bounds, or its block is gone.
        """
        _check_bounds(ref)
        key = (ref.inode, writable)
        known = self._maps.pop(key, None)
        if known is None:
            mapped = _map(ref, os.O_RDWR if writable else os.O_RDONLY)
            self._make_room(len(mapped))
        else:
            mapped = known[0]
        self._maps[key] = mapped, ref  # now the last one; two threads may do this at once
        return mapped[ref.offset : ref.offset + ref.nbytes]

    def _make_room(self, nbytes: int) -> None:
        """Drop what is gone, and if there are too many those that were not looked at for longest.

        To look who is gone costs as much as some mappings: it is done once for so many new ones
        as there are others.
        """
        self._new += 1
        if self._new > len(self._maps) // 2:
            self.forget_gone()
            self._new = 0
        nbytes += sum(len(mapped) for mapped, _ in list(self._maps.values()))
        while self._maps and (len(self._maps) >= MAX_MAPPED_BLOCKS or nbytes > MAX_MAPPED_BYTES):
            nbytes -= len(self._maps.popitem(last=False)[1][0])

    def forget_gone(self) -> None:
        """Drop the mappings of blocks without references; views in use stay valid.

        Those that were not looked at for the longest time are asked about first, and of each
        process no more once it holds one: what it gave up comes to that end in time.
        """
        holders: set[int] = set()
        for key, (_, ref) in list(self._maps.items()):
            if ref.pid in holders:
                continue
            if _is_held(ref):
                holders.add(ref.pid)
            else:
                self._maps.pop(key, None)

    def forget(self) -> None:
        """Drop all mappings; views that are still in use stay valid."""
        self._maps.clear()


class AdoptedBlock:
    """A block that another process made, held by this one too: it outlives its maker.

    Args:
        ref: Bytes in it.

    Raises:
        ProtocolError: The block is gone.

    Example:
        >>> block = SharedBlock(8)
        >>> block.view[:2] = b"ab"
        >>> adopted = AdoptedBlock(block.ref(0, 2))
        >>> block.close()
        >>> bytes(private_view(adopted.ref))
        b'ab'
        >>> adopted.close()
    """

    __slots__ = ("_fd", "ref")

    def __init__(self, ref: SharedRef) -> None:
        self._fd = open_block(ref, os.O_RDONLY)
        self.ref = msgspec.structs.replace(ref, pid=os.getpid(), fd=self._fd)

    def close(self) -> None:
        """Close the descriptor; mappings stay valid."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def private_view(ref: SharedRef) -> memoryview:
    """Return bytes that another process made, to be written to without it noticing.

    Nothing is copied before it is written to.

    Raises:
        ProtocolError: The reference is out of bounds, or its block is gone.
    """
    return _map(ref, os.O_RDONLY, private=True)[ref.offset : ref.offset + ref.nbytes]


def _check_bounds(ref: SharedRef) -> None:
    inside = 0 <= ref.offset <= ref.offset + ref.nbytes <= ref.capacity
    if not inside or not ref.capacity:
        raise ProtocolError("a shared-memory reference is out of bounds", where=shown(ref))


def _map(ref: SharedRef, how: int, *, private: bool = False) -> memoryview:
    fd = open_block(ref, how)
    try:
        return _mapped(fd, ref.capacity, writable=private or how == os.O_RDWR, private=private)
    finally:
        os.close(fd)


def _reserved(fd: int, capacity: int, content: Content) -> memoryview:
    """Return the bytes of an empty file, with the memory for all of them."""
    os.ftruncate(fd, capacity)
    if capacity >= HUGE_PAGE:
        view = _mapped(fd, capacity, writable=True)
        huge_pages.fill(fd, view)
        _reserve(fd, capacity)
        for offset, part in content:
            view[offset : offset + len(part)] = part
        return view
    for offset, part in content:
        _write(fd, offset, part)  # its pages need not be cleared before, nor mapped
    _reserve(fd, capacity)
    return _mapped(fd, capacity, writable=True)


def _reserve(fd: int, capacity: int) -> None:
    """Have all pages now, so that a full machine is an error here and not a SIGBUS in user code."""
    os.posix_fallocate(fd, 0, capacity)


def _write(fd: int, offset: int, part: bytes | memoryview) -> None:
    done = 0
    while done < len(part):
        done += os.pwrite(fd, memoryview(part)[done:], offset + done)


def _mapped(fd: int, capacity: int, *, writable: bool, private: bool = False) -> memoryview:
    """Map a file; it stays mapped until the last reference to its bytes is gone."""
    flags = mmap.MAP_PRIVATE if private else mmap.MAP_SHARED
    protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    if capacity < HUGE_PAGE:
        return memoryview(mmap.mmap(fd, capacity, flags, protection))
    from sapwood.comm import address_space  # noqa: PLC0415 - few processes need it

    return address_space.mapped(fd, capacity, protection, flags, alignment=HUGE_PAGE)


def open_block(ref: SharedRef, flags: int) -> int:
    """Return a descriptor of this process for the block that a reference names.

    Raises:
        ProtocolError: The reference is out of bounds, or its block is gone.
        ResourceError: No more files can be opened.
    """
    _check_bounds(ref)
    try:
        fd = os.open(f"/proc/{ref.pid}/fd/{ref.fd}", flags | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in OUT_OF_DESCRIPTORS:
            raise _refused(error, ref.capacity) from error
        raise ProtocolError(
            f"shared memory of process {ref.pid} is gone: {error.strerror}",
            hint="the process that held it has ended",
        ) from error
    status = os.fstat(fd)
    if status.st_ino != ref.inode or status.st_size < ref.capacity:
        os.close(fd)
        raise ProtocolError(f"shared memory of process {ref.pid} was replaced by another")
    return fd


def _is_held(ref: SharedRef) -> bool:
    """Whether a process still holds its block."""
    try:
        return os.stat(f"/proc/{ref.pid}/fd/{ref.fd}").st_ino == ref.inode  # noqa: PTH116 - as above
    except OSError:
        return False


def _available_memory() -> int:
    """Return the bytes that can be had without harm to others."""
    with open("/proc/meminfo", encoding="ascii") as file:  # noqa: PTH123 - no folder is walked
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return LARGE_BLOCK


def _refused(error: OSError, capacity: int) -> ResourceError:
    if error.errno in OUT_OF_DESCRIPTORS:
        return ResourceError(
            "no more files can be opened, and shared memory is made of them",
            hint="raise the limit (ulimit -n), or keep fewer tasks and results at a time",
        )
    if error.errno in {errno.ENOSPC, errno.ENOMEM, errno.EFBIG}:
        return _no_room(capacity)
    return ResourceError(f"cannot make shared memory: {error.strerror}")


def _no_room(capacity: int) -> ResourceError:
    return ResourceError(
        f"cannot reserve {capacity / 2**20:.1f} MiB of shared memory",
        hint="use less data, fewer agents, or a machine with more memory",
    )


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
