"""Whether a folder is on a disk of this machine, from the type of its file system."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from sapwood.core.errors import StoreError

LOCAL: dict[int, str] = {
    0xEF53: "ext4",
    0x58465342: "xfs",
    0x9123683E: "btrfs",
    0x2FC12FC1: "zfs",
    0xF2F52010: "f2fs",
    0xCA451A4E: "bcachefs",
    0x52654973: "reiserfs",
    0x3153464A: "jfs",
    0x01021994: "tmpfs",
    0x858458F6: "ramfs",
    0x794C7630: "overlayfs",
}
"""File systems of which only one machine writes the files, by the number in ``statfs(2)``."""

_STATFS_BYTES = 512
"""More than any ``struct statfs`` has."""


def kind_number(folder: Path) -> int:
    """Return the number of a folder's file system.

    Raises:
        StoreError: The folder cannot be looked at.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    answer = ctypes.create_string_buffer(_STATFS_BYTES)
    if libc.statfs(os.fsencode(folder), answer) != 0:
        reason = os.strerror(ctypes.get_errno())
        raise StoreError(f"the folder of a store cannot be looked at: {reason}", where=str(folder))
    # f_type comes first. It has the size of a register, of which 32 bits count.
    return ctypes.c_long.from_buffer(answer).value & 0xFFFFFFFF


def is_local(folder: Path) -> bool:
    """Return whether the folder is on a file system that only this machine writes.

    One that is not known counts as shared.

    Example:
        >>> is_local(Path("/proc"))
        False
    """
    return kind_number(folder) in LOCAL
