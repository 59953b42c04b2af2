"""A built library, as plain data that names its file."""

from __future__ import annotations

import msgspec

from sapwood.code.interface import Interface


class LibraryImage(msgspec.Struct, frozen=True, kw_only=True):
    """One built library of a program.

    Attributes:
        language: The language that loads it.
        path: The library's file.
        sha256: Its content, checked before it is loaded.
        debug: The file that holds its debug information; empty when there is none.
        interface: Its functions.
        architecture: Of the processes that can load it; empty for all.
        libc: Name of their C library.
    """

    language: str
    path: str
    sha256: str
    debug: str
    interface: Interface
    architecture: str = ""
    libc: str = ""

    def fits(self, architecture: str, libc: str) -> bool:
        """Whether processes of an architecture and a C library can load it."""
        return self.architecture in {"", architecture} and self.libc in {"", libc}
