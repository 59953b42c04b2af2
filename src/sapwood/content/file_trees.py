"""Files and folders as lists of their contents, for staging and collecting.

A tree of files is a value: each file is there by its SHA-256, its size and whether it can be
executed; folders and links are there by name. Equal trees have equal digests.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Literal

import msgspec

from sapwood.content.refs import CHUNK, checked_sha256
from sapwood.core.errors import DataMissingError, InputError, ProtocolError
from sapwood.core.shown import shown
from sapwood.core.typed import Natural

MAX_ENTRIES: Final = 40_000
"""Files, folders and links of one tree: the list of them is one message."""

MAX_LISTED: Final = 6 * 2**20
"""Bytes of that list: less than a message carries."""

ENTRY_COST: Final = 96
"""Bytes of an entry besides its path and the target of a link: hash, kind and sizes."""

MAX_NAME: Final = 255
"""Bytes of the name of a file."""

MARK: Final = ".sapwood-environment"
"""File in the folder of an environment that says for which machines and of what it was made."""


class FileEntry(msgspec.Struct, frozen=True, array_like=True):
    """A file, folder or link of a tree.

    Attributes:
        path: Where it is in the tree, with ``/`` between names; the first name is the tree's own.
        kind: What it is.
        nbytes: Size of a file.
        sha256: Hash of a file in hexadecimal.
        executable: Whether a file can be executed.
        target: Where a link leads.
    """

    path: bytes
    kind: Literal["file", "folder", "link"] = "file"
    nbytes: Natural = 0
    sha256: str = ""
    executable: bool = False
    target: bytes = b""


class FileTree(msgspec.Struct, frozen=True):
    """A file, or a folder with all that is in it.

    Attributes:
        name: What it is called.
        entries: What it has; a folder comes before what is in it.
    """

    name: str
    entries: list[FileEntry]

    @property
    def digest(self) -> str:
        """What all trees have that are equal to this one, and no others."""
        return hashlib.sha256(msgspec.msgpack.encode(self)).hexdigest()

    @property
    def files(self) -> list[FileEntry]:
        """Its files."""
        return [one for one in self.entries if one.kind == "file"]

    @property
    def nbytes(self) -> int:
        """Bytes of all its files."""
        return sum(one.nbytes for one in self.files)

    def named(self, name: str) -> FileTree:
        """Return the same under another name.

        Raises:
            InputError: It is not a name of a file.
        """
        root = os.fsencode(checked_name(name))
        return FileTree(
            name,
            [
                msgspec.structs.replace(one, path=b"/".join([root, *one.path.split(b"/")[1:]]))
                for one in self.entries
            ],
        )

    def check(self) -> None:
        """Refuse a tree that would write anywhere but below its own name.

        Raises:
            ProtocolError: It would, or is not a tree.
            InputError: Its name is none.
        """
        root = os.fsencode(checked_name(self.name))
        folders: set[bytes] = set()
        seen: set[bytes] = set()
        for number, one in enumerate(self.entries):
            above, _, last = one.path.rpartition(b"/")
            fits = one.path == root if not number else above in folders
            named = last not in {b"", b".", b".."} and b"\0" not in one.path + one.target
            if not (fits and named) or one.path in seen:
                raise ProtocolError(f"the list of staged files is malformed at {shown(one.path)}")
            seen.add(one.path)
            if one.kind == "folder":
                folders.add(one.path)
            elif one.kind == "file":
                checked_sha256(one.sha256)
        if not seen:
            raise ProtocolError("the list of staged files is empty")
        if self.nbytes >= 2**63:
            raise ProtocolError("the sizes in the list of staged files cannot be right")


def checked_name(name: str) -> str:
    """Return a valid name of staged files unchanged.

    Raises:
        InputError: It is not a name of a file.

    Example:
        >>> checked_name("tool")
        'tool'
        >>> checked_name("../tool")
        Traceback (most recent call last):
        sapwood.core.errors.InputError: '../tool' is not a name for staged files. Hint: ...
    """
    fits = name not in {"", ".", ".."} and "/" not in name and name.isprintable()
    if not fits or len(os.fsencode(name)) > MAX_NAME:
        raise InputError(
            f"{shown(name)} is not a name for staged files",
            hint="use a file name without /: --as NAME",
        )
    return name


def read_tree(path: Path, ended: Callable[[], bool] = bool) -> FileTree:
    """Read what is at a path, and hash its files.

    Args:
        path: A file or a folder; a link stands for what it leads to.
        ended: Says whether to give up.

    Raises:
        DataMissingError: There is nothing, or a part of it cannot be read.
        InputError: It has too many files, or something that is not a file, folder or link.
    """
    name = path.name or path.resolve().name or "root"
    entries: list[FileEntry] = []
    listed = 0
    try:
        for one in _entries_of(path, os.fsencode(name), ended):
            entries.append(one)
            listed += ENTRY_COST + len(one.path) + len(one.target)
            if len(entries) > MAX_ENTRIES or listed > MAX_LISTED:
                raise InputError(
                    f"this folder has more than {MAX_ENTRIES} files, or too long paths",
                    where=str(path),
                    hint="pack it into one file first, for example with tar",
                )
    except OSError as error:
        raise DataMissingError(
            f"this cannot be read: {error.strerror or error}",
            where=str(error.filename or path),
            hint="check the path, and whether you may read it",
        ) from error
    return FileTree(name, entries)


def _entries_of(path: Path, name: bytes, ended: Callable[[], bool]) -> Iterator[FileEntry]:
    status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        yield FileEntry(name, "folder")
        for entry in sorted(os.scandir(os.fsencode(path)), key=lambda one: one.name):
            inner, here = name + b"/" + entry.name, Path(os.fsdecode(entry.path))
            if entry.is_symlink():
                yield FileEntry(inner, "link", target=os.fsencode(here.readlink()))
            else:
                yield from _entries_of(here, inner, ended)
    elif stat.S_ISREG(status.st_mode):
        sha256, nbytes = _hashed(path, ended)
        yield FileEntry(name, "file", nbytes, sha256, bool(status.st_mode & 0o111))
    else:
        raise InputError(
            "not a file or a folder", where=str(path), hint="leave it out, or move it away"
        )


def _hashed(path: Path, ended: Callable[[], bool]) -> tuple[str, int]:
    """Return hash and size of a file."""
    hasher, size = hashlib.sha256(), 0
    with path.open("rb", buffering=0) as file:
        while data := file.read(CHUNK):
            hasher.update(data)
            size += len(data)
            if ended():
                raise InterruptedError
    return hasher.hexdigest(), size
