"""The library that writes a native backtrace when a runner dies of a signal."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

import msgspec

from sapwood.code.bundle import digest
from sapwood.code.cache import BuildCache
from sapwood.code.languages.base import BuildRequest
from sapwood.code.languages.c import C
from sapwood.code.languages.compiled import LIBRARY
from sapwood.code.target import Target, host_target
from sapwood.core.errors import BuildError, CompilerMissingError

_SOURCE = "crash.c"


def build_crash_handler(cache: BuildCache, target: Target | None = None) -> Path | None:
    """Return the library for a target, built once per cache; None where it cannot be built.

    It exports ``int sapwood_install_crash_handler(int fd)``. A C library without
    ``backtrace()``, or a machine without a compiler, has no native backtraces.
    """
    data = files("sapwood.code").joinpath("native", _SOURCE).read_bytes()
    language = C()
    # Without the user's flags: a sanitizer would install handlers of its own.
    kept = {name: os.environ[name] for name in ("PATH", "ZIG") if name in os.environ}
    environment = {"PATH": os.defpath, **kept}
    request = BuildRequest(
        folder=Path(),
        sources=(_SOURCE,),
        output=Path(),
        target=target or host_target(),
        environment=environment,
    )

    def fill(output: Path, scratch: Path) -> dict[str, str]:
        (scratch / _SOURCE).write_bytes(data)
        language.build(msgspec.structs.replace(request, folder=scratch, output=output))
        return {"language": language.name, "sources": _SOURCE, "purpose": "crash handler"}

    try:
        identity = language.identity(request)
        parts = [(name, identity[name].encode()) for name in sorted(identity)]
        key = digest([("target", str(request.target).encode()), ("source", data), *parts])
        return cache.get_or_build(key, fill).path(LIBRARY)
    except (BuildError, CompilerMissingError):
        return None
