"""CUDA C++ as a language: nvcc where there is a GPU, patched for the CPU where there is none."""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Mapping, MutableMapping
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec

from sapwood.errors import CompilerMissingError, ConfigurationError
from sapwood.plugins.cuda import (
    CUDA_CHOICE,
    CUDA_DEVICE,
    INSTALL_NVRTC,
    ORDINAL,
    find_nvcc,
    find_nvrtc,
    visible_gpus,
)
from sapwood.plugins.languages import (
    LIBRARY,
    Artefact,
    BuildRequest,
    C,
    CompiledLanguage,
    Compiler,
    Cpp,
    Interface,
    LoadedCode,
    SharedLibrary,
    Target,
    digest,
    find_compiler,
    run_compiler,
)
from sapwood.plugins.tools import logger
from sapwood_cuda_cpu import counts
from sapwood_cuda_cpu.nvrtc import LIBRARY as KERNELS
from sapwood_cuda_cpu.nvrtc import (
    LoadedKernels,
    build_by_nvrtc,
    kernels_of,
    load_kernels,
    nvrtc_identity,
)
from sapwood_cuda_cpu.precompiled import (
    ANY_ALIAS,
    CPP_17,
    FOR_C,
    PLACE,
    SHIM,
    needs_c,
    precompiled_headers,
    shim_hash,
    vectoriser_flags,
)

MODE: Final = "SAPWOOD_CUDA_MODE"
"""Environment variable of a build: ``fiber`` gives every kernel's threads separate stacks."""

BLAS: Final = "SAPWOOD_CUDA_BLAS"
"""Environment variable of a run: the BLAS that cuBLAS calls on a CPU."""

_log = logger("cuda")
_FOR_C: Final = f"sapwood_{FOR_C.name}"
_PROBLEM: Final = "sapwood_cuda_problem"
_OWN_GPU: Final = "SAPWOOD_OWN_GPU"


class _HostCpp(Cpp):
    """C++ sources beside patched CUDA: they may include CUDA's headers too, as with nvcc."""

    def extra_flags(self, compiler: Compiler) -> tuple[str, ...]:
        """Return the flags of C++, and where the headers are."""
        return (*super().extra_flags(compiler), f"-I{SHIM}", *("-include", str(PLACE)))


class _HostC(C):
    """C sources beside patched CUDA: they may include CUDA's headers too."""

    def extra_flags(self, compiler: Compiler) -> tuple[str, ...]:
        """Return where the headers are."""
        return (*super().extra_flags(compiler), f"-I{SHIM}")


class _PatchedCuda(CompiledLanguage):
    """Patched CUDA sources as C++ sources."""

    name = "c++"
    variable = "CXXFLAGS"
    protection = ()  # it costs 15 % where blocks are short; shared arrays have separate guards

    def __init__(self) -> None:
        self.others = (_HostCpp(), _HostC())

    def extra_flags(self, compiler: Compiler) -> tuple[str, ...]:
        """Return the flags of patched CUDA.

        Without unique symbols libraries can be unloaded; and where the variables of optimised code
        are at each instruction takes g++ a quarter of its time.
        """
        unique = () if compiler.is_clang else ("-fno-gnu-unique", "-fno-var-tracking")
        quiet = ("-w",) if compiler.is_clang else ("-Wno-attributes",)
        return (*CPP_17, ANY_ALIAS, *unique, *quiet, *vectoriser_flags(compiler))

    def language_of(self, source: str) -> CompiledLanguage:
        """Return the language that compiles a source of the library."""
        suffix = PurePosixPath(source).suffix
        return next((other for other in self.others if suffix in other.suffixes), self)

    def compile(self, source: str, request: BuildRequest, place: Path) -> Path:
        """Compile a patched source."""
        compiler = find_compiler("c++", request.environment, request.target)
        target = place / (source.replace("/", "_") + ".o")
        flags = self.flags(compiler, request)
        headers, kept = precompiled_headers(compiler, flags, request)
        command = [
            *compiler.command,
            *flags,
            *headers,
            f"-I{SHIM}",
            f"-I{request.folder}",
            f"-ffile-prefix-map={request.folder}=.",
            f"-ffile-prefix-map={request.folder / '.patched'}=.",
            *("-x", "c++", "-c", str(Path(".patched") / source), "-o", str(target)),
        ]
        run_compiler(command, request, what=f"{source} does not compile for the CPU")
        kept.close()
        return target

    def link_flags(self, request: BuildRequest) -> tuple[str, ...]:
        """Return the flags of linking; workers are threads."""
        return (*super().link_flags(request), "-pthread", "-ldl")


