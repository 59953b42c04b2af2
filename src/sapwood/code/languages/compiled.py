"""What C and C++ share: compile each source, link one library, find its functions, load it."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from sapwood.code.interface import Interface
from sapwood.code.interruption import run_to_end
from sapwood.code.languages.base import Artefact, BuildRequest, LoadedCode
from sapwood.code.shared_library import SharedLibrary
from sapwood.code.target import host_target
from sapwood.code.toolchain import Compiler, find_compiler, processor_flags
from sapwood.core.errors import BuildError, ConfigurationError, ResourceError
from sapwood.environment.folders import cache_folder

_MISSING_SYMBOL: Final = re.compile(
    r"(?:undefined reference to|undefined symbol:) [`'\"]?([\w:~<>(), *&]+?)[`'\"]?$", re.MULTILINE
)
COMPILE_SECONDS: Final = 600.0
"""How long one run of a compiler may take."""

LIBRARY = "library.so"
DEBUG = "library.debug"

_FLAGS: Final = (
    "-O3",
    "-g",
    "-fPIC",
    "-fvisibility=default",
    "-fno-semantic-interposition",  # exported functions may still be inlined into each other
)
_LINK: Final = ("-shared", "-Wl,--no-undefined")
_FIRST_PLACE = re.compile(
    r"^(?:\./)*(?P<file>[^\s:][^:\n]*):(?P<line>\d+):(?:\d+:)? "
    r"(?:(?:fatal )?error|undefined reference)",
    re.MULTILINE,
)
_FIRST_REFERENCE = re.compile(r"^>>> referenced by (?P<file>[^\s:]+):(?P<line>\d+)", re.MULTILINE)


class CompiledLanguage:
    """Base of C and C++."""

    name: str
    suffixes: tuple[str, ...]
    absorbs: tuple[str, ...] = ()
    protection: tuple[str, ...] = ("-fstack-protector-strong",)
    """A function that has written beyond the end of a local array aborts when it returns."""
    variable: str
    """The environment variable with the user's flags; they come last, so they win."""

    def flags(self, compiler: Compiler, request: BuildRequest) -> tuple[str, ...]:
        """Return the flags of a compilation."""
        own = (*self.protection, *self.extra_flags(compiler))
        return (*_FLAGS, *own, *self.chosen_flags(compiler, request))

    def chosen_flags(self, compiler: Compiler, request: BuildRequest) -> tuple[str, ...]:
        """Return the flag for the target's processor, and the user's flags."""
        return (*processor_flags(compiler, request.target), *_words(self.variable, request))

    def compiler(self, request: BuildRequest) -> Compiler:
        """Return the compiler for a request's target.

        Raises:
            CompilerMissingError: There is none.
        """
        return find_compiler(self.name, request.environment, request.target)

    def extra_flags(self, compiler: Compiler) -> tuple[str, ...]:
        """Return the flags of this language only."""
        return ()

    def link_flags(self, request: BuildRequest) -> tuple[str, ...]:
        """Return the flags of linking."""
        return (*_LINK, *_words("LDFLAGS", request))

    def identity(self, request: BuildRequest) -> Mapping[str, str]:
        """Return compiler and flags."""
        # The flags that depend on the kind of compiler follow from the compiler: a finished
        # build is found without starting it.
        compiler = self.compiler(request)
        return {
            "compiler": compiler.identity,
            "flags": shlex.join((*_FLAGS, *self.protection, *self.chosen_flags(compiler, request))),
            "link": shlex.join(self.link_flags(request)),
        }

    def compile(self, source: str, request: BuildRequest, place: Path) -> Path:
        """Compile one source into an object file."""
        compiler = self.compiler(request)
        target = place / (re.sub(r"[^\w.-]", "_", source) + ".o")
        command = [
            *compiler.command,
            *self.flags(compiler, request),
            f"-ffile-prefix-map={request.folder}=.",
            *("-c", source, "-o", str(target)),
        ]
        run_compiler(command, request, what=f"{source} does not compile")
        return target

    def build(self, request: BuildRequest) -> Artefact:
        """Compile the sources and link them into one library."""
        place = request.folder / ".objects"
        place.mkdir()
        objects = [
            self.language_of(source).compile(source, request, place) for source in request.sources
        ]
        compiler = self.compiler(request)
        command = [
            *compiler.command,
            *self.flags(compiler, request),
            *map(str, objects),
            *self.link_flags(request),
            *("-lm", "-o", str(request.output / LIBRARY)),
        ]
        run_compiler(command, request, what=f"{', '.join(request.sources)} cannot be linked")
        return Artefact(library=LIBRARY, debug=_split_debug(request))

    def language_of(self, source: str) -> CompiledLanguage:
        """Return the language that compiles a source of this library."""
        return self

    def discover(self, request: BuildRequest, artefact: Artefact) -> Interface:
        """Return the library's functions by its debug information."""
        from sapwood.code.languages.discovery import (  # noqa: PLC0415 - needs parsers that runners do not
            discover,
        )

        return discover(request, artefact)

    def load(self, path: Path, interface: Interface) -> LoadedCode:
        """Load a library into this process.

        Raises:
            ProgramError: It cannot be loaded here.
        """
        return SharedLibrary(path, interface)

    def unload(self, code: LoadedCode) -> None:
        """Unload a library; its functions must not be called afterwards."""
        if isinstance(code, SharedLibrary):
            code.close()


