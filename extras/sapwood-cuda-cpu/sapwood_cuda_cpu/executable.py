"""A whole CUDA program, with its main(), as an executable for the processor."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from sapwood.errors import BuildError, DataMissingError
from sapwood.plugins.languages import BuildRequest, find_compiler, host_target, run_compiler
from sapwood_cuda_cpu.check import refuse_unsupported
from sapwood_cuda_cpu.fallback import compile_kernels
from sapwood_cuda_cpu.language import MODE, preferring_clang
from sapwood_cuda_cpu.parse import read_sources
from sapwood_cuda_cpu.patch import KernelMode, Patched
from sapwood_cuda_cpu.precompiled import (
    ANY_ALIAS,
    CPP_17,
    FOR_C,
    PLACE,
    SHIM,
    needs_c,
    precompiled_headers,
    vectoriser_flags,
)
from sapwood_cuda_cpu.units import Reading

_INCLUDE: Final = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]', re.MULTILINE)
_C_SUFFIXES: Final = (".c",)


def with_headers(files: Sequence[Path], folders: Sequence[Path] = ()) -> dict[str, bytes]:
    """Return sources and the local headers that they include, by their paths.

    Args:
        files: The sources.
        folders: Where headers are looked for after the folder of what includes them.

    Raises:
        DataMissingError: A source is not there.
    """
    found: dict[str, bytes] = {}
    pending = [Path(os.path.normpath(file)) for file in files]
    for file in pending:
        if not file.is_file():
            raise DataMissingError(f"no such file: {file}", where=str(file), hint="check the path")
    while pending:
        path = pending.pop()
        if str(path) in found:
            continue
        found[str(path)] = path.read_bytes()
        for match in _INCLUDE.finditer(found[str(path)]):
            for folder in (path.parent, *folders):
                header = Path(os.path.normpath(folder / match[1].decode("utf-8", "replace")))
                if header.is_file():
                    pending.append(header)
                    break
    return found


def build_executable(
    files: Sequence[Path],
    output: Path,
    *,
    folders: Sequence[Path] = (),
    macros: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> tuple[KernelMode, ...]:
    """Patch sources, compile them for this machine's processor, and link a program.

    Compiler and flags are ``CXX`` and ``CXXFLAGS``, as for programs that agents run.

    Args:
        files: CUDA, C++ and C sources.
        output: Where the program is written.
        folders: Include folders, as ``-I`` of a compiler.
        macros: Macros, as ``-D`` of a compiler.
        environment: Variables of the build; by default this process's environment.

    Returns:
        How each kernel runs.

    Raises:
        BuildError: It does not compile, or holds what a CPU node cannot do.
        DataMissingError: A source is not there.
    """
    texts = with_headers(files, folders)
    sources = read_sources(texts, macros)
    refuse_unsupported(sources)
    asked = "asked for" if (environment or os.environ).get(MODE, "") == "fiber" else ""
    if needs_c(map(os.path.normpath, files), texts):
        files = (*files, FOR_C)
        texts[str(FOR_C)] = FOR_C.read_bytes()
    given = (files, output, folders, macros or {}, environment)
    reading = Reading(
        include=tuple(folders),
        macros=macros or {},
        texts={name: text for name, text in texts.items() if name not in sources},
        environment=preferring_clang(os.environ if environment is None else environment),
    )
    _, patched = compile_kernels(
        sources,
        lambda patched: _make(texts, patched, *given),
        fiber_only=asked,
        reading=reading,
    )
    return tuple(kernel for each in patched.values() for kernel in each.kernels)


def _make(
    texts: Mapping[str, bytes],
    patched: Mapping[str, Patched],
    files: Sequence[Path],
    output: Path,
    folders: Sequence[Path],
    macros: Mapping[str, str],
    environment: Mapping[str, str] | None,
) -> None:
    """Compile and link what was patched."""
    with tempfile.TemporaryDirectory(prefix="sapwood-patch-") as scratch:
        root = Path(scratch)
        for name, data in texts.items():
            path = _mirror(root, Path(name))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(patched[name].text if name in patched else data)
        request = BuildRequest(
            folder=root,
            sources=tuple(map(str, files)),
            output=root,
            target=host_target(),
            environment=preferring_clang(os.environ if environment is None else environment),
        )
        objects = [_compile(file, root, request, folders, macros) for file in files]
        compiler = find_compiler("c++", request.environment)
        link = [
            *compiler.command,
            *objects,
            "-pthread",
            "-lm",
            "-ldl",
            "-o",
            str(output.absolute()),
        ]
        for flags in ("CXXFLAGS", "LDFLAGS"):  # -fopenmp and its like are for both steps
            link += shlex.split(request.environment.get(flags, ""))
        run_compiler(link, request, what=f"{output.name} cannot be linked")


def _mirror(root: Path, path: Path) -> Path:
    """Return where a file's patched text is: its whole path again, below a folder."""
    return root / "files" / path.absolute().relative_to("/")


def _compile(
    file: Path,
    root: Path,
    request: BuildRequest,
    folders: Sequence[Path],
    macros: Mapping[str, str],
) -> str:
    is_c = file.suffix in _C_SUFFIXES
    compiler = find_compiler("c" if is_c else "c++", request.environment)
    target = f"{_mirror(root, file)}.o"
    places = [place for folder in folders for place in (_mirror(root, folder), folder.absolute())]
    flags = ["-O3", "-march=native", "-g", "-w"]
    if not is_c:
        flags += [*CPP_17, ANY_ALIAS, *vectoriser_flags(compiler)]
    own = shlex.split(request.environment.get("CFLAGS" if is_c else "CXXFLAGS", ""))
    with contextlib.ExitStack() as kept:
        if file.suffix in {".cu", ".cuh"} and not macros:
            headers, entry = precompiled_headers(compiler, [*flags, *own], request)
            kept.callback(entry.close)
        elif is_c:
            headers = ()
        else:  # macros may change headers
            first = SHIM / "cuda_runtime.h" if file.suffix in {".cu", ".cuh"} else PLACE
            headers = ("-include", str(first))
        command = [*compiler.command, *flags, *(() if is_c else ("-x", "c++")), *headers]
        command += [f"-I{SHIM}", *(f"-I{place}" for place in places)]
        command += [f"-D{name}={value}" for name, value in macros.items()]
        here = file.absolute().parent
        command += [f"-iquote{_mirror(root, here)}", f"-iquote{here}", *own]
        command += ["-c", str(_mirror(root, file)), "-o", target]
        _run(command, file, root, request)
    return target


def _run(command: Sequence[str], file: Path, root: Path, request: BuildRequest) -> None:
    try:
        run_compiler(command, request, what=f"{file} does not compile for the CPU")
    except BuildError as error:
        files = str(root / "files")
        details = {key: text.replace(files, "") for key, text in error.details.items()}
        where = error.where.replace(files, "")
        raise BuildError(error.what, where=where, hint=error.hint, details=details) from None