class Cuda(CompiledLanguage):
    """CUDA C++; C and C++ sources of the same program go into the same library.

    The compiler of the CPU build is clang++ where it is there, because it vectorises more, else
    the one of C++; ``CXX`` and ``CXXFLAGS`` decide as for C++.
    """

    name = "cuda"
    suffixes: tuple[str, ...] = (".cu",)
    absorbs: tuple[str, ...] = ("c++", "c")
    variable = "CXXFLAGS"

    def __init__(self) -> None:
        self._cpu = _PatchedCuda()

    def identity(self, request: BuildRequest) -> Mapping[str, str]:
        """Return the compiler and its flags; for the CPU the patch too."""
        if wants_gpu(request.environment, request.target):
            library = nvrtc_instead(request.environment)
            if library is not None:
                return {"nvrtc": nvrtc_identity(library), "for": "gpu"}
            counting = digest([(counts.SOURCE.name, counts.SOURCE.read_bytes())])
            return {"nvcc": _nvcc(request.environment), "for": "gpu", "counted": counting}
        compiler = find_compiler("c++", preferring_clang(request.environment), request.target)
        found = {
            "compiler": compiler.identity,
            "flags": " ".join(self._cpu.chosen_flags(compiler, request)),
            "link": " ".join(self._cpu.link_flags(request)),
            "patch": shim_hash(),
            "mode": "fiber" if _fiber_only(request.environment) else "block",
        }
        for other in self._cpu.others:
            sources = tuple(s for s in request.sources if self._cpu.language_of(s) is other)
            if sources:
                part = msgspec.structs.replace(request, sources=sources)
                found |= {f"{other.name} {k}": v for k, v in other.identity(part).items()}
        return found

    def build(self, request: BuildRequest) -> Artefact:
        """Build for the GPU by nvcc, kernels alone by NVRTC, or patch and build for the CPU.

        Raises:
            BuildError: It does not compile, or holds what a CPU node cannot do.
        """
        if wants_gpu(request.environment, request.target):
            if nvrtc_instead(request.environment) is not None:
                return build_by_nvrtc(request)
            return _build_by_nvcc(request)
        chosen = msgspec.structs.replace(request, environment=preferring_clang(request.environment))
        return self._build_for_cpu(chosen, fiber_only=_fiber_only(request.environment))

    def discover(self, request: BuildRequest, artefact: Artefact) -> Interface:
        """Return the functions of what was built: of kernels alone, the kernels."""
        if artefact.library == KERNELS:
            return kernels_of(request)
        return super().discover(request, artefact)

    def unload(self, code: LoadedCode) -> None:
        """Take the code out of this process again, or off its GPU."""
        if isinstance(code, LoadedKernels):
            code.device.close()
        else:
            counts.forget(code)
            super().unload(code)

    def load(self, path: Path, interface: Interface) -> LoadedCode:
        """Load a library into this process, which uses one GPU then."""
        take_own_gpu(os.environ)
        if path.name == KERNELS:
            return load_kernels(path, interface)
        library = super().load(path, interface)
        counts.watch(library)
        if blas := bundled_blas():
            os.environ.setdefault(BLAS, blas)
        if isinstance(library, SharedLibrary):
            problem = library.symbol(_PROBLEM)
            if problem is not None:  # it was patched for the CPU
                problem.restype = ctypes.c_char_p
                library.ask_after_calls(problem)
        return library

    def _build_for_cpu(self, request: BuildRequest, *, fiber_only: bool) -> Artefact:
        """Build the patched sources; loops that do not compile must not fail a program."""
        from sapwood_cuda_cpu.check import refuse_unsupported  # noqa: PLC0415 - needs a parser that runners do not
        from sapwood_cuda_cpu.fallback import compile_kernels, told  # noqa: PLC0415 - as above
        from sapwood_cuda_cpu.parse import read_sources  # noqa: PLC0415 - as above
        from sapwood_cuda_cpu.patch import Patched  # noqa: PLC0415 - as above
        from sapwood_cuda_cpu.units import Reading  # noqa: PLC0415 - as above

        files = {
            path.relative_to(request.folder).as_posix(): path.read_bytes()
            for path in request.folder.rglob("*")
            if path.is_file() and not path.relative_to(request.folder).parts[0].startswith(".")
        }
        sources = read_sources(files)
        refuse_unsupported(sources)
        compiled = request
        if needs_c(request.sources, files):
            files[_FOR_C] = FOR_C.read_bytes()
            compiled = msgspec.structs.replace(request, sources=(*request.sources, _FOR_C))

        def compile_patched(patched: Mapping[str, Patched]) -> Artefact:
            for name, data in files.items():
                path = request.folder / ".patched" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(patched[name].text if name in patched else data)
            shutil.rmtree(request.folder / ".objects", ignore_errors=True)
            return self._cpu.build(compiled)

        asked = "asked for" if fiber_only else ""
        reading = Reading(folder=request.folder, environment=request.environment)
        artefact, patched = compile_kernels(
            sources, compile_patched, fiber_only=asked, reading=reading
        )
        lines = told(patched)
        for line in lines:
            _log.warning(line)
        if lines:
            (request.output / "patch-note.txt").write_text("".join(f"{line}\n" for line in lines))
        return artefact


