"""Zig as a C and C++ compiler: for other architectures, and for machines that have no compiler.

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

from sapwood.code.target import GENERIC, Target

VARIABLE: Final = "ZIG"
"""Environment variable that names the program; ``none`` is as if there were none."""

INSTALL: Final = "pip install 'sapwood[cross]'"
"""How to get it."""

_COMMANDS: Final[Mapping[str, str]] = {"c": "cc", "c++": "c++"}
_ARCHITECTURES: Final[Mapping[str, str]] = {"ppc64le": "powerpc64le"}


def find_zig(environment: Mapping[str, str]) -> str | None:
    """Return the path of the program: what ``ZIG`` names, ``zig`` on PATH, or the package's."""
    wanted = environment.get(VARIABLE, "").strip()
    if wanted == "none":
        return None
    return shutil.which(wanted or "zig", path=environment.get("PATH", "")) or _packaged()


def zig_command(zig: str, language: str, target: Target) -> tuple[str, ...]:
    """Return the command that compiles a language for a target.

    Assertions stay in, as with other compilers: zig leaves them out where it optimises.
    """
    return (zig, _COMMANDS[language], "-target", zig_target(target), "-UNDEBUG")


def zig_target(target: Target) -> str:
    """Return a target as zig names it.

    Example:
        >>> from sapwood.code.target import parse_target
        >>> zig_target(parse_target("aarch64-linux-gnu.2.28"))
        'aarch64-linux-gnu.2.28'
    """
    architecture = _ARCHITECTURES.get(target.architecture, target.architecture)
    name, _, version = target.libc.partition(" ")
    if name != "glibc":
        return f"{architecture}-linux-musl"
    return f"{architecture}-linux-gnu.{version}" if version else f"{architecture}-linux-gnu"


def zig_processor(target: Target) -> str:
    """Return the flag that says which processor it builds for."""
    if target.is_host:
        return "-mcpu=native"
    generic = target.features == GENERIC or target.measured
    return f"-mcpu={'baseline' if generic else target.features.replace('-', '_')}"


@functools.cache
def _packaged() -> str | None:
    found = importlib.util.find_spec("ziglang")
    if found is None or found.origin is None:
        return None
    path = Path(found.origin).with_name("zig")
    return str(path) if path.is_file() else None
