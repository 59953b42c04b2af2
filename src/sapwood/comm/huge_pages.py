"""Shared memory in huge pages, where the kernel gives them.

A page of 4 KiB costs a microsecond or more when it is made, and again in each process that
touches it first; one of 2 MiB costs little more than one of those.
"""

from __future__ import annotations

import ctypes
import errno
import os
from typing import Final

HUGE_PAGE: Final = 2 * 2**20
"""Bytes of a huge page of x86-64, and of arm64 with pages of 4 KiB."""

NONE_FREE: Final = (errno.ENOMEM, errno.EBUSY)
"""What the kernel says where memory is scarce or in pieces, or a control group has no more."""

FOR_THIS_ONE: Final = (0, errno.EAGAIN)
"""Results that say nothing about the next block: success, or a page was in use just then."""

PAUSE: Final = 64
"""Blocks for which the kernel is not asked after it had no huge pages free."""

_COLLAPSE: Final = 25  # MADV_COLLAPSE, Linux 6.1: whatever the system says of shared memory

_madvise = ctypes.CDLL(None, use_errno=True).madvise
_madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Asking:
    """Whether it is worth while to ask the kernel for huge pages.

    Attributes:
        refused: It has none at all: it is older, or made without them.
        pause: Blocks for which the kernel is not asked, because it had no free huge pages.
    """

    __slots__ = ("pause", "refused")

    def __init__(self) -> None:
        self.refused = False
        self.pause = 0

    def worth_while(self) -> bool:
        """Whether to ask for one more block."""
        if self.pause:
            self.pause -= 1
            return False
        return not self.refused

    def answered(self, error: int) -> None:
        """Learn what the kernel said: 0, or an error number."""
        if error in NONE_FREE:
            self.pause = PAUSE
        elif error not in FOR_THIS_ONE:
            self.refused = True


_asking: Final = Asking()


def fill(fd: int, view: memoryview, asking: Asking = _asking) -> None:
    """Back the whole huge pages of an empty file by huge pages, if the kernel has some.

    Args:
        fd: The file, in shared memory.
        view: All of it, mapped at a multiple of :data:`HUGE_PAGE`; bytes beyond the last
            whole huge page stay as they are.
        asking: What the kernel said before.

    Raises:
        OSError: There is not that much memory.
    """
    if not asking.worth_while():
        return
    whole = len(view) // HUGE_PAGE * HUGE_PAGE
    for offset in range(0, whole, HUGE_PAGE):
        os.posix_fallocate(fd, offset, 1)  # of pages that are all missing the kernel makes none
    address = ctypes.addressof(ctypes.c_char.from_buffer(view))
    asking.answered(ctypes.get_errno() if _madvise(address, whole, _COLLAPSE) else 0)
