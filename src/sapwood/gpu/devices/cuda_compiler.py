"""Kernels alone, built for a GPU: by nvcc, or by NVRTC where the toolkit is missing."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from sapwood.code.nvcc import INSTALL_NVRTC, find_nvcc, find_nvrtc
from sapwood.core.errors import BuildError, CompilerMissingError

BUILD_SECONDS: Final = 600.0
"""How long nvcc may take."""

_KERNEL: Final = re.compile(
    r'extern\s+"C"\s*(?:\{\s*)?(?:static\s+)?__global__\s+void\s+'
    r"(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\("
)


def kernel_names(source: str) -> tuple[str, ...]:
    """Return the kernels of a source that can be launched by name: those with C names.

    Example:
        >>> kernel_names('extern "C" __global__ void f(int *x) {}  __global__ void g() {}')
        ('f',)
    """
    return tuple(_KERNEL.findall(source))


def compile_kernels(
    source: str, architecture: str, environment: Mapping[str, str] | None = None
) -> bytes:
    """Return machine code for a GPU (a cubin).

    Args:
        source: CUDA C++; for NVRTC without code of the host.
        architecture: Of the GPU, for example ``sm_90``.
        environment: Variables that name the compiler; by default this process's environment.

    Raises:
        BuildError: It does not compile; the details have the compiler's text.
        CompilerMissingError: There is neither nvcc nor NVRTC.
    """
    variables = os.environ if environment is None else environment
    nvcc = find_nvcc(variables)
    if nvcc is not None:
        return _by_nvcc(nvcc, source, architecture, variables)
    library = find_nvrtc()
    if library is not None:
        return compile_by_nvrtc(library, source, [f"--gpu-architecture={architecture}"])
    raise CompilerMissingError(
        "this machine has neither nvcc nor NVRTC",
        where="looked for nvcc on PATH, and for NVRTC among Python's packages",
        hint=f"install the CUDA toolkit, or {INSTALL_NVRTC}",
    )


def _by_nvcc(nvcc: str, source: str, architecture: str, variables: Mapping[str, str]) -> bytes:
    with tempfile.TemporaryDirectory(prefix="sapwood-nvcc-") as folder:
        path = Path(folder)
        (path / "kernels.cu").write_text(source)
        command = [nvcc, "-cubin", "-O3", "-std=c++17", f"-arch={architecture}", "kernels.cu"]
        try:
            done = subprocess.run(
                [*command, "-o", "kernels.cubin"],
                cwd=path,
                env=dict(variables),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=BUILD_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BuildError(f"nvcc cannot be run: {error}", where=nvcc) from error
        if done.returncode:
            raise _refused(done.stdout + done.stderr, "nvcc")
        return (path / "kernels.cubin").read_bytes()


def compile_by_nvrtc(
    library: str,
    source: str,
    options: Sequence[str],
    headers: Mapping[str, str] = MappingProxyType({}),
) -> bytes:
    """Return machine code that NVRTC makes.

    Args:
        library: Path of NVRTC.
        source: CUDA C++ without code of the host.
        options: Its options; the GPU's architecture is one of them.
        headers: Texts that the source may include, by name.

    Raises:
        BuildError: It does not compile.
    """
    nvrtc = ctypes.CDLL(library)
    program = c_void_p()
    text = source.encode()
    texts = (c_char_p * len(headers))(*(each.encode() for each in headers.values()))
    names = (c_char_p * len(headers))(*(each.encode() for each in headers))
    status = nvrtc.nvrtcCreateProgram(
        byref(program), c_char_p(text), c_char_p(b"kernels.cu"), c_int(len(headers)), texts, names
    )
    if status:
        raise BuildError(f"NVRTC does not start ({status})", where=library)
    try:
        given = (c_char_p * len(options))(*(option.encode() for option in options))
        if nvrtc.nvrtcCompileProgram(program, c_int(len(options)), given):
            raise _refused(_take(nvrtc, program, "ProgramLog").decode("utf-8", "replace"), "NVRTC")
        return _take(nvrtc, program, "CUBIN")
    finally:
        nvrtc.nvrtcDestroyProgram(byref(program))


def _take(nvrtc: Any, program: c_void_p, what: str) -> bytes:
    size = c_size_t()
    getattr(nvrtc, f"nvrtcGet{what}Size")(program, byref(size))
    data = ctypes.create_string_buffer(size.value)
    getattr(nvrtc, f"nvrtcGet{what}")(program, data)
    return data.raw


def _refused(text: str, compiler: str) -> BuildError:
    found = re.search(r"kernels\.cu[(:](\d+)", text)
    return BuildError(
        f"the kernels do not compile by {compiler}",
        where=f"kernels.cu:{found[1]}" if found else "kernels.cu",
        details={"compiler output": text.rstrip("\0\n")},
    )
