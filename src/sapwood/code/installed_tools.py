"""Tool chains of this machine: its compilers and libraries with their versions, and where zig is.

Zig is a C and C++ compiler for machines that have none, and for others. It comes as the package
``ziglang``, the extra ``sapwood[cross]``: compiler, linker, headers and C libraries of all targets
in one.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Literal, NamedTuple

from sapwood.core.extras import install

COMPILERS = (
    ("C", ("cc", "gcc", "clang"), "apt-get install gcc libc6-dev"),
    ("C++", ("c++", "g++", "clang++"), "apt-get install g++"),
)
"""The needed tools: language, commands that compile it, how to get one."""

OTHER_TOOLS = ("gcc", "clang", "zig", "nvcc")
"""Compilers that are shown if they are there."""

LIBRARIES = ("msgspec", "numpy", "cloudpickle", "structlog", "pyelftools")
OPTIONAL_LIBRARIES = (
    ("cryptography", "clusters of several nodes", "cluster"),
    ("psutil", "clusters of several nodes", "cluster"),
    ("pillow", "images as data", "examples"),
)
"""Packages, what needs them, and the extras that bring them."""

QUERY_TIME_LIMIT = 10.0
"""Seconds that a command may take to say its version; some drivers hang."""

_VERSION = re.compile(r"\d+(?:\.\d+)+[\w.+-]*")


VARIABLE: Final = "ZIG"
"""Environment variable that names the program; ``none`` is as if there were none."""

INSTALL: Final = install("cross")
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


class Found(NamedTuple):
    """Name, value, status and hint of something that was looked for."""

    name: str
    value: str
    status: Literal["ok", "warning", "missing"] = "ok"
    hint: str = ""


def compiler_items() -> Iterator[Found]:
    """Yield the compilers: one for each language, then others that are there."""
    shown = set()
    for language, commands, command in COMPILERS:
        path = next((found for name in commands if (found := shutil.which(name))), None)
        zig = find_zig(os.environ) if path is None else None
        if zig is not None:  # builds take it where there is nothing else
            version = ask(zig, "version")
            yield Found(language, f"{zig}: zig {version}")
            continue
        if path is None:
            yield Found(
                language, "none", "missing", f"{command}, or the like on other distributions"
            )
            continue
        shown.add(path)
        version = ask(path, "--version")
        if version is None:
            yield Found(
                language, f"{path} does not run", "warning", f"reinstall it, for example {command}"
            )
        else:
            yield Found(language, f"{path}: {version.splitlines()[0]}")
    for name in OTHER_TOOLS:
        path = shutil.which(name)
        if path is None or path in shown:
            continue
        version = ask(path, "version" if name == "zig" else "--version")
        if version is not None:
            yield Found(name, f"{path}: {_version_line(version)}")


def library_items() -> Iterator[Found]:
    """Yield the versions of Python and of the packages that Sapwood works with."""
    yield Found("Python", f"{sys.version.split()[0]} at {sys.executable}")
    for name in ("sapwood", *LIBRARIES):
        version = _installed(name)
        if version is None:
            yield Found(name, "not installed", "missing", f"pip install {name}")
        else:
            yield Found(name, version)
    for name, purpose, extra in OPTIONAL_LIBRARIES:
        version = _installed(name)
        if version is None:
            yield Found(name, "not installed", "warning", f"for {purpose}: {install(extra)}")
        else:
            yield Found(name, version)


def ask(*command: str) -> str | None:
    """Return what a command prints; None if it fails, prints nothing or takes too long."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=QUERY_TIME_LIMIT,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", "replace").strip() or None


def _version_line(text: str) -> str:
    """Return the line of a version text that has the version in it."""
    lines = text.splitlines()
    return next((line.strip() for line in lines if _VERSION.search(line)), lines[0].strip())


def _installed(name: str) -> str | None:
    import importlib.metadata  # noqa: PLC0415 - runners import this module, and need it not

    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
