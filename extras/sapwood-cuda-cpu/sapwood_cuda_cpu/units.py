"""CUDA sources parsed by libclang: what their names, types and calls mean.

The headers that stand in the place of CUDA's are compiled once and kept in the user's cache. A
source takes some milliseconds then.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final, cast

import msgspec

from sapwood.errors import BuildError, CompilerMissingError
from sapwood.plugins.caches import BuildCache, CacheEntry
from sapwood.plugins.languages import Compiler, digest, find_compiler
from sapwood.plugins.tools import cache_folder
from sapwood_cuda_cpu.dynamic import is_dynamic, is_inside
from sapwood_cuda_cpu.parse import CudaSource
from sapwood_cuda_cpu.precompiled import CPP_17, SHIM, shim_hash

INSTALL: Final = "libclang is not installed: pip install 'sapwood[cuda-cpu]'"
"""Why nothing is known of a source on a machine without libclang."""

_FOLDER: Final = re.compile(r"^ (/[^\n]*?)(?: \(framework directory\))?$", re.MULTILINE)
_SHARED: Final = '-D__shared__=__attribute__((annotate("shared")))'
_FLAGS: Final = (
    *CPP_17,
    "-nostdinc",
    "-nostdinc++",
    "-ferror-limit=0",
    "-w",
    f"-I{SHIM}",
    _SHARED,
)
_INCOMPLETE: Final = 0x02
_FOR_SERIALIZATION: Final = 0x10
_DYNAMIC: Final = re.compile(rb"\bextern\b([^;]*?)\[\s*\]", re.DOTALL)


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """How the files of a program are read.

    Attributes:
        folder: Names of files that are not absolute are names below it.
        include: Folders of headers.
        macros: Macros of the command line.
        texts: Files that are not CUDA sources, by name; others are read from the disk.
        environment: Says which C++ compiler there is, and where the cache is.
    """

    folder: Path = msgspec.field(default_factory=Path.cwd)
    include: tuple[Path, ...] = ()
    macros: Mapping[str, str] = {}
    texts: Mapping[str, bytes] = {}
    environment: Mapping[str, str] = msgspec.field(default_factory=lambda: dict(os.environ))

    def path(self, name: str) -> str:
        """Return the absolute path of a file."""
        return os.path.normpath(self.folder.absolute() / name)


class UnitsMissingError(Exception):
    """Sources cannot be parsed on this machine; the text says why."""


class Units:
    """The translation units of some sources.

    Attributes:
        names: The sources' names by their paths.
        parsed: Each unit: its path and its tree.
    """

    def __init__(self, sources: Mapping[str, CudaSource], reading: Reading) -> None:
        self.names = {reading.path(name): name for name in sources}
        self.parsed: list[tuple[str, Any]] = []
        self._library = _library()
        compiler = _compiler(reading.environment)
        folders = _system_folders(compiler)
        self._headers = _precompiled(self._library, folders, reading.environment)
        self._language = ("-x", "c++", *_FLAGS, *(f"-isystem{folder}" for folder in folders))
        self._arguments = [
            *(f"-D{name}={value}" for name, value in reading.macros.items()),
            *_own_flags(reading.environment),
            *(f"-I{reading.path(str(folder))}" for folder in (*reading.include, reading.folder)),
        ]
        self._files: list[tuple[str, bytes]] = [
            (reading.path(name), text) for name, text in reading.texts.items()
        ]
        self._files += [(reading.path(name), _as_cpp(each)) for name, each in sources.items()]
        for name in sources:
            if name.endswith(".cu"):
                self._parse(reading.path(name))
        for name, source in sources.items():  # headers that nothing includes
            included = any(self._holds(unit, name) for _, unit in self.parsed)
            if source.kernels and not name.endswith(".cu") and not included:
                self._parse(reading.path(name))

    def close(self) -> None:
        """Let go of the headers' cache entry."""
        self._headers.close()

    def _parse(self, path: str) -> None:
        failure = ""
        for headers in (
            ("-include-pch", os.fspath(self._headers.path("shim.pch"))),
            ("-include", str(SHIM / "cuda_runtime.h")),  # a header of the system has changed since
        ):
            index = self._library.Index.create(excludeDecls=True)
            arguments = [*self._language, *headers, *self._arguments]
            try:
                unit = index.parse(path, arguments, unsaved_files=self._files)
            except self._library.TranslationUnitLoadError as error:
                failure = f"libclang does not read {path}: {error}"
            else:
                self.parsed.append((path, unit))
                return
        raise UnitsMissingError(failure)

    def _holds(self, unit: Any, name: str) -> bool:
        return any(
            self.names.get(os.path.normpath(str(each.include))) == name
            for each in unit.get_includes()
        )


