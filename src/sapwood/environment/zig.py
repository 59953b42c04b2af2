"""Where zig is: a C and C++ compiler for machines that have none, and for others.

It comes as the package ``ziglang``, the extra ``sapwood[cross]``: compiler, linker, headers
and C libraries of all targets in one.
"""

from __future__ import annotations

import functools
import importlib.util
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

VARIABLE: Final = "ZIG"
"""Environment variable that names the program; ``none`` is as if there were none."""

INSTALL: Final = "pip install 'sapwood[cross]'"
"""How to get it."""


def find_zig(environment: Mapping[str, str]) -> str | None:
    """Return the path of the program: what ``ZIG`` names, ``zig`` on PATH, or the package's."""
    wanted = environment.get(VARIABLE, "").strip()
    if wanted == "none":
        return None
    return shutil.which(wanted or "zig", path=environment.get("PATH", "")) or _packaged()


@functools.cache
def _packaged() -> str | None:
    found = importlib.util.find_spec("ziglang")
    if found is None or found.origin is None:
        return None
    path = Path(found.origin).with_name("zig")
    return str(path) if path.is_file() else None
