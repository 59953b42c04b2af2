"""Mappings at addresses that are chosen, which the ``mmap`` module of Python cannot make."""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from collections.abc import Callable
from functools import partial
from typing import Final

PAGE: Final = mmap.PAGESIZE
WRITABLE: Final = mmap.PROT_READ | mmap.PROT_WRITE
NO_ACCESS: Final = 0

_FAILED: Final = ctypes.c_void_p(-1).value
_FIXED: Final = 0x10  # MAP_FIXED and MAP_NORESERVE, which the mmap module does not name
_NO_RESERVE: Final = 0x4000
_RESERVED: Final = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE

_libc = ctypes.CDLL(None, use_errno=True)
_mmap = _libc.mmap
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_mprotect = _libc.mprotect
_mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_fallocate = _libc.fallocate
_fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
_KEEP_SIZE_AND_PUNCH_HOLE: Final = 0x01 | 0x02
_munmap = _libc.munmap
_munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def reserve(nbytes: int, *, alignment: int = PAGE, margin: int = 0) -> int:
    """Reserve address space without access rights, and return its first address.

    It takes no memory, and does not count as data (``ulimit -d``).

    Args:
        nbytes: A multiple of the size of a page.
        alignment: Bytes; the address is a multiple of it.
        margin: Bytes on either side that are reserved, too.

    Raises:
        OSError: The process may not have so much address space.
    """
    size = nbytes + 2 * margin
    slack = alignment - PAGE
    outer = _map(None, size + slack, NO_ACCESS, _RESERVED, -1)
    address = -(-(outer + margin) // alignment) * alignment
    before = address - margin - outer
    if before:
        release(outer, before)
    if slack > before:
        release(outer + before + size, slack - before)
    return address


def map_at(address: int, nbytes: int, protection: int, flags: int, fd: int = -1) -> None:
    """Map a file, or memory, where address space was reserved.

    Args:
        address: First address; an earlier mapping there is replaced.
        nbytes: Size, a multiple of the size of a page.
        protection: As of ``mmap``.
        flags: As of ``mmap``.
        fd: The file.

    Raises:
        OSError: The kernel refuses.
    """
    _map(address, nbytes, protection, flags | _FIXED, fd)


def protect(address: int, nbytes: int, access: int) -> None:
    """Say how pages may be accessed.

    Raises:
        MemoryError: The kernel refuses: the process has too many mappings.
    """
    if _mprotect(address, nbytes, access):
        raise MemoryError("the kernel does not protect more pages")


def release(address: int, nbytes: int) -> None:
    """Give address space back, and what is mapped there."""
    _munmap(address, nbytes)


def empty(fd: int, nbytes: int) -> None:
    """Give the memory of a file in memory back to the machine; whoever still maps it reads zeros.

    Args:
        fd: The file.
        nbytes: Its size.
    """
    _fallocate(fd, _KEEP_SIZE_AND_PUNCH_HOLE, 0, nbytes)


def view_of(address: int, nbytes: int) -> memoryview:
    """Return mapped memory as bytes; they must not be used after :func:`release`."""
    return memoryview((ctypes.c_char * nbytes).from_address(address)).cast("B")


def owned_view_of(address: int, nbytes: int, release: Callable[[], object]) -> memoryview:
    """Return mapped memory as bytes; it is released with the last reference to them.

    At the end of the process the kernel does that.
    """
    memory = (ctypes.c_char * nbytes).from_address(address)
    weakref.finalize(memory, release).atexit = False  # views of any kind keep this object
    return memoryview(memory).cast("B")


def mapped(fd: int, nbytes: int, protection: int, flags: int, *, alignment: int) -> memoryview:
    """Map a file, and return its bytes; it stays mapped until the last reference is gone.

    Args:
        fd: The file; it may be closed afterwards.
        nbytes: How much of it, a multiple of the size of a page.
        protection: As of ``mmap``; without ``PROT_WRITE`` the bytes are read-only.
        flags: As of ``mmap``.
        alignment: Bytes; the address is a multiple of it.

    Raises:
        OSError: The kernel refuses.
    """
    address = reserve(nbytes, alignment=alignment)
    try:
        map_at(address, nbytes, protection, flags, fd)
    except OSError:
        release(address, nbytes)
        raise
    view = owned_view_of(address, nbytes, partial(release, address, nbytes))
    return view if protection & mmap.PROT_WRITE else view.toreadonly()


def _map(address: int | None, nbytes: int, protection: int, flags: int, fd: int) -> int:
    found = _mmap(address, nbytes, protection, flags, fd, 0)
    if found == _FAILED:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return int(found)
