"""Every tool chain of this machine: what it compiles, and for which targets."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from sapwood.code.installed_tools import find_zig
from sapwood.code.languages.base import BuildRequest, Language
from sapwood.code.languages.registry import languages
from sapwood.code.nvcc import find_nvcc, find_nvrtc
from sapwood.code.target import OLDEST_GLIBC, host_target
from sapwood.code.toolchain import CANDIDATES, CROSS, PROBE_SECONDS, find_compiler
from sapwood.core.errors import SapwoodError

_HOST_COMMANDS: Final = {"gcc": "c", "g++": "c++", "clang": "c", "clang++": "c++"}


class Toolchain(msgspec.Struct, frozen=True, kw_only=True):
    """A tool chain that is there.

    Attributes:
        name: What people call it.
        version: What it says of itself.
        path: Its file.
        languages: What it compiles.
        targets: What it builds for.
        chosen: The languages that are built by it for this machine.
    """

    name: str
    version: str
    path: str
    languages: tuple[str, ...]
    targets: tuple[str, ...]
    chosen: tuple[str, ...] = ()


class LanguageStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A language, and whether this machine can build it.

    Attributes:
        name: Its name.
        suffixes: Of its sources.
        made_by: What decides its builds for this machine; empty when it cannot be built.
        missing: What is missing, and how to get it; empty when nothing is.
    """

    name: str
    suffixes: tuple[str, ...]
    made_by: dict[str, str]
    missing: str = ""


def list_toolchains(environment: Mapping[str, str]) -> list[Toolchain]:
    """Return the tool chains of this machine, those that builds use first."""
    found = [*_host(environment), *_cross(environment), *_zig(environment), *_cuda(environment)]
    return sorted(found, key=lambda each: not each.chosen)


def list_languages(environment: Mapping[str, str]) -> list[LanguageStatus]:
    """Return all languages, plug-ins included, and whether they can be built here."""
    return [_status(each, environment) for each in languages().values()]


def _status(language: Language, environment: Mapping[str, str]) -> LanguageStatus:
    request = BuildRequest(
        folder=Path(),
        sources=(f"source{language.suffixes[0]}",),
        output=Path(),
        target=host_target(),
        environment=dict(environment),
    )
    made_by: dict[str, str] = {}
    missing = ""
    try:
        made_by = dict(language.identity(request))
    except SapwoodError as error:
        missing = f"{error.what}; {error.hint}" if error.hint else error.what
    return LanguageStatus(
        name=language.name, suffixes=language.suffixes, made_by=made_by, missing=missing
    )


def _chosen(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the file of the compiler of each language for this machine."""
    found = {}
    for language in CANDIDATES:
        try:
            found[language] = find_compiler(language, environment).path
        except SapwoodError:
            continue
    return found


def _host(environment: Mapping[str, str]) -> Iterator[Toolchain]:
    files: dict[str, tuple[str, list[str]]] = {}
    for command, language in _HOST_COMMANDS.items():
        path = shutil.which(command, path=environment.get("PATH", ""))
        if path is not None:
            files.setdefault(str(Path(path).resolve()), (command, []))[1].append(language)
    chosen = _chosen(environment)
    for language, path in chosen.items():
        if not Path(path).name.startswith("zig"):
            files.setdefault(path, (Path(path).name, [language]))
    for path, (command, compiled) in files.items():
        yield Toolchain(
            name=command,
            version=_version(path, "--version"),
            path=path,
            languages=tuple(compiled),
            targets=(host_target().triple,),
            chosen=tuple(each for each, used in chosen.items() if used == path),
        )


def _cross(environment: Mapping[str, str]) -> Iterator[Toolchain]:
    for architecture in OLDEST_GLIBC:
        triple = f"{architecture}-linux-gnu"
        for language, command in CROSS.items():
            path = shutil.which(f"{triple}-{command}", path=environment.get("PATH", ""))
            if path is not None and triple != host_target().triple:
                yield Toolchain(
                    name=f"{triple}-{command}",
                    version=_version(path, "--version"),
                    path=path,
                    languages=(language,),
                    targets=(triple,),
                )


def _zig(environment: Mapping[str, str]) -> Iterator[Toolchain]:
    zig = find_zig(environment)
    if zig is not None:
        path = str(Path(zig).resolve())
        yield Toolchain(
            name="zig",
            version=_version(zig, "version"),
            path=path,
            languages=tuple(CANDIDATES),
            targets=tuple(f"{each}-linux-{libc}" for each in OLDEST_GLIBC for libc in _LIBCS),
            chosen=tuple(each for each, used in _chosen(environment).items() if used == path),
        )


_LIBCS: Final = ("gnu", "musl")


def _cuda(environment: Mapping[str, str]) -> Iterator[Toolchain]:
    nvcc = find_nvcc(environment)
    if nvcc is not None:
        yield Toolchain(
            name="nvcc",
            version=_version(nvcc, "--version", line=-2),
            path=str(Path(nvcc).resolve()),
            languages=("cuda",),
            targets=("cuda",),
        )
    nvrtc = find_nvrtc()
    if nvrtc is not None:
        yield Toolchain(
            name="nvrtc",
            version=Path(nvrtc).name.rpartition(".so.")[2],
            path=nvrtc,
            languages=("cuda kernels",),
            targets=("cuda",),
        )


def _version(path: str, question: str, *, line: int = 0) -> str:
    """Return a line of what a compiler says of itself, or that it says nothing."""
    try:
        answer = subprocess.run(
            [path, question],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_SECONDS,
            check=True,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError):
        return "does not run"
    lines = answer.stdout.strip().splitlines()
    return lines[max(line, -len(lines))] if lines else "says nothing"
