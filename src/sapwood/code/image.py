"""Program images: what a runner needs to run a program, and opening one.

An image travels as plain data. Opening it imports the user's Python and loads the user's
library: only a runner process does that.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from sapwood.code.bundle import MAX_PROGRAM_BYTES, Bundle, digest, native_files
from sapwood.code.interface import FunctionSignature
from sapwood.code.library import LibraryImage
from sapwood.code.load import class_of_bundle
from sapwood.code.machine_kind import has_cuda_gpu
from sapwood.code.native_call import NativeCall
from sapwood.code.program import Program
from sapwood.content.refs import ContentFolder, ContentRef, FileStamp
from sapwood.contexts.process import c_library
from sapwood.core import typed
from sapwood.core.errors import FunctionMissingError, ProgramError
from sapwood.core.suggest import suggest

if TYPE_CHECKING:
    from sapwood.code.build import Built
    from sapwood.code.cache import BuildCache, CacheEntry
    from sapwood.code.languages.base import Language, LoadedCode


_NO_CONTENT = ContentFolder()

INLINE_BYTES = 128 * 1024
"""Bytes of a program's Python part up to which it travels in each message that names the program.

A larger one is a file of the build cache, which each machine fetches once, as it does libraries.
"""

_STORED = "python.msgpack"

_MINOR = sys.version_info.minor

_VERSIONED = re.compile(r"/(python3\.\d+|python3\d+\.zip)(?=/|$)")


class ProgramImage(msgspec.Struct, frozen=True, kw_only=True):
    """A program as an agent gets it.

    Attributes:
        hash: Identity of the program.
        name: Its name, for people.
        python: The Python part as files or as a pickled class.
        parameters: Parameter values by name.
        libraries: The libraries that were built from its sources.
        search_path: Where the client imports modules from; names of folders need not be text.
        stored: The file that has the Python part, if that is too large for a message; then
            ``python`` says only what the program is.
    """

    hash: str
    name: str
    python: Bundle
    parameters: dict[str, bool | int | float | str]
    libraries: tuple[LibraryImage, ...] = ()
    search_path: tuple[bytes, ...] = ()
    stored: ContentRef | None = None


class OpenProgram:
    """A program whose Python and libraries are loaded in this process.

    Args:
        image: The program.
        content: Where its libraries are if the files that it names cannot be seen from here.
        kind: Its class, where this process has it already; by default the one in the image.

    Attributes:
        image: The image from which it was opened.
        program: The program itself.
        map: Its map, whose results are not checked.
        native_call: Returns the last call of a native map, to be made again without Python.
    """

    def __init__(
        self, image: ProgramImage, content: ContentFolder, kind: type[Program] | None = None
    ) -> None:
        self.image = image
        if kind is None:
            _extend_search_path(image.search_path)
            kind = class_of_bundle(_python_of(image, content))
        self.program: Program = kind(**image.parameters)
        self._loaded: list[tuple[LibraryImage, LoadedCode]] = []
        self._functions: dict[str, Callable[..., Any]] = {}
        try:
            for library in _for_this_process(image):
                self._loaded.append(_load(library, content))
            self.program.loaded_functions = self.function
            self.program.library_path = self._loaded[0][0].path if self._loaded else ""
            self.map: Callable[[Any, dict[str, Any]], Any] = self._bind_map()
            self.native_call: Callable[[], NativeCall | None] | None = getattr(
                self.map, "native_call", None
            )
        except BaseException:
            self.close()
            raise

    def function(self, name: str) -> Callable[..., Any]:
        """Return a native function, ready to be called with Python values.

        Raises:
            FunctionMissingError: No library of the program has it.
        """
        function = self._functions.get(name)
        if function is None:
            code, _ = self._find(name)
            function = self._functions[name] = code.function(name, self.image.parameters)
        return function

    def call(self, function: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call a native function by name with arguments of another process.

        Raises:
            FunctionMissingError: No library of the program has it.
            ArgumentError: An argument does not fit.
        """
        found = self.function(function)
        remotely = getattr(found, "call_remotely", None)  # only C functions have one
        return found(*args, **kwargs) if remotely is None else remotely(args, kwargs)

    def close(self) -> None:
        """Unload the libraries; functions of this program must not be called afterwards."""
        self._functions.clear()
        try:
            self.program.close()
        finally:
            self.program.loaded_functions = None
            while self._loaded:
                library, code = self._loaded.pop()
                _language(library).unload(code)

    def _find(self, name: str) -> tuple[LoadedCode, FunctionSignature]:
        for library, code in self._loaded:
            signature = library.interface.function(name)
            if signature is not None:
                return code, signature
        interfaces = [library.interface for library, _ in self._loaded]
        for unbound in (each for interface in interfaces for each in interface.unbound):
            if unbound.name == name:
                raise FunctionMissingError(
                    f"{name} cannot be called from Python: {unbound.reason}", where=unbound.where
                )
        known = [name for interface in interfaces for name in interface.names()]
        raise FunctionMissingError(
            f"the program has no native function {name}",
            where=self.image.name,
            hint=suggest(name, known),
        )

    def _bind_map(self) -> Callable[[Any, dict[str, Any]], Any]:
        name = self.program.map_function
        if name is None:
            return self.program.map
        from sapwood.code.map_binding import bind_map  # noqa: PLC0415 - only native maps need it

        _, signature = self._find(name)
        return bind_map(self.program, signature, self.function(name))

    def check_result(self, partial: Any) -> None:
        """Check what a map returned.

        Raises:
            ProgramError: It is not a dictionary of what the program reduces.
        """
        if not isinstance(partial, dict) or partial.keys() != self.program.reduce.keys():
            raise _wrong_result(self.program, partial)


