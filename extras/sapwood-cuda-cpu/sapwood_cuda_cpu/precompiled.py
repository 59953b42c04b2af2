"""The headers of patched CUDA, compiled once for each compiler and its flags."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from sapwood.plugins.caches import BuildCache, CacheEntry
from sapwood.plugins.languages import BuildRequest, Compiler, digest, run_compiler
from sapwood.plugins.tools import cache_folder

SHIM: Final = Path(__file__).parent / "shim"
"""Where the headers are that stand in the place of CUDA's."""

PLACE: Final = SHIM / "sapwood" / "place.h"
"""What C++ sources beside CUDA need of them, where they share functions for host and device."""

FOR_C: Final = SHIM / "sapwood" / "for_c.cu"
"""The runtime API under the names that C sources call."""

CPP_17: Final = ("-std=c++17", "-Wno-register")
"""The language; of ``register``, which it no longer has, nvcc only warns."""

ANY_ALIAS: Final = "-fno-strict-aliasing"
"""Kernels read memory as other types than it was written, as nvcc lets them; and g++ 12 gives wrong
results at -O3 for some kernels that do not, as soon as it may take types for different memory."""

_CALLED: Final = re.compile(rb"\bcuda[A-Z]\w*")
_HEADER: Final = "cuda_runtime.h"

_ORDERED: Final = range(13, 22)
"""Versions of clang that can vectorise a sum in its order."""

_INSTANTIATING: Final = 11
"""The first version of clang that can instantiate the headers' templates beforehand."""


@functools.cache
def shim_hash() -> str:
    """Return a hash of the headers and of the code that patches: both decide a build."""
    files = sorted([*SHIM.rglob("*.h"), FOR_C, *SHIM.parent.glob("*.py")])
    return digest((path.name, path.read_bytes()) for path in files)


def needs_c(sources: Iterable[str], texts: Mapping[str, bytes]) -> bool:
    """Return whether C sources may call the runtime API, directly or by their headers.

    Args:
        sources: The sources of a program.
        texts: They and its headers, by name.

    Example:
        >>> needs_c(["a.c"], {"a.c": b"int f(void) { return cudaSetDevice(0); }"})
        True
    """
    headers = (text for name, text in texts.items() if name.endswith(".h"))
    own = [texts[name] for name in sources if name.endswith(".c") and name in texts]
    return bool(own) and any(map(_CALLED.search, (*own, *headers)))


def vectoriser_flags(compiler: Compiler) -> tuple[str, ...]:
    """Return the flags by which a compiler vectorises what it would not, with the same results.

    clang vectorises sums of floats in their order then. g++ may assume that no code checks
    which exceptions of floating point happened, as clang does anyway, and GPUs have none: else
    a sum under a condition, such as each step of a scan, stays a branch for each thread.
    """
    if not compiler.is_clang:
        return ("-fno-trapping-math",)
    known = _clang_version(compiler) in _ORDERED and not compiler.is_zig
    return ("-mllvm", "-force-ordered-reductions=true") if known else ()


def precompiled_headers(
    compiler: Compiler, flags: Sequence[str], request: BuildRequest
) -> tuple[tuple[str, ...], CacheEntry]:
    """Return the flags that include the headers, precompiled in the user's cache.

    The entry has to be kept while they are used.
    """
    folder = cache_folder(request.environment)
    key = digest(
        [
            ("precompiled", compiler.identity.encode()),
            ("flags", "\0".join(flags).encode()),
            ("target", str(request.target).encode()),
            ("shim", shim_hash().encode()),
            # Precompiled headers know themselves by their path: two installations have two.
            ("folder", os.fsencode(SHIM)),
        ]
    )

    def fill(output: Path, scratch: Path) -> dict[str, str]:
        del scratch
        name = "shim.pch" if compiler.is_clang else "shim.h.gch"
        (output / "shim.h").write_text(f'#include "{SHIM / _HEADER}"\n')
        # Times would make the header look changed: it is the shim's own file that is compiled.
        command = [*compiler.command, *flags, f"-I{SHIM}", "-x", "c++-header"]
        if compiler.is_clang:
            command += ["-Xclang", "-fno-pch-timestamp"]
            if _clang_version(compiler) >= _INSTANTIATING:  # a source takes half the time then
                command += ["-Xclang", "-fpch-instantiate-templates"]
            command += [str(SHIM / _HEADER)]
        else:
            command += [str(output / "shim.h")]
        command += ["-o", str(output / name)]
        run_compiler(command, request, what="the headers of patched CUDA do not compile")
        return {"language": "cuda headers", "sources": _HEADER, "target": str(request.target)}

    entry = BuildCache(folder).get_or_build(key, fill)
    if compiler.is_clang:
        return ("-include-pch", os.fspath(entry.path("shim.pch"))), entry
    return ("-include", os.fspath(entry.path("shim.h"))), entry


def _clang_version(compiler: Compiler) -> int:
    match = re.search(r"clang version (\d+)", compiler.version)
    return int(match[1]) if match else 0
