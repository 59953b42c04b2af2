"""Building a program: each of its libraries once, in the cache."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from sapwood.code.bundle import Bundle, digest, native_files
from sapwood.code.cache import BuildCache, CacheEntry
from sapwood.code.interface import Interface, merge_interfaces
from sapwood.code.languages.base import Artefact, BuildRequest, Language
from sapwood.code.library import LibraryImage
from sapwood.code.program import Program
from sapwood.code.target import Target, host_target

FORMAT = "1"
"""Part of every key: what an entry holds. Raise it when that changes."""


class BuiltLibrary:
    """A library of a program, kept in the cache while this object lives.

    Attributes:
        image: The library as data.
        entry: The cache entry that holds it.
    """

    def __init__(self, image: LibraryImage, entry: CacheEntry) -> None:
        self.image = image
        self.entry = entry


class Built:
    """What a build gives.

    Attributes:
        libraries: One per language; none for pure Python.
        seconds: How long it took, waiting for others included.
        cached: Whether nothing had to be built.
        target: What it was built for.
    """

    def __init__(
        self, libraries: tuple[BuiltLibrary, ...], *, seconds: float, target: Target
    ) -> None:
        self.libraries = libraries
        self.seconds = seconds
        self.cached = not any(library.entry.built for library in libraries)
        self.target = target

    @property
    def interface(self) -> Interface:
        """The functions of all libraries."""
        return merge_interfaces([library.image.interface for library in self.libraries])

    @property
    def debug_files(self) -> dict[str, Path]:
        """The file with debug information of each library, by the library's path."""
        images = [library.image for library in self.libraries]
        return {image.path: Path(image.debug) for image in images if image.debug}


def build(
    program: Program,
    *,
    cache: BuildCache | None = None,
    environment: Mapping[str, str] | None = None,
) -> Built:
    """Build the native part of a program for this machine, or find it built.

    Args:
        program: What to build.
        cache: Where built things are kept; by default the user's cache folder.
        environment: Variables of the build (PATH, CC, CXX, CFLAGS, CXXFLAGS); by default
            those of this process.

    Raises:
        BuildError: A source does not compile.
        CompilerMissingError: This machine has no compiler for a source.
        ResourceError: The disk is full.
    """
    started = time.monotonic()
    target = host_target()
    bundle = program.bundle
    variables = dict(os.environ if environment is None else environment)
    variables = dict(program.build_environment(variables))
    if not bundle.sources:
        return Built((), seconds=time.monotonic() - started, target=target)
    from sapwood.code.languages.registry import (  # noqa: PLC0415 - pure Python needs no languages
        group_sources,
    )

    store = cache if cache is not None else BuildCache()
    libraries = tuple(
        _build_library(bundle, language, sources, store, target, variables)
        for language, sources in group_sources(bundle.sources, where=program.name)
    )
    return Built(libraries, seconds=time.monotonic() - started, target=target)


def _build_library(
    bundle: Bundle,
    language: Language,
    sources: tuple[str, ...],
    cache: BuildCache,
    target: Target,
    environment: dict[str, str],
) -> BuiltLibrary:
    request = BuildRequest(
        folder=Path(),
        sources=sources,
        output=Path(),
        target=target,
        environment=environment,
        origin=bundle.origin,
    )
    identity = dict(language.identity(request))
    files = native_files(msgspec.structs.replace(bundle, sources=sources))
    key = digest(
        [
            ("format", FORMAT.encode()),
            ("target", str(target).encode()),
            ("language", language.name.encode()),
            *((f"identity {name}", identity[name].encode()) for name in sorted(identity)),
            ("sources", "\0".join(sources).encode()),
            *((f"file {name}", files[name]) for name in sorted(files)),
        ]
    )

    def fill(output: Path, scratch: Path) -> dict[str, str]:
        folder = _write_files(files, scratch)
        here = msgspec.structs.replace(request, folder=folder, output=output)
        artefact = language.build(here)
        interface = language.discover(here, artefact)
        (output / "interface.json").write_bytes(msgspec.json.encode(interface))
        (output / "artefact.json").write_bytes(msgspec.json.encode(artefact))
        return {"language": language.name, "sources": " ".join(sources), "target": str(target)}

    entry = cache.get_or_build(key, fill)
    artefact = msgspec.json.decode(entry.path("artefact.json").read_bytes(), type=Artefact)
    image = LibraryImage(
        language=language.name,
        path=str(entry.path(artefact.library)),
        sha256=entry.manifest.files[artefact.library].sha256,
        debug=str(entry.path(artefact.debug)) if artefact.debug else "",
        interface=msgspec.json.decode(entry.path("interface.json").read_bytes(), type=Interface),
    )
    return BuiltLibrary(image, entry)


def _write_files(files: Mapping[str, bytes], scratch: Path) -> Path:
    """Write sources into a scratch folder, so deep that names with ``..`` stay inside it."""
    depth = max((name.split("/").count("..") for name in files), default=0)
    folder = scratch.joinpath("sources", *(["_"] * depth))
    for name, data in files.items():
        path = Path(os.path.normpath(folder / name))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder
