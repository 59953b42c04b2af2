"""Targets: what kind of machine code is built for."""

from __future__ import annotations

import functools
import hashlib
import platform
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from sapwood.contexts.process import c_library
from sapwood.core.errors import InputError
from sapwood.core.shown import shown
from sapwood.core.suggest import suggest

GENERIC: Final = "generic"
"""Features of a build that runs on every processor of its architecture."""

GPU_KINDS: Final = ("cuda", "opencl")
"""What a target's GPU can be programmed by."""

OLDEST_GLIBC: Final[Mapping[str, str]] = {
    "x86_64": "2.17",
    "aarch64": "2.17",
    "ppc64le": "2.17",
    "s390x": "2.17",
    "riscv64": "2.27",
}
"""Architectures that can be named, with the glibc that is built for when none is said: the
one that Python's own binary packages need."""

_TEXT: Final = re.compile(
    r"(?P<architecture>[a-z]\w*)-linux-(?P<libc>gnu|musl)(?:\.(?P<version>\d+\.\d+))?"
)
_FEATURE_KEYS = {"flags", "Features", "isa", "CPU implementer", "CPU part", "cpu family", "model"}
_HASH: Final = re.compile(r"[0-9a-f]{8}")


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """What decides whether a library runs on a machine.

    Attributes:
        architecture: As ``uname -m`` says it, for example ``x86_64``.
        libc: Name and version of the C library, for example ``glibc 2.36``.
        features: What of the processor may be used: a hash of one machine's model and
            features, which ``-march=native`` uses, a model that the compiler knows
            (``neoverse_n1``), or :data:`GENERIC`.
        gpu: ``cuda``, ``opencl``, or empty for code that runs on the processor.
        gpu_architecture: Of that GPU, for example ``sm_90``.
    """

    architecture: str
    libc: str
    features: str
    gpu: str = ""
    gpu_architecture: str = ""

    def __str__(self) -> str:
        gpu = f" {self.gpu} {self.gpu_architecture}".rstrip()
        return f"{self.architecture} {self.libc} cpu-{self.features}{gpu if self.gpu else ''}"

    @property
    def triple(self) -> str:
        """Architecture, system and C library as compilers name them: ``aarch64-linux-gnu``."""
        return f"{self.architecture}-linux-{'gnu' if self.libc.startswith('glibc') else 'musl'}"

    @property
    def measured(self) -> bool:
        """Whether the features are those of one machine, not of a named model."""
        return _HASH.fullmatch(self.features) is not None

    @property
    def is_host(self) -> bool:
        """Whether the processor's code runs on this machine and may use all of it."""
        here = host_target()
        return (self.architecture, self.features) == (here.architecture, here.features)


@functools.cache
def host_target() -> Target:
    """Return the target that this machine is; of its GPUs the GPU layer knows."""
    features = features_hash(_cpuinfo())
    return Target(architecture=platform.machine(), libc=c_library(), features=features)


def target_of(architecture: str, libc: str) -> Target:
    """Return the target that processes of an architecture and a C library are.

    Where the architecture is this machine's, so are the features; of another one only what all
    its processors have is used.
    """
    here = host_target()
    features = here.features if architecture == here.architecture else GENERIC
    return Target(architecture=architecture, libc=libc, features=features)


def targets_of(platforms: Iterable[tuple[str, str]]) -> tuple[Target, ...]:
    """Return the targets of processes by architecture and C library, each once.

    Without any it is this machine.
    """
    found = tuple(dict.fromkeys(target_of(*platform) for platform in platforms))
    return found or (host_target(),)


def parse_target(text: str) -> Target:
    """Return the target that a text names.

    ``ARCHITECTURE-linux-LIBC``, after it optionally ``.VERSION`` of glibc, ``,cpu=MODEL`` and
    ``,cuda=ARCHITECTURE`` or ``,opencl``; ``native`` is this machine.

    Raises:
        InputError: It names none.

    Example:
        >>> str(parse_target("aarch64-linux-gnu"))
        'aarch64 glibc 2.17 cpu-generic'
        >>> str(parse_target("x86_64-linux-gnu.2.28,cpu=x86_64_v3,cuda=sm_90"))
        'x86_64 glibc 2.28 cpu-x86_64_v3 cuda sm_90'
    """
    name, *options = text.strip().split(",")
    target = host_target() if name == "native" else _parse_machine(name, text)
    for option in options:
        key, equals, value = option.partition("=")
        if key == "cpu" and re.fullmatch(r"\w[\w+-]*", value) and not _HASH.fullmatch(value):
            target = msgspec.structs.replace(target, features=value)
        elif key in GPU_KINDS and re.fullmatch(r"\w*", value) and (value or not equals):
            if key == "cuda" and re.fullmatch(r"sm_\d+[af]?", value) is None:
                raise _unknown(text, "name the GPU's architecture, for example cuda=sm_90")
            target = msgspec.structs.replace(target, gpu=key, gpu_architecture=value)
        else:
            raise _unknown(text, "after the comma write cpu=MODEL, cuda=sm_NN or opencl")
    return target


def _parse_machine(name: str, text: str) -> Target:
    found = _TEXT.fullmatch(name)
    if found is None:
        raise _unknown(text, "write for example aarch64-linux-gnu, or native for this machine")
    architecture = found["architecture"]
    if architecture not in OLDEST_GLIBC:
        raise _unknown(text, suggest(architecture, OLDEST_GLIBC))
    libc = "musl"
    if found["libc"] == "gnu":
        libc = f"glibc {found['version'] or OLDEST_GLIBC[architecture]}"
    elif found["version"]:
        raise _unknown(text, "only glibc has a version here: write musl alone")
    return Target(architecture=architecture, libc=libc, features=GENERIC)


def _unknown(text: str, hint: str) -> InputError:
    return InputError(f"{shown(text)} is not a target", where="target", hint=hint)


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
