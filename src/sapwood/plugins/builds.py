"""Builds of sources, the cache of what was built, and names in debug information."""

from sapwood.code.build import Built, build
from sapwood.code.cache import BuildCache, CacheEntry
from sapwood.code.dwarf_scan import definitions
from sapwood.code.toolchain import Compiler, find_compiler

__all__ = [
    "BuildCache",
    "Built",
    "CacheEntry",
    "Compiler",
    "build",
    "definitions",
    "find_compiler",
]
