"""What a language has to offer: discover, build, load, unload."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec

from sapwood.code.interface import Interface
from sapwood.code.target import Target

ENTRY_POINT_GROUP = "sapwood.languages"
"""Plug-ins register here: the entry point is a class of no arguments, or an object."""


class BuildRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to build, and where.

    Attributes:
        folder: Holds copies of the sources and headers, under their own relative names.
        sources: The sources to build, relative to ``folder``.
        output: The empty folder to fill.
        target: What to build for.
        environment: Variables of the build: PATH, CC, CFLAGS, …
        origin: The folder that the sources were read from, for messages.
    """

    folder: Path
    sources: tuple[str, ...]
    output: Path
    target: Target
    environment: dict[str, str]
    origin: str = ""


class Artefact(msgspec.Struct, frozen=True, kw_only=True):
    """What a build made: names of files in the output folder.

    Attributes:
        library: The file to load.
        debug: The file with its debug information; empty when there is none.
    """

    library: str
    debug: str = ""


class LoadedCode(Protocol):
    """Code that is loaded in this process."""

    def function(self, name: str, constants: Mapping[str, Any]) -> Callable[..., Any]:
        """Return a function of the interface, ready to be called with Python values.

        Args:
            name: A name of the interface.
            constants: The program's parameters; array lengths may name them.
        """
        ...


class Language(Protocol):
    """A language: four operations, a name, and what else decides a build.

    ``discover`` and ``build`` run on the client, ``load`` and ``unload`` in a runner.
    """

    name: str
    suffixes: tuple[str, ...]
    """Of its sources, for example ``(".c",)``."""
    absorbs: tuple[str, ...]
    """Other languages whose sources it builds into the same library when a program has both."""

    def identity(self, request: BuildRequest) -> Mapping[str, str]:
        """Return what decides the result beside the sources: compiler, version, flags.

        Raises:
            CompilerMissingError: This machine cannot build it.
        """
        ...

    def build(self, request: BuildRequest) -> Artefact:
        """Build the sources into files of ``request.output``.

        Raises:
            BuildError: They do not compile.
        """
        ...

    def discover(self, request: BuildRequest, artefact: Artefact) -> Interface:
        """Return the functions of what was built, with their types; may strip the artefact."""
        ...

    def load(self, path: Path, interface: Interface) -> LoadedCode:
        """Load a built file into this process."""
        ...

    def unload(self, code: LoadedCode) -> None:
        """Take it out of this process again."""
        ...