def make_image(program: Program, built: Built, cache: BuildCache | None = None) -> ProgramImage:
    """Return the image of a program and of what was built of its sources.

    Args:
        program: The program.
        built: The build of its sources; it holds the cache entry of a large Python part.
        cache: Where a large Python part is stored; without one it stays in the image.

    Raises:
        ProgramError: The program is too large.
        ResourceError: A large Python part cannot be stored.
    """
    bundle = program.bundle
    python = bundle.without(native_files(bundle))
    stored = None
    if python.nbytes > MAX_PROGRAM_BYTES:
        raise ProgramError(
            f"the program's Python part has {python.nbytes} bytes, and the most is "
            f"{MAX_PROGRAM_BYTES // 2**20} MiB",
            where=program.name,
            hint="pass large arrays as the data of the run or in the state, or load them in map",
        )
    if python.nbytes > INLINE_BYTES and cache is not None:
        stored, built.python = _stored(python, cache)
        python = msgspec.structs.replace(python, pickled=b"", files={})
    return ProgramImage(
        hash=bundle.hash,
        name=program.name,
        python=python,
        parameters=dict(program.parameters),
        libraries=tuple(library.image for library in built.all_libraries),
        search_path=tuple(os.fsencode(Path(entry).absolute()) for entry in sys.path),
        stored=stored,
    )


def _stored(python: Bundle, cache: BuildCache) -> tuple[ContentRef, CacheEntry]:
    """Store the Python part of a program; the entry keeps it there."""
    data = msgspec.msgpack.encode(python)

    def fill(folder: Path, _scratch: Path) -> dict[str, str]:
        (folder / _STORED).write_bytes(data)
        return {"language": "python", "sources": python.main or "a class"}

    entry = cache.get_or_build(digest([("stored python", data)]), fill)
    stamp = FileStamp.of(os.fsencode(entry.path(_STORED)))
    return ContentRef(entry.manifest.files[_STORED].sha256, len(data), stamp), entry


def _python_of(image: ProgramImage, content: ContentFolder) -> Bundle:
    """Return the Python part of a program, wherever it is."""
    if image.stored is None:
        return image.python
    path = Path(os.fsdecode(content.locate(image.stored)))
    return typed.unpacker(Bundle)(_read_checked(path, image.stored.sha256, "Python part"))


def open_image(
    image: ProgramImage, content: ContentFolder = _NO_CONTENT, kind: type[Program] | None = None
) -> OpenProgram:
    """Load a program in this process. This runs code of the user.

    Args:
        image: The program.
        content: Where its libraries are if the files that it names cannot be seen from here.
        kind: Its class, where this process has it already.

    Raises:
        ProgramError: The Python part fails to import, or a library is missing or damaged.
    """
    return OpenProgram(image, content, kind)


def _for_this_process(image: ProgramImage) -> Sequence[LibraryImage]:
    """Return the libraries for this process; where there are none, loading tells why."""
    here = (os.uname().machine, c_library().partition(" ")[0])
    fitting = [each for each in image.libraries if each.fits(*here)] or image.libraries
    kinds = {each.gpu for each in fitting}
    if kinds != {"", "cuda"}:
        return fitting
    wanted = "cuda" if has_cuda_gpu(os.environ) else ""
    return [each for each in fitting if each.gpu == wanted]


def _load(library: LibraryImage, content: ContentFolder) -> tuple[LibraryImage, LoadedCode]:
    """Load a library from its file or, where that is not seen, from the node's content."""
    try:
        path = _checked(Path(library.path), library.sha256)
    except ProgramError:
        if not content.path:
            raise
        path = _checked(Path(content.path_of(library.sha256)), library.sha256)
        library = msgspec.structs.replace(library, file=os.fsencode(path))
    return library, _language(library).load(path, library.interface)


def _checked(path: Path, sha256: str) -> Path:
    _read_checked(path, sha256, "built library")
    return path


def _read_checked(path: Path, sha256: str, what: str) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ProgramError(
            f"the {what} cannot be read: {error.strerror}",
            where=str(path),
            hint="run again: it is built again",
        ) from error
    if hashlib.sha256(data).hexdigest() != sha256:
        raise ProgramError(
            f"the {what} is damaged",
            where=str(path),
            hint="remove the build cache and run again",
        )
    return data


def _language(library: LibraryImage) -> Language:
    from sapwood.code.languages.registry import (  # noqa: PLC0415 - only native code needs it
        language_at,
    )

    return language_at(library.language, library.plugin)


def _extend_search_path(entries: Sequence[bytes]) -> None:
    for entry in map(os.fsdecode, entries):
        if entry not in sys.path and not _is_of_another_python(entry):
            sys.path.append(entry)


def _is_of_another_python(entry: str) -> bool:
    """Whether a folder has the modules of another minor version, which may be compiled."""
    names = _VERSIONED.findall(entry)
    return any(name not in {f"python3.{_MINOR}", f"python3{_MINOR}.zip"} for name in names)


def _wrong_result(program: Program, partial: Any) -> ProgramError:
    where = f"{program.name}.map"
    fields = ", ".join(program.reduce)
    if partial is None:
        return ProgramError(
            "the map returned nothing",
            where=where,
            hint=f"end it with a return statement: a dictionary with the fields {fields}",
        )
    if not isinstance(partial, dict):
        return ProgramError(
            f"the map must return a dictionary, not {type(partial).__name__}",
            where=where,
            hint=f"return one with the fields {fields}",
        )
    for name in partial:
        if name not in program.reduce:
            return ProgramError(
                f"the map returned a field {name} that no reduction names",
                where=where,
                hint=suggest(str(name), program.reduce),
            )
    missing = [name for name in program.reduce if name not in partial]
    return ProgramError(
        f"the map did not return {', '.join(missing)}",
        where=where,
        hint="return every field that reduce names",
    )
