"""The four operations of a language, for Fortran: discover, build, load, unload."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path

from sapwood.errors import CompilerMissingError
from sapwood.plugins.languages import (
    Artefact,
    BuildRequest,
    Interface,
    LoadedCode,
    SharedLibrary,
    run_compiler,
)
from sapwood_fortran.order import in_order_of_use
from sapwood_fortran.procedures import read_procedures

LIBRARY = "library.so"
FLAGS = ("-O3", "-g", "-fPIC", "-shared", "-Wall", "-Wno-unused-dummy-argument")

_FIRST_ERROR = re.compile(
    r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):\d+:\n(?:.*\n){1,4}Error:", re.MULTILINE
)


class Fortran:
    """Fortran: ``gfortran``, or what ``FC`` names, with ``FFLAGS``."""

    name = "fortran"
    suffixes: tuple[str, ...] = (".f90", ".f03", ".f08")
    absorbs: tuple[str, ...] = ()

    def identity(self, request: BuildRequest) -> Mapping[str, str]:
        """Return the compiler and its flags."""
        path = Path(self._compiler(request))
        status = path.stat()
        return {
            "compiler": f"{path} {status.st_size}-{status.st_mtime_ns}",
            "flags": shlex.join(self._flags(request)),
        }

    def build(self, request: BuildRequest) -> Artefact:
        """Compile the sources into one library, modules before those that use them."""
        texts = {name: (request.folder / name).read_text() for name in request.sources}
        command = [
            self._compiler(request),
            *self._flags(request),
            f"-ffile-prefix-map={request.folder}=.",
            *("-J", str(request.folder)),
            *in_order_of_use(texts),
            *("-o", str(request.output / LIBRARY)),
        ]
        what = f"{', '.join(request.sources)} does not compile"
        run_compiler(command, request, what=what, place=_FIRST_ERROR)
        return Artefact(library=LIBRARY)

    def discover(self, request: BuildRequest, artefact: Artefact) -> Interface:
        """Return the procedures with ``bind(c)``, as the sources declare them."""
        functions, unbound = [], []
        for name in request.sources:
            found = read_procedures((request.folder / name).read_text(), name)
            functions += found.functions
            unbound += found.unbound
        return Interface(functions=tuple(functions), unbound=tuple(unbound))

    def load(self, path: Path, interface: Interface) -> LoadedCode:
        """Load a library into this process."""
        return SharedLibrary(path, interface)

    def unload(self, code: LoadedCode) -> None:
        """Unload a library."""
        if isinstance(code, SharedLibrary):
            code.close()

    def _compiler(self, request: BuildRequest) -> str:
        wanted = request.environment.get("FC", "").strip() or "gfortran"
        if not request.target.is_host:
            wanted = f"{request.target.triple}-gfortran"
        path = shutil.which(wanted, path=request.environment.get("PATH", ""))
        if path is None:
            raise CompilerMissingError(
                "this machine has no Fortran compiler",
                where=f"looked for {wanted} on PATH",
                hint="install one: apt-get install gfortran",
            )
        return str(Path(path).resolve())

    def _flags(self, request: BuildRequest) -> tuple[str, ...]:
        native = ("-march=native",) if request.target.architecture == "x86_64" else ()
        chosen = shlex.split(request.environment.get("FFLAGS", ""))
        return (*FLAGS, *(native if request.target.is_host else ()), *chosen)
