"""The compilers of this machine."""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from sapwood.core.errors import CompilerMissingError

PROBE_SECONDS: Final = 20.0
"""How long a compiler may take to say its version."""

CANDIDATES: Final[Mapping[str, tuple[str, ...]]] = {
    "c": ("cc", "gcc", "clang"),
    "c++": ("c++", "g++", "clang++"),
}
"""Commands by language, in order of preference."""

VARIABLES: Final[Mapping[str, str]] = {"c": "CC", "c++": "CXX"}
"""The environment variable that names the compiler of a language."""

PACKAGES: Final[Mapping[str, str]] = {"c": "gcc", "c++": "g++"}
"""The apt package that provides a compiler."""


class Compiler(msgspec.Struct, frozen=True, kw_only=True):
    """A compiler of this machine.

    Attributes:
        language: ``c`` or ``c++``.
        command: How it is started, for example ``("ccache", "gcc")``.
        path: The first word's file, links followed.
        stamp: Size and time of the files of its command: an updated compiler is another one.
    """

    language: str
    command: tuple[str, ...]
    path: str
    stamp: str

    @property
    def version(self) -> str:
        """The first line of what it says of itself."""
        return _ask(self.command, "--version", self.stamp)

    @property
    def triple(self) -> str:
        """The target it builds for, for example ``x86_64-linux-gnu``."""
        return _ask(self.command, "-dumpmachine", self.stamp)

    @property
    def is_clang(self) -> bool:
        """Whether it is clang, which knows other flags than GCC."""
        return "clang" in self.version

    @property
    def identity(self) -> str:
        """Everything that decides what it makes, found without starting it."""
        return " ".join((*self.command, self.path, self.stamp))


def find_compiler(language: str, environment: Mapping[str, str]) -> Compiler:
    """Return the compiler of a language: what ``CC`` or ``CXX`` names, or the first that is there.

    Raises:
        CompilerMissingError: There is none; the hint says which package brings one.
    """
    return _find(
        language, environment.get(VARIABLES[language], "").strip(), environment.get("PATH", "")
    )


def available_compilers(environment: Mapping[str, str]) -> tuple[Compiler, ...]:
    """Return the compilers of this machine, at most one per language."""
    found = []
    for language in CANDIDATES:
        try:
            found.append(find_compiler(language, environment))
        except CompilerMissingError:
            continue
    return tuple(found)


@functools.lru_cache(maxsize=64)
def _find(language: str, wanted: str, search_path: str) -> Compiler:
    variable = VARIABLES[language]
    hint = f"install one: apt-get install {PACKAGES[language]}"
    commands = [tuple(wanted.split())] if wanted else [(c,) for c in CANDIDATES[language]]
    for command in commands:
        path = shutil.which(command[0], path=search_path)
        if path is not None:
            stamp = " ".join(_stamp(word, search_path) for word in command)
            started = (path, *command[1:])
            resolved = str(Path(path).resolve())
            return Compiler(language=language, command=started, path=resolved, stamp=stamp)
    if wanted:
        raise CompilerMissingError(
            f"{variable} names a compiler that is not there: {wanted}",
            where=variable,
            hint=f"unset {variable}, or {hint}",
        )
    raise CompilerMissingError(
        f"this machine has no {language.upper()} compiler",
        where=f"looked for {', '.join(CANDIDATES[language])} on PATH",
        hint=hint,
    )


def _stamp(word: str, search_path: str) -> str:
    path = shutil.which(word, path=search_path)
    if path is None:
        return "-"  # an option
    status = Path(path).stat()
    return f"{status.st_size}-{status.st_mtime_ns}"


@functools.lru_cache(maxsize=64)
def _ask(command: tuple[str, ...], question: str, stamp: str) -> str:
    del stamp  # only part of what is remembered
    try:
        answer = subprocess.run(
            [*command, question],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_SECONDS,
            check=True,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise CompilerMissingError(
            f"the compiler {command[0]} does not answer {question}: {error}",
            where=command[0],
            hint="repair it, or name another one by CC or CXX",
        ) from error
    return answer.stdout.strip().partition("\n")[0]
