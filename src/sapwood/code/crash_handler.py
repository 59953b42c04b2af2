"""The crash handler, in C: built on the machine that uses it; everything works without."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path
from typing import Final

import msgspec

from sapwood.code.build import Built
from sapwood.code.bundle import digest
from sapwood.code.cache import BuildCache
from sapwood.code.languages.base import BuildRequest
from sapwood.code.languages.c import C
from sapwood.code.languages.compiled import LIBRARY
from sapwood.code.target import Target, host_target
from sapwood.content.refs import ContentRef, FileStamp
from sapwood.core.errors import BuildError, CompilerMissingError

CRASH = "crash.c"
"""Writes a native backtrace when a runner dies of a signal."""

_KEPT: Final = ("PATH", "ZIG", "ZIG_GLOBAL_CACHE_DIR")
"""Variables of a build that say where compilers are, and what they have built already."""


def build_crash_handlers(cache: BuildCache, built: Built) -> tuple[ContentRef, ...]:
    """Return the crash handlers for all targets of a program with native code."""
    if not built.libraries:
        return ()
    targets = (built.target, *(other.target for other in built.others))
    found = [build_native(cache, CRASH, target) for target in targets]
    return tuple(library for library in found if library is not None)


def build_native(cache: BuildCache, source: str, target: Target | None = None) -> ContentRef | None:
    """Return the library of one of the sources above for a target.

    None where it cannot be built: no compiler, or a C library that lacks something.
    """
    data = files("sapwood.code").joinpath("native", source).read_bytes()
    language = C()
    # Without the user's flags: a sanitizer would install its own handlers.
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    environment = {"PATH": os.defpath, **kept}
    request = BuildRequest(
        folder=Path(),
        sources=(source,),
        output=Path(),
        target=target or host_target(),
        environment=environment,
    )

    def fill(output: Path, scratch: Path) -> dict[str, str]:
        (scratch / source).write_bytes(data)
        language.build(msgspec.structs.replace(request, folder=scratch, output=output))
        return {"language": language.name, "sources": source, "purpose": "part of Sapwood"}

    try:
        identity = language.identity(request)
        parts = [(name, identity[name].encode()) for name in sorted(identity)]
        key = digest([("target", str(request.target).encode()), ("source", data), *parts])
        entry = cache.get_or_build(key, fill)
        record = entry.manifest.files[LIBRARY]
        stamp = FileStamp.of(os.fsencode(entry.path(LIBRARY)))
        return ContentRef(record.sha256, record.size, stamp)
    except (BuildError, CompilerMissingError, FileNotFoundError):
        return None
