"""Zig as a C and C++ compiler: for other architectures, and for machines that have no compiler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sapwood.code.target import GENERIC, Target

_COMMANDS: Final[Mapping[str, str]] = {"c": "cc", "c++": "c++"}
_ARCHITECTURES: Final[Mapping[str, str]] = {"ppc64le": "powerpc64le"}


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