def take_own_gpu(environment: MutableMapping[str, str]) -> None:
    """Have this process see one GPU only, another one for each agent of a machine in turn.

    Args:
        environment: Says which agent this is; is changed. CUDA reads it when it starts.
    """
    from sapwood.plugins.cuda import nvml_devices  # noqa: PLC0415 - only GPU builds ask for it

    if ORDINAL not in environment or _OWN_GPU in environment:
        return
    count = len(nvml_devices())
    if count:
        seen = environment.get("CUDA_VISIBLE_DEVICES")
        environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        environment["CUDA_VISIBLE_DEVICES"] = visible_gpus(seen, count, int(environment[ORDINAL]))
        environment[_OWN_GPU] = "1"


def bundled_blas() -> str:
    """Return the path of the BLAS that numpy brings; nothing where numpy uses the system's."""
    import numpy as np  # noqa: PLC0415 - what loads libraries has it already

    folder = Path(np.__file__).parent.parent / "numpy.libs"
    return next((str(each) for each in sorted(folder.glob("*openblas*"))), "")


def wants_gpu(environment: Mapping[str, str], target: Target | None = None) -> bool:
    """Say whether a build is for a GPU: a target that names one always is.

    Raises:
        ConfigurationError: ``SAPWOOD_CUDA`` is neither ``cpu`` nor ``gpu``.

    Example:
        >>> wants_gpu({"SAPWOOD_CUDA": "cpu"})
        False
    """
    if target is not None and target.gpu == "cuda":
        return True
    choice = environment.get(CUDA_CHOICE, "")
    if choice not in {"", "cpu", "gpu"}:
        raise ConfigurationError(
            f"{CUDA_CHOICE} is {choice}", where=CUDA_CHOICE, hint="say cpu or gpu, or unset it"
        )
    if choice:
        return choice == "gpu"
    own = target is None or target.is_host
    return own and CUDA_DEVICE.exists() and find_nvcc(environment) is not None


def nvrtc_instead(environment: Mapping[str, str]) -> str | None:
    """Return the path of NVRTC where it has to do what nvcc would; None where nvcc is."""
    return find_nvrtc() if find_nvcc(environment) is None else None


def _fiber_only(environment: Mapping[str, str]) -> bool:
    mode = environment.get(MODE, "")
    if mode not in {"", "block", "fiber"}:
        raise ConfigurationError(f"{MODE} is {mode}", where=MODE, hint="say block or fiber")
    return mode == "fiber"


def _nvcc(environment: Mapping[str, str]) -> str:
    path = find_nvcc(environment)
    if path is None:
        raise CompilerMissingError(
            "this machine has no nvcc",
            where="looked for nvcc on PATH",
            hint=f"install the CUDA toolkit, or build for the CPU: {CUDA_CHOICE}=cpu; "
            f"kernels alone: {INSTALL_NVRTC}",
        )
    status = Path(path).resolve().stat()
    return f"{Path(path).resolve()} {status.st_size}-{status.st_mtime_ns}"


def _build_by_nvcc(request: BuildRequest) -> Artefact:
    nvcc = _nvcc(request.environment).split(" ", maxsplit=1)[0]
    architecture = ["-arch=native"] if CUDA_DEVICE.exists() else []
    if request.target.gpu_architecture:
        architecture = [f"-arch={request.target.gpu_architecture}"]
    command = [
        *(nvcc, "-O3", "-g", "-std=c++17", "-shared", *architecture),
        *("-Xcompiler", "-fPIC,-O3,-fno-gnu-unique", "-I", str(request.folder)),
        *(*request.sources, str(counts.SOURCE), *counts.LINK_FLAGS),
        *("-o", str(request.output / LIBRARY)),
    ]
    run_compiler(command, request, what=f"{', '.join(request.sources)} does not compile by nvcc")
    return Artefact(library=LIBRARY, debug=LIBRARY)


def preferring_clang(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with clang++ as compiler, unless it names another one."""
    found = dict(environment)
    if not found.get("CXX", "").strip() and shutil.which("clang++", path=found.get("PATH", "")):
        found["CXX"] = "clang++"
    return found