def cursors_of(unit: Any, names: Mapping[str, str]) -> Iterator[Any]:
    """Yield the declarations at the top of a unit that are in some files."""
    for each in unit.cursor.get_children():
        file = each.location.file
        if file is not None and os.path.normpath(file.name) in names:
            yield each


@functools.cache
def _library() -> ModuleType:
    try:
        from clang import cindex  # noqa: PLC0415 - it is optional

        cindex.Index.create()
    except ImportError:
        raise UnitsMissingError(INSTALL) from None
    except cindex.LibclangError as error:
        raise UnitsMissingError(f"libclang cannot be loaded: {error}") from None
    return cast("ModuleType", cindex)


def _own_flags(environment: Mapping[str, str]) -> list[str]:
    """Return the user's flags that change what a source means."""
    flags = shlex.split(environment.get("CXXFLAGS", ""))
    return [each for each in flags if each.startswith(("-D", "-U", "-I"))]


def _compiler(environment: Mapping[str, str]) -> Compiler:
    """Return the compiler whose system headers are read: g++ where it is there."""
    plain = {name: value for name, value in environment.items() if name != "CXX"}
    try:
        return find_compiler("c++", plain)
    except CompilerMissingError:
        pass
    try:
        return find_compiler("c++", environment)
    except CompilerMissingError as error:
        raise UnitsMissingError(error.what) from None


def _system_folders(compiler: Compiler) -> tuple[str, ...]:
    return _asked(compiler.command, compiler.identity)


@functools.cache
def _asked(command: tuple[str, ...], identity: str) -> tuple[str, ...]:
    """Return the folders in which a compiler looks for the headers of the system."""
    del identity  # another compiler may come to be at the same path
    asked = subprocess.run(
        [*command, "-E", "-v", "-x", "c++", os.devnull],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )
    listed = asked.stderr.partition("search starts here:")[2].partition("End of search list")[0]
    return tuple(_FOLDER.findall(listed))


def _precompiled(
    library: ModuleType, folders: Sequence[str], environment: Mapping[str, str]
) -> CacheEntry:
    """Return the headers for libclang, compiled once."""
    words = "\0".join((*_FLAGS, *folders, str(library.__file__), str(SHIM)))
    # libclang refuses precompiled headers of files that have another time than then.
    times = "\0".join(str(each.stat().st_mtime_ns) for each in sorted(SHIM.rglob("*.h")))
    parts = [("semantics", words), ("shim", shim_hash()), ("times", times)]
    key = digest([(name, text.encode()) for name, text in parts])

    def fill(output: Path, scratch: Path) -> dict[str, str]:
        del scratch
        arguments = ["-x", "c++-header", *_FLAGS, *(f"-isystem{folder}" for folder in folders)]
        # A source takes a tenth of the time where the headers' templates are instantiated already.
        arguments += ["-Xclang", "-fpch-instantiate-templates", "-Xclang", "-fno-pch-timestamp"]
        unit = library.Index.create().parse(
            str(SHIM / "cuda_runtime.h"), arguments, options=_INCOMPLETE | _FOR_SERIALIZATION
        )
        wrong = [each for each in unit.diagnostics if each.severity >= library.Diagnostic.Error]
        if wrong:
            raise BuildError(str(wrong[0]), where=str(SHIM))
        unit.save(str(output / "shim.pch"))
        return {"language": "cuda semantics", "sources": "cuda_runtime.h"}

    try:
        return BuildCache(cache_folder(environment)).get_or_build(key, fill)
    except BuildError as error:
        raise UnitsMissingError(f"libclang does not read CUDA's headers: {error.what}") from None


def _as_cpp(source: CudaSource) -> bytes:
    """Return a source as C++, each word at its place: no launches, no arrays without a size."""
    text = bytearray(source.data)
    for launch in source.launches:
        start = launch.configuration.start_byte + launch.offset
        end = launch.configuration.end_byte + launch.offset
        text[start:end] = re.sub(rb"[^\\\r\n]", b" ", bytes(text[start:end]))
    for node in source.shared:
        if is_dynamic(node) and is_inside(node):  # a name is one place before its own then
            start, end = node.start_byte, node.end_byte
            text[start:end] = _DYNAMIC.sub(_sized, bytes(text[start:end]), count=1)
    return bytes(text)


def _sized(match: re.Match[bytes]) -> bytes:
    return (b"     " + match[1] + b"[1]").ljust(len(match[0]))
