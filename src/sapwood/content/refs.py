"""References to content by its hash: what reaches machines that see no memory and no files of ours.

Content is bytes that never change: a library, a part of a dataset. Whoever offers it tells its
reference, and a place on another machine fetches the bytes once and keeps them in a folder of its
node, each under the name of its hash.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

import msgspec

from sapwood.core.errors import ProtocolError
from sapwood.core.shown import shown

CHUNK: Final = 2**20
"""Bytes of content that travel at a time, at most."""

_DIGITS = frozenset("0123456789abcdef")
_LENGTH = 64


class FileStamp(msgspec.Struct, frozen=True, array_like=True):
    """The size and time of change of a file when it was last read.

    Attributes:
        path: Its absolute path; names of folders need not be text.
        size: Its size, bytes.
        mtime_ns: Time of its last change, nanoseconds.
    """

    path: bytes
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, path: bytes) -> FileStamp:
        """Look at a file.

        Raises:
            OSError: It cannot be looked at.
        """
        status = os.stat(path)  # noqa: PTH116 - names need not be text
        return cls(path, status.st_size, status.st_mtime_ns)

    def is_here(self) -> bool:
        """Whether this process can read the same file at the same path."""
        try:
            return FileStamp.of(self.path) == self and os.access(self.path, os.R_OK)
        except (OSError, ValueError):  # a null byte is a ValueError
            return False


class ContentRef(msgspec.Struct, frozen=True, array_like=True):
    """Content that a process offers.

    Attributes:
        sha256: Its hash in hexadecimal; empty for a part of a file that was not read
            yet: the client names it when it is asked (:data:`NAME`).
        nbytes: Its size.
        file: A file that has it; a place that sees that file uses it and fetches nothing.
        offset: Where in the file it begins.
    """

    sha256: str
    nbytes: int
    file: FileStamp | None = None
    offset: int = 0


class WantedChunk(msgspec.Struct, frozen=True, array_like=True):
    """A request for a chunk, as every root, junction and node answers it.

    Attributes:
        sha256: Hash of the content in hexadecimal.
        size: Its size.
        offset: Where the chunk begins.
        nbytes: Its size.
    """

    sha256: str
    size: int
    offset: int
    nbytes: int

    def check(self, least: int = 1) -> None:
        """Refuse a chunk that cannot be one.

        Args:
            least: Its least size, bytes.

        Raises:
            ProtocolError: It is none.

        Example:
            >>> WantedChunk("0" * 64, 10, 8, 3).check()
            Traceback (most recent call last):
            sapwood.core.errors.ProtocolError: bytes 8 to 11 of content of 10 bytes
        """
        checked_sha256(self.sha256)
        end = self.offset + self.nbytes
        if not (least <= self.nbytes <= CHUNK and self.offset >= 0 and end <= self.size):
            raise ProtocolError(f"bytes {self.offset} to {end} of content of {self.size} bytes")


class ContentChunk:
    """The owner of a chunk that is on its way: makes room for the next one when it was taken.

    Args:
        taken: Called once the chunk was taken, or never will be.
    """

    __slots__ = ("taken",)

    def __init__(self, taken: Callable[[], None]) -> None:
        self.taken = taken


class ContentFolder:
    """The folder in which the processes of a node find the content that was fetched.

    Args:
        path: The folder; empty where there is none, as all content is on this machine.

    Example:
        >>> ContentFolder("/var/cache").path_of("0" * 64)[:15]
        '/var/cache/0000'
    """

    __slots__ = ("path",)

    def __init__(self, path: str = "") -> None:
        self.path = path

    def path_of(self, sha256: str) -> str:
        """Return where content is stored once it has arrived; empty without a folder.

        Raises:
            ProtocolError: That is no SHA-256.
        """
        return f"{self.path}/{checked_sha256(sha256)}" if self.path else ""

    def locate(self, ref: ContentRef) -> bytes:
        """Return the file that has some content: the one it comes from, or the fetched one."""
        if ref.file is not None and ref.file.is_here():
            return ref.file.path
        if self.path and ref.sha256:
            return os.fsencode(self.path_of(ref.sha256))
        return ref.file.path if ref.file is not None else b""


def checked_sha256(text: str) -> str:
    """Return a SHA-256 in hexadecimal as it is; it becomes the name of a file.

    Raises:
        ProtocolError: It is none.

    Example:
        >>> checked_sha256("../../etc/passwd")
        Traceback (most recent call last):
        sapwood.core.errors.ProtocolError: '../../etc/passwd' is no SHA-256
    """
    if len(text) != _LENGTH or not _DIGITS.issuperset(text):
        raise ProtocolError(f"{shown(text)} is no SHA-256")
    return text
