"""The tool chains of this machine: compilers, zig, and which of them builds for a target."""

from __future__ import annotations

import functools
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from sapwood.code.installed_tools import INSTALL, find_zig
from sapwood.code.target import GENERIC, Target, host_target
from sapwood.core.errors import CompilerMissingError, ConfigurationError

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

CROSS: Final[Mapping[str, str]] = {"c": "gcc", "c++": "g++"}
"""What distributions call their cross compilers, after the target: ``aarch64-linux-gnu-gcc``."""

_NATIVE: Final[Mapping[str, str]] = {"aarch64": "-mcpu", "ppc64le": "-mcpu"}
_GENERIC: Final[Mapping[str, str]] = {"x86_64": "-march=x86-64"}
_NO_AVX512: Final = ("-mno-avx512f",)
_ZIG_NO_AVX512: Final = "".join(
    f"-avx512{part}"
    for part in (
        *("f", "bf16", "bitalg", "bw", "cd", "dq", "fp16", "ifma", "vbmi", "vbmi2", "vl", "vnni"),
        *("vp2intersect", "vpopcntdq"),
    )
)
"""Zig removes only the features that are named, not those that need them."""


class Compiler(msgspec.Struct, frozen=True, kw_only=True):
    """A compiler of this machine.

    Attributes:
        language: ``c`` or ``c++``.
        command: How it is started, for example ``("ccache", "gcc")``.
        path: The first word's file, links followed.
        stamp: Size and time of the files of its command: an updated compiler is another one.
        is_zig: Whether it is zig, which builds for any target.
    """

    language: str
    command: tuple[str, ...]
    path: str
    stamp: str
    is_zig: bool = False

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
        return self.is_zig or "clang" in self.version

    @property
    def identity(self) -> str:
        """Everything that decides what it makes, found without starting it."""
        return " ".join((*self.command, self.path, self.stamp))


def find_compiler(
    language: str, environment: Mapping[str, str], target: Target | None = None
) -> Compiler:
    """Return the compiler of a language for a target.

    For this machine's architecture it is what ``CC`` or ``CXX`` names, or the first that is
    there; for another one the cross compiler of the distribution. Where there is none, it is
    zig.

    Args:
        language: ``c`` or ``c++``.
        environment: Variables of the build.
        target: What to build for; by default this machine.

    Raises:
        CompilerMissingError: There is none; the hint says which package brings one.
    """
    wished = target or host_target()
    search_path = environment.get("PATH", "")
    zig = find_zig(environment)
    if wished.triple == host_target().triple:
        wanted = environment.get(VARIABLES[language], "").strip()
        try:
            return _find(language, wanted, search_path)
        except CompilerMissingError:
            if zig is None or wanted:
                raise
    else:
        cross = f"{wished.triple}-{CROSS[language]}"
        path = shutil.which(cross, path=search_path)
        if path is not None:
            return _compiler(language, (path,), search_path)
        if zig is None:
            raise CompilerMissingError(
                f"this machine has no {language.upper()} compiler for {wished.triple}",
                where=f"looked for {cross} on PATH and for zig",
                hint=f"install one: {INSTALL}",
            )
    return _zig_compiler(zig, language, wished)


def by_zig(target: Target, environment: Mapping[str, str]) -> bool:
    """Whether zig would build for a target."""
    try:
        return find_compiler("c++", environment, target).is_zig
    except CompilerMissingError:
        return False


def processor_flags(compiler: Compiler, target: Target) -> tuple[str, ...]:
    """Return the flags by which a compiler uses the processor of a target.

    Clang gets no AVX-512: to read a thread-local variable of a shared library, a program calls
    ``__tls_get_addr``. Clang (14 at least) keeps values in the registers ``zmm16`` to ``zmm31``
    and ``k0`` to ``k7`` across that call, which changes them when the C library has to allocate.
    Results were then silently wrong, once in each thread.
    """
    if compiler.is_zig:
        return (zig_processor(target),)
    option = _NATIVE.get(target.architecture, "-march")
    narrow = _NO_AVX512 if compiler.is_clang and target.architecture == "x86_64" else ()
    if target.is_host:
        return (f"{option}=native", *narrow)
    if target.features == GENERIC or target.measured:
        generic = _GENERIC.get(target.architecture)
        return (generic,) if generic else ()
    return (f"{option}={target.features.replace('_', '-')}", *narrow)


def _zig_compiler(zig: str, language: str, target: Target) -> Compiler:
    return Compiler(
        language=language,
        command=zig_command(zig, language, target),
        path=str(Path(zig).resolve()),
        stamp=_stamp(zig, ""),
        is_zig=True,
    )


@functools.lru_cache(maxsize=64)
def _find(language: str, wanted: str, search_path: str) -> Compiler:
    variable = VARIABLES[language]
    hint = f"install one: apt-get install {PACKAGES[language]}"
    commands = (
        [_words(wanted, variable, search_path)] if wanted else [(c,) for c in CANDIDATES[language]]
    )
    for command in commands:
        path = shutil.which(command[0], path=search_path)
        if path is not None:
            return _compiler(language, (path, *command[1:]), search_path)
    if wanted:
        raise CompilerMissingError(
            f"{variable} names a compiler that does not exist: {wanted}",
            where=variable,
            hint=f"unset {variable}, or {hint}",
        )
    raise CompilerMissingError(
        f"this machine has no {language.upper()} compiler",
        where=f"looked for {', '.join(CANDIDATES[language])} on PATH",
        hint=f"{hint}; or without it: {INSTALL}",
    )


def _words(wanted: str, variable: str, search_path: str) -> tuple[str, ...]:
    """Return the words of a command: a path with blanks is one, and so is what stands in quotes.

    Raises:
        ConfigurationError: Its quotes are not closed.
    """
    if shutil.which(wanted, path=search_path) is not None:
        return (wanted,)
    try:
        return tuple(shlex.split(wanted))
    except ValueError as error:
        raise ConfigurationError(
            f"{variable} cannot be read: {error}", where=variable, hint="close its quotes"
        ) from error


def _compiler(language: str, command: tuple[str, ...], search_path: str) -> Compiler:
    return Compiler(
        language=language,
        command=command,
        path=str(Path(command[0]).resolve()),
        stamp=" ".join(_stamp(word, search_path) for word in command),
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
    narrow = _ZIG_NO_AVX512 if target.architecture == "x86_64" else ""
    if target.is_host:
        return f"-mcpu=native{narrow}"
    if target.features == GENERIC or target.measured:
        return "-mcpu=baseline"
    return f"-mcpu={target.features.replace('-', '_')}{narrow}"
