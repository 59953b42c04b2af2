"""A registered program: its name, its configuration with all sources as JSON, and its checksum.

Data from elsewhere is checked before it is used: sizes, types, the
checksum, and names, of which none may leave its folder.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

import msgspec

from sapwood.errors import ProgramError
from sapwood.plugins.tools import shown

MAX_PROGRAM_BYTES: Final = 16 * 2**20
"""Size of a program with all its sources, as JSON."""

CONFIGURATION: Final = "config.yaml"
"""The file that describes a program."""

KNOWN_SOURCES: Final = ("python", "header", "cuda", "cpp")
"""Keys of ``sources`` that have a meaning; files under other keys lie beside them."""

FILES: Final = "files"
"""Key of files that ``sources`` does not name but that those include or import."""

_CHECKSUM = re.compile(r"[0-9a-f]{40}")
_FALSE, _TRUE = {"false", "no", "off", "0", "n", "f"}, {"true", "yes", "on", "1", "y", "t"}


class SourceFile(msgspec.Struct, frozen=True):
    """A file of a program: the key it is under, its name in the folder, its text."""

    key: str
    name: str
    text: str


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """A program as it is registered, kept and sent.

    Attributes:
        name: For people.
        data: The configuration with all sources, as JSON.
        checksum: SHA-1 of ``data``: the program's identity.
    """

    name: str
    data: str
    checksum: str

    def checked(self) -> Registration:
        """Return this registration if it is what it says it is.

        Raises:
            ProgramError: It is too large, or the checksum does not match the data.
        """
        if len(self.data) > MAX_PROGRAM_BYTES:
            raise ProgramError(
                f"the program has more than {MAX_PROGRAM_BYTES // 2**20} MiB", where=self.name
            )
        if checksum_of(self.data) != self.checksum:
            raise ProgramError(
                "the checksum does not match the program",
                where=self.name or self.checksum[:40],
                hint="register it again",
            )
        return self


def checksum_of(data: str) -> str:
    """Return the identity of a program: SHA-1 of its JSON text, in hexadecimal.

    Example:
        >>> checksum_of("{}")
        'bf21a9e8fbc5a3846fb05b4fa0859e0917b2202f'
    """
    return hashlib.sha1(data.encode(), usedforsecurity=False).hexdigest()


def parse_checksum(text: str) -> str:
    """Return a checksum as programs are known by.

    Raises:
        ProgramError: The text is none.
    """
    found = text.strip().lower()
    if not _CHECKSUM.fullmatch(found):
        raise ProgramError(
            f"{shown(text)} is not a checksum of a program",
            hint="give the 40 hexadecimal digits that `sapwood lizard load DIR` prints",
        )
    return found


class LizardDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """What a registration says, taken apart.

    Attributes:
        name: For people.
        extension: Whether it is a C extension of Python; otherwise ctypes calls it.
        files: All its files.
    """

    name: str
    extension: bool
    files: tuple[SourceFile, ...]

    def named(self, key: str) -> tuple[SourceFile, ...]:
        """Return the files under a key."""
        return tuple(file for file in self.files if file.key == key)

    @property
    def python(self) -> SourceFile:
        """The Python module."""
        return self.named("python")[0]

    def place(self, key: str) -> str:
        """Return what to call the first file of a key in messages."""
        found = self.named(key)
        return found[0].name if found else self.name


def define(registration: Registration) -> LizardDefinition:
    """Take a registration apart.

    Raises:
        ProgramError: It is not what a program must be.
    """
    where = registration.name or "the program"
    try:
        config = json.loads(registration.data)
    except ValueError as error:
        raise ProgramError(f"the program is not JSON: {error}", where=where) from error
    if not isinstance(config, dict):
        raise ProgramError("the program's configuration is not a mapping", where=where)
    return define_configuration(config, name=registration.name, where=where)


def define_configuration(config: Mapping[str, Any], *, name: str, where: str) -> LizardDefinition:
    """Take a configuration with its sources apart; see :func:`define`."""
    sources, code = _mapping(config, "sources", where), _mapping(config, "code", where)
    files = [
        SourceFile(key, checked_name(file, where=where), text)
        for key, named in sources.items()
        if named is not None
        for file, text in _pairs(key, named, code.get(key), where)
    ]
    known = {file.name for file in files}
    for file, text in _mapping(config, FILES, where).items():
        if file not in known:
            files.append(SourceFile("", checked_name(file, where=where), _text(text, file, where)))
    info = config.get("info")
    found = LizardDefinition(
        name=name or where,
        extension=is_extension(info if isinstance(info, Mapping) else {}, sources),
        files=tuple(files),
    )
    for key in ("python", "cuda", *(("cpp",) if found.extension else ())):
        if not found.named(key):
            raise ProgramError(
                f"the program names no {key} source", where=where, hint=_hint(key, sources)
            )
    return found


def _hint(key: str, sources: Mapping[str, Any]) -> str:
    if key == "cpp":
        return (
            "a C extension needs its wrapper under sources: cpp; for ctypes say "
            "py_c_extention: false under info"
        )
    return f"name the file in config.yaml, under sources: {key}; there is {', '.join(sources)}"


def is_extension(info: Mapping[str, Any], sources: Mapping[str, Any]) -> bool:
    """Say of which kind a program is: a C extension, or called by ctypes.

    The key is spelt ``py_c_extention``. Without it a program is a C extension, except one
    that has no wrapper, which could not be one.

    Raises:
        ProgramError: The key says neither.

    Example:
        >>> is_extension({"py_c_extention": False}, {}), is_extension({}, {"cpp": "w.cpp"})
        (False, True)
    """
    for key in ("py_c_extention", "py_c_extension"):
        value = info.get(key)
        text = str(value).strip().lower()
        if isinstance(value, (list, dict)) or (
            isinstance(value, str) and text not in _FALSE | _TRUE
        ):
            raise ProgramError(
                f"{key} must be true or false, not {shown(value)}", where=CONFIGURATION
            )
        if value is not None:
            return text not in _FALSE if isinstance(value, str) else bool(value)
    return "cpp" in sources


def checked_name(name: str, *, where: str) -> str:
    """Return the name of a file inside a program's folder.

    Raises:
        ProgramError: It leads out of the folder, or is not a name.
    """
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts or "\0" in name or not path.name:
        raise ProgramError(
            f"{shown(name)} cannot name a file of a program",
            where=where,
            hint="use names inside the program's folder",
        )
    return path.as_posix()


def _mapping(config: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    found = config.get(key)
    if found is None:
        found = {}
    if not isinstance(found, Mapping) or not all(isinstance(name, str) for name in found):
        raise ProgramError(f"{key} must be a mapping of names", where=where)
    return found


def _pairs(key: str, named: Any, texts: Any, where: str) -> Iterable[tuple[str, str]]:
    names = named if isinstance(named, list) else [named]
    found = texts if isinstance(texts, list) else [texts]
    if not all(isinstance(name, str) for name in names) or len(names) != len(found):
        raise ProgramError(
            f"sources: {key} must name a file, not {shown(named)}"
            if len(names) == len(found)
            else f"code: {key} does not hold the text of each file of sources: {key}",
            where=where,
        )
    return [(name, _text(text, name, where)) for name, text in zip(names, found, strict=True)]


def _text(value: Any, name: str, where: str) -> str:
    if not isinstance(value, str):
        raise ProgramError(f"the text of {name[:80]} is missing", where=where)
    return value