def _words(variable: str, request: BuildRequest) -> list[str]:
    try:
        return shlex.split(request.environment.get(variable, ""))
    except ValueError as error:
        raise ConfigurationError(
            f"{variable} cannot be read: {error}", where=variable, hint="close its quotes"
        ) from error


def _split_debug(request: BuildRequest) -> str:
    """Move debug information into a separate file where objcopy is installed."""
    # The machine's own objcopy knows the machine's own architecture only.
    own = request.target.triple == host_target().triple
    names = ("objcopy",) if own else (f"{request.target.triple}-objcopy", "llvm-objcopy")
    found = (shutil.which(name, path=request.environment.get("PATH", "")) for name in names)
    objcopy = next(filter(None, found), None)
    if objcopy is None:
        return LIBRARY
    library, debug = str(request.output / LIBRARY), str(request.output / DEBUG)
    what = "the debug information cannot be split off"
    run_compiler([objcopy, "--only-keep-debug", library, debug], request, what=what)
    link = f"--add-gnu-debuglink={debug}"
    run_compiler([objcopy, "--strip-debug", link, library], request, what=what)
    return DEBUG


def run_compiler(
    command: Sequence[str],
    request: BuildRequest,
    *,
    what: str,
    place: re.Pattern[str] = _FIRST_PLACE,
) -> None:
    """Run a compiler in the folder of the sources.

    Args:
        command: The compiler and its arguments.
        request: The request of the build.
        what: The name of the step, for error messages.
        place: Finds the groups ``file`` and ``line`` of the first error in its text.

    Raises:
        BuildError: It refuses, with its whole text.
        ResourceError: The disk is full.
    """
    # Temporary files go where the cache cleans up after a kill; messages are in English.
    scratch = str(request.folder.absolute())
    own = {"TMPDIR": scratch, "LC_ALL": "C", "ZIG_LOCAL_CACHE_DIR": f"{scratch}/.zig"}
    kept = {"ZIG_GLOBAL_CACHE_DIR": str(cache_folder().with_name("zig"))}
    variables = {**kept, **request.environment, **own}
    try:
        status, output = run_to_end(command, request.folder, variables, COMPILE_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise BuildError(
            f"{what}: the compiler took more than {COMPILE_SECONDS:.0f} s", where=command[0]
        ) from error
    if status == 0:
        return
    if "No space left on device" in output:
        raise ResourceError(
            "the disk of the build cache is full",
            where=str(request.output),
            hint="free space, or choose another cache folder",
        )
    first = place.search(output) or _FIRST_REFERENCE.search(output)
    missing = dict.fromkeys(_MISSING_SYMBOL.findall(output))
    raise BuildError(
        f"{what}: nothing defines {', '.join(missing)}" if missing else what,
        where=f"{first['file']}:{first['line']}" if first else request.sources[0],
        hint=_compile_hint(status, output),
        details={
            "compiler output": output or f"{command[0]} said nothing",
            "command": shlex.join(command),
            "folder": request.origin,
        },
    )


def _compile_hint(status: int, output: str) -> str:
    if status < 0 or "Killed" in output:
        return "the compiler was killed: the machine may be out of memory"
    if "undefined reference" in output or "undefined symbol" in output:
        return "a function is declared but no source defines it: add the source that does"
    return ""
