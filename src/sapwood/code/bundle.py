"""Bundles: the files of a program, with their contents at the time of reading."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from sapwood.core.errors import ProgramError
from sapwood.core.shown import shown

MAX_BUNDLE_BYTES = 64 * 2**20
"""Size of all files of a program together."""

MAX_PROGRAM_BYTES = 512 * 2**20
"""Size of the Python part of a program: its Python files, or its class with what that holds."""

_LOCAL_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)


class Bundle(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The files of a program.

    Attributes:
        origin: Folder that the names are relative to.
        main: The file that defines the program: ``program.toml`` or a Python file; empty when
            the class came from a script, a notebook or the interactive prompt.
        class_name: Which class of the Python file, where it defines several.
        pickled: The class itself, by cloudpickle, without a main file. It is code:
            only a runner loads it.
        sources: Names of the files to build.
        files: Content by name, with ``/`` between parts.
    """

    origin: str
    main: str = ""
    class_name: str = ""
    pickled: bytes = b""
    sources: tuple[str, ...] = ()
    files: dict[str, bytes] = {}

    @property
    def hash(self) -> str:
        """SHA-256 of names and contents, in hexadecimal; the folder does not matter."""
        return digest(
            [
                ("main", f"{self.main}:{self.class_name}".encode()),
                ("class", self.pickled),
                ("sources", "\0".join(self.sources).encode()),
                *((f"file {name}", self.files[name]) for name in sorted(self.files)),
            ]
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the class and the files."""
        return len(self.pickled) + sum(map(len, self.files.values()))

    def without(self, names: Iterable[str]) -> Bundle:
        """Return the bundle less some files."""
        dropped = set(names)
        kept = {name: data for name, data in self.files.items() if name not in dropped}
        return msgspec.structs.replace(self, files=kept)


def digest(parts: Iterable[tuple[str, bytes]]) -> str:
    """Return the SHA-256 of named parts; no two lists of parts run into each other.

    Example:
        >>> digest([("a", b"bc")]) == digest([("ab", b"c")])
        False
    """
    hasher = hashlib.sha256()
    for name, data in parts:
        hasher.update(f"{len(name.encode())}:{name}{len(data)}:".encode())
        hasher.update(data)
    return hasher.hexdigest()


def read_file(folder: Path, name: str, *, named_by: str) -> bytes:
    """Return the content of a program's file.

    Raises:
        ProgramError: It is missing or cannot be read.
    """
    path = folder / name
    if Path(name).is_absolute():
        raise ProgramError(
            f"{name} is not a path inside the program's folder",
            where=named_by,
            hint=f"copy the file to {folder} and name it relative to that folder",
        )
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:
        from sapwood.core.suggest import suggest  # noqa: PLC0415 - only a mistake needs it

        beside = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise ProgramError(
            f"cannot read {shown(name)}: {why}", where=named_by, hint=suggest(name, beside)
        ) from error


def with_sources(bundle: Bundle, sources: Iterable[str], *, folder: Path, named_by: str) -> Bundle:
    """Return the bundle with sources from a folder, and the local headers that they include.

    Names are relative to ``folder``. A header in quotes that is not found beside its includer
    is left to the compiler.
    """
    files = dict(bundle.files)
    names = tuple(_normal(name) for name in sources)
    pending = list(names)
    while pending:
        name = pending.pop()
        if name in files:
            continue
        files[name] = data = read_file(folder, name, named_by=named_by)
        pending.extend(header for header in _included(name, data) if _is_inside(folder, header))
        if sum(map(len, files.values())) > MAX_BUNDLE_BYTES:
            raise ProgramError(
                f"the program's files are over {MAX_BUNDLE_BYTES // 2**20} MiB",
                where=named_by,
                hint="keep data out of sources and headers",
            )
    return msgspec.structs.replace(bundle, sources=names, files=files)


def native_files(bundle: Bundle) -> dict[str, bytes]:
    """Return the sources of a bundle and the headers that they include: what a build needs."""
    reached: dict[str, bytes] = {}
    pending = list(bundle.sources)
    while pending:
        name = pending.pop()
        if name not in reached and name in bundle.files:
            reached[name] = bundle.files[name]
            pending.extend(_included(name, reached[name]))
    return reached


def _included(name: str, data: bytes) -> list[str]:
    folder = Path(name).parent
    return [
        _normal(str(folder / os.fsdecode(match.group(1))))
        for match in _LOCAL_INCLUDE.finditer(data)
    ]


def _is_inside(folder: Path, header: str) -> bool:
    """Whether a header is a file that travels with the program; else the compiler finds it."""
    try:
        return not Path(header).is_absolute() and (folder / header).is_file()
    except ValueError:  # a null byte
        return False


def _normal(name: str) -> str:
    return os.path.normpath(name).replace(os.sep, "/")
