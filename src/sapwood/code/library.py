"""A built library, as plain data that names its file."""

from __future__ import annotations

import os

import msgspec

from sapwood.code.interface import Interface


class LibraryImage(msgspec.Struct, frozen=True, kw_only=True):
    """One built library of a program.

    Attributes:
        language: The language that loads it.
        plugin: Where that language is, as ``module:name``, if it is none of the built-in ones.
        file: The library's file; names of folders need not be text.
        sha256: Its content, checked before it is loaded.
        debug_file: The file that holds its debug information; empty when there is none.
        interface: Its functions.
        architecture: Of the processes that can load it; empty for all.
        libc: Name of their C library.
        gpu: ``cuda`` for those that have such a GPU.
    """

    language: str
    file: bytes
    sha256: str
    debug_file: bytes
    interface: Interface
    architecture: str = ""
    libc: str = ""
    plugin: str = ""
    gpu: str = ""

    @property
    def path(self) -> str:
        """The library's file, as Python names it."""
        return os.fsdecode(self.file)

    @property
    def debug(self) -> str:
        """The file with its debug information, as Python names it."""
        return os.fsdecode(self.debug_file)

    def fits(self, architecture: str, libc: str) -> bool:
        """Whether processes of an architecture and a C library can load it."""
        return self.architecture in {"", architecture} and self.libc in {"", libc}
