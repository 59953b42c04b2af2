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
    """

    language: str
    path: str
    sha256: str
    debug: str
    interface: Interface
