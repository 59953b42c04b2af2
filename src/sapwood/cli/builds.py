"""What a program's sources would be built into, and whether that is there already."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from sapwood.client import Program
from sapwood.code.build import build
from sapwood.code.cache import BuildCache, CacheEntry, Fill
from sapwood.code.languages.base import BuildRequest
from sapwood.code.languages.registry import group_sources
from sapwood.code.target import host_target


class LibraryPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A library that sources become, and what else decides its build: compiler and flags."""

    language: str
    sources: tuple[str, ...]
    identity: dict[str, str]


class _NotBuiltError(Exception):
    """A library is not in the cache."""


class _LookupCache(BuildCache):
    """A cache in which everything that is there is found, and nothing is built."""

    def get_or_build(self, key: str, fill: Fill) -> CacheEntry:
        """Return the entry of a key, if there is one."""
        del fill
        entry = self._open(key)
        if entry is None:
            raise _NotBuiltError
        return entry


def is_built(program: Program, cache: BuildCache) -> bool:
    """Whether all libraries of a program are in a cache, for this machine.

    Raises:
        CompilerMissingError: This machine has no compiler for a source.
    """
    try:
        build(program, cache=_LookupCache(cache.folder, size_limit=cache.size_limit))
    except _NotBuiltError:
        return False
    return True


def plan_libraries(program: Program) -> list[LibraryPlan]:
    """Return what a program's sources would be built into on this machine.

    Raises:
        CompilerMissingError: It has no compiler for them.
    """
    plans = []
    for language, sources in group_sources(program.bundle.sources, where=program.name):
        request = BuildRequest(
            folder=Path(),
            sources=sources,
            output=Path(),
            target=host_target(),
            environment=dict(os.environ),
            origin=program.bundle.origin,
        )
        identity = dict(language.identity(request))
        plans.append(LibraryPlan(language=language.name, sources=sources, identity=identity))
    return plans
