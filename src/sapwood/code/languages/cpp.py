"""C++ by the machine's compiler."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from sapwood.code.languages.base import BuildRequest
from sapwood.code.languages.c import C
from sapwood.code.languages.compiled import CompiledLanguage
from sapwood.code.toolchain import Compiler


class Cpp(CompiledLanguage):
    """C++: ``c++``, ``g++`` or ``clang++``, or what ``CXX`` names, with ``CXXFLAGS``.

    C sources of the same program are compiled as C and linked into the same library, so that
    each may call the other's ``extern "C"`` functions.
    """

    name = "c++"
    suffixes: tuple[str, ...] = (".cpp", ".cc", ".cxx", ".C")
    absorbs: tuple[str, ...] = ("c",)
    variable = "CXXFLAGS"

    def __init__(self) -> None:
        self._c = C()

    def extra_flags(self, compiler: Compiler) -> tuple[str, ...]:
        """Return the flags of C++ only."""
        # GCC's unique symbols would keep a library from ever being unloaded.
        return () if compiler.is_clang else ("-fno-gnu-unique",)

    def identity(self, request: BuildRequest) -> Mapping[str, str]:
        """Return compilers and flags; those of C too when it has C sources."""
        found = dict(super().identity(request))
        if any(self.language_of(source) is self._c for source in request.sources):
            found |= {f"c {key}": value for key, value in self._c.identity(request).items()}
        return found

    def language_of(self, source: str) -> CompiledLanguage:
        """Return C for its own sources, this language for the others."""
        return self._c if PurePosixPath(source).suffix in self._c.suffixes else self
