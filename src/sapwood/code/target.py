"""Targets: what kind of machine code is built for."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
from pathlib import Path

import msgspec

_FEATURE_KEYS = {"flags", "Features", "isa", "CPU implementer", "CPU part", "cpu family", "model"}


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """What decides whether a library runs on a machine.

    Attributes:
        architecture: As ``uname -m`` says it, for example ``x86_64``.
        libc: Name and version of the C library, for example ``glibc 2.36``.
        features: Hash of the processor's model and features, which ``-march=native`` uses.
    """

    architecture: str
    libc: str
    features: str

    def __str__(self) -> str:
        return f"{self.architecture} {self.libc} cpu-{self.features}"


@functools.cache
def host_target() -> Target:
    """Return the target that this machine is."""
    return Target(architecture=platform.machine(), libc=_libc(), features=features_hash(_cpuinfo()))


def features_hash(cpuinfo: str) -> str:
    """Return a short hash of the processor's features, from the text of ``/proc/cpuinfo``.

    Example:
        >>> features_hash("flags : sse avx") == features_hash("flags : avx sse")
        True
    """
    first, _, _ = cpuinfo.partition("\n\n")
    facts = []
    for line in first.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in _FEATURE_KEYS:
            facts.append(f"{key.strip()}={' '.join(sorted(value.split()))}")
    return hashlib.sha256("\n".join(sorted(facts)).encode()).hexdigest()[:8]


def _cpuinfo() -> str:
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _libc() -> str:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or "unknown"
    except (ValueError, OSError):
        return "musl"
