"""Building a program: each of its libraries once, in the cache."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from sapwood.code.bundle import Bundle, digest, native_files
from sapwood.code.cache import BuildCache, CacheEntry
from sapwood.code.interface import Interface, merge_interfaces
from sapwood.code.languages.base import Artefact, BuildRequest, Language
from sapwood.code.library import LibraryImage
from sapwood.code.program import Program
from sapwood.code.target import Target, host_target
from sapwood.core import typed

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
        others: The same for other targets, where agents are of several.
        python: The cache entry that has the Python part, if that is large.
    """

    def __init__(
        self,
        libraries: tuple[BuiltLibrary, ...],
        *,
        seconds: float,
        target: Target,
        others: tuple[Built, ...] = (),
    ) -> None:
        self.libraries = libraries
        self.seconds = seconds
        self.target = target
        self.others = others
        self.python: CacheEntry | None = None
        self.cached: bool = not any(library.entry.built for library in self.all_libraries)

    @property
    def all_libraries(self) -> tuple[BuiltLibrary, ...]:
        """The libraries for all targets."""
        return (*self.libraries, *(each for other in self.others for each in other.libraries))

    @property
    def interface(self) -> Interface:
        """The functions of all libraries."""
        return merge_interfaces([library.image.interface for library in self.libraries])

    @property
    def debug_files(self) -> dict[str, Path]:
        """The file with debug information of each library.

        By its path as backtraces have it, and by its hash: that is its name where it was fetched.
        """
        images = [library.image for library in self.all_libraries if library.image.debug]
        return {
            name: Path(image.debug)
            for image in images
            for name in (image.file.decode("utf-8", "replace"), image.sha256)
        }


class LibraryPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A library that sources become, and everything that decides its build.

    Attributes:
        language: The language that builds it.
        sources: The sources.
        target: What it is built for.
        identity: Compiler, flags and the like.
        key: Where it is in the build cache.
    """

    language: str
    sources: tuple[str, ...]
    target: Target
    identity: dict[str, str]
    key: str


def plan_build(
    program: Program,
    *,
    environment: Mapping[str, str] | None = None,
    target: Target | None = None,
) -> tuple[LibraryPlan, ...]:
    """Return what a program's sources would be built into; nothing is built, nothing started.

    Args:
        program: What would be built.
        environment: As for :func:`build`.
        target: As for :func:`build`.

    Raises:
        CompilerMissingError: This machine has no compiler for a source.
    """
    return tuple(part.plan for part in _parts(program, environment, target or host_target()))


def find_built(
    program: Program,
    *,
    cache: BuildCache,
    environment: Mapping[str, str] | None = None,
    target: Target | None = None,
) -> Built | None:
    """Return what :func:`build` would return without building, or None if it had to build.

    Raises:
        CompilerMissingError: This machine has no compiler for a source.
    """
    started = time.monotonic()
    wished = target or host_target()
    libraries = []
    for part in _parts(program, environment, wished):
        entry = cache.find(part.plan.key)
        if entry is None:
            return None
        libraries.append(_open_library(part.plan, entry))
    return Built(tuple(libraries), seconds=time.monotonic() - started, target=wished)


def build(
    program: Program,
    *,
    cache: BuildCache | None = None,
    environment: Mapping[str, str] | None = None,
    target: Target | None = None,
) -> Built:
    """Build the native part of a program, or find it built.

    Args:
        program: What to build.
        cache: Where built things are kept; by default the user's cache folder.
        environment: Variables of the build (PATH, CC, CXX, CFLAGS, CXXFLAGS); by default
            the variables of this process.
        target: What to build for; by default this machine.

    Raises:
        BuildError: A source does not compile.
        CompilerMissingError: This machine has no compiler for a source.
        ResourceError: The disk is full.
    """
    started = time.monotonic()
    wished = target or host_target()
    store = cache if cache is not None else BuildCache()
    libraries = tuple(_build_library(part, store) for part in _parts(program, environment, wished))
    return Built(libraries, seconds=time.monotonic() - started, target=wished)


def build_for_all(
    program: Program,
    targets: Sequence[Target],
    *,
    cache: BuildCache | None = None,
    environment: Mapping[str, str] | None = None,
) -> Built:
    """Build for several targets, of which the first is what the result is of; errors as above."""
    first, *others = [
        build(program, cache=cache, environment=environment, target=target) for target in targets
    ]
    if not others:
        return first
    seconds = first.seconds + sum(other.seconds for other in others)
    return Built(first.libraries, seconds=seconds, target=first.target, others=tuple(others))


class _Part(msgspec.Struct, frozen=True):
    """One library to build: the plan, and what carries it out."""

    plan: LibraryPlan
    language: Language
    request: BuildRequest
    files: dict[str, bytes]


def _parts(
    program: Program, environment: Mapping[str, str] | None, target: Target
) -> tuple[_Part, ...]:
    bundle = program.bundle
    if not bundle.sources:
        return ()
    from sapwood.code.languages.registry import (  # noqa: PLC0415 - pure Python needs no languages
        group_sources,
    )

    variables = dict(os.environ if environment is None else environment)
    variables = dict(program.build_environment(variables))
    return tuple(
        _part(bundle, language, sources, target, variables)
        for language, sources in group_sources(bundle.sources, where=program.name)
    )


def _part(
    bundle: Bundle,
    language: Language,
    sources: tuple[str, ...],
    target: Target,
    environment: dict[str, str],
) -> _Part:
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
    plan = LibraryPlan(
        language=language.name, sources=sources, target=target, identity=identity, key=key
    )
    return _Part(plan, language, request, files)


def _build_library(part: _Part, cache: BuildCache) -> BuiltLibrary:
    plan, language = part.plan, part.language

    def fill(output: Path, scratch: Path) -> dict[str, str]:
        folder = _write_files(part.files, scratch)
        here = msgspec.structs.replace(part.request, folder=folder, output=output)
        artefact = language.build(here)
        interface = language.discover(here, artefact)
        (output / "interface.json").write_bytes(msgspec.json.encode(interface))
        (output / "artefact.json").write_bytes(msgspec.json.encode(artefact))
        return {
            "language": plan.language,
            "sources": " ".join(plan.sources),
            "target": str(plan.target),
        }

    return _open_library(plan, cache.get_or_build(plan.key, fill))


def _open_library(plan: LibraryPlan, entry: CacheEntry) -> BuiltLibrary:
    from sapwood.code.languages.registry import place_of  # noqa: PLC0415 - as in _parts

    artefact = typed.json_reader(Artefact)(entry.path("artefact.json").read_bytes())
    image = LibraryImage(
        language=plan.language,
        plugin=place_of(plan.language),
        architecture=plan.target.architecture,
        libc=plan.target.libc.partition(" ")[0],
        gpu=plan.target.gpu,
        file=os.fsencode(entry.path(artefact.library)),
        sha256=entry.manifest.files[artefact.library].sha256,
        debug_file=os.fsencode(entry.path(artefact.debug)) if artefact.debug else b"",
        interface=typed.json_reader(Interface)(entry.path("interface.json").read_bytes()),
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
