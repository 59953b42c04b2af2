"""CUDA kernels built by NVRTC, and loaded on this agent's GPU: no toolkit is needed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from sapwood.errors import BuildError, FunctionMissingError
from sapwood.plugins.cuda import CudaBackend, CudaDevice, compile_by_nvrtc, find_nvrtc
from sapwood.plugins.devices import Module
from sapwood.plugins.languages import (
    Artefact,
    BuildRequest,
    FunctionSignature,
    Interface,
    LoadedCode,
    transfers,
)

LIBRARY: Final = "kernels.cubin"
"""Machine code of a GPU, which is what travels."""

_EMPTY: Final = ("cuda_runtime.h", "cuda.h", "device_launch_parameters.h", "math.h", "cmath")
_INTEGERS: Final = (
    "".join(
        f"typedef {sign}{kind} {prefix}int{bits}_t;\n"
        for bits, kind in ((8, "char"), (16, "short"), (32, "int"), (64, "long long"))
        for sign, prefix in (("signed ", ""), ("unsigned ", "u"))
    )
    + "namespace std { using ::int8_t; using ::int16_t; using ::int32_t; using ::int64_t;\n"
    "using ::uint8_t; using ::uint16_t; using ::uint32_t; using ::uint64_t; }\n"
)
HEADERS: Final = {
    **dict.fromkeys(_EMPTY, ""),
    **dict.fromkeys(("stdint.h", "cstdint"), "#pragma once\n#include <sapwood_integers.h>\n"),
    "sapwood_integers.h": f"#pragma once\n{_INTEGERS}",
    **dict.fromkeys(("stddef.h", "cstddef"), ""),
}
"""Headers of the host that kernels include; NVRTC brings what is in them, but for integers."""


def nvrtc_identity(library: str) -> str:
    """Return what changes when NVRTC is another one."""
    path = Path(library).resolve()
    return f"{path} {path.stat().st_size}"


def build_by_nvrtc(request: BuildRequest) -> Artefact:
    """Build the kernels of the sources, which have nothing else, for the target's GPU.

    Raises:
        BuildError: They do not compile, or there is code of the host.
    """
    library = find_nvrtc()
    assert library is not None  # noqa: S101 - identity() found it
    for source in request.sources:
        signatures_of(request, source)  # refuses code of the host with its line
    text = "".join(
        f'#line 1 "{source}"\n{(request.folder / source).read_text(encoding="utf-8")}\n'
        for source in request.sources
    )
    architecture = request.target.gpu_architecture or "sm_52"
    options = [
        f"--gpu-architecture={architecture}",
        "--std=c++17",
        f"--include-path={request.folder}",
    ]
    try:
        code = compile_by_nvrtc(library, text, options, HEADERS)
    except BuildError as error:
        raise _located(error, request.sources, architecture) from None
    (request.output / LIBRARY).write_bytes(code)
    return Artefact(library=LIBRARY)


def kernels_of(request: BuildRequest) -> Interface:
    """Return the kernels of the sources as functions."""
    found = [each for source in request.sources for each in signatures_of(request, source)]
    return Interface(functions=tuple(found))


def signatures_of(request: BuildRequest, source: str) -> tuple[FunctionSignature, ...]:
    """Return the kernels of one source.

    Raises:
        BuildError: There is code of the host.
    """
    from sapwood_cuda_cpu.kernel_source import read_kernels  # noqa: PLC0415 - needs a parser that runners do not

    return read_kernels(source, (request.folder / source).read_bytes())


class LoadedKernels:
    """Kernels on this agent's GPU."""

    def __init__(self, device: CudaDevice, module: Module, interface: Interface) -> None:
        self.device = device
        self._module = module
        self._interface = interface

    def function(self, name: str, constants: Mapping[str, Any]) -> Callable[..., Any]:
        """Return a kernel, ready to be called with arrays."""
        from sapwood.plugins.devices import KernelFunction  # noqa: PLC0415 - only where kernels run

        signature = self._interface.function(name)
        if signature is None:
            raise FunctionMissingError(f"the sources have no kernel {name}")
        return KernelFunction(signature, self.device, self._module, constants)


def load_kernels(path: Path, interface: Interface) -> LoadedCode:
    """Load machine code on this agent's GPU.

    Raises:
        ResourceError: This node has no GPU, or one of another architecture.
    """
    device = CudaBackend().open()
    transfers.watch(device.statistics)
    module = device.load(path.read_bytes(), [each.name for each in interface.functions])
    return LoadedKernels(device, module, interface)


def _located(error: BuildError, sources: tuple[str, ...], architecture: str) -> BuildError:
    text = error.details.get("compiler output", "")
    if "--gpu-architecture" in text:
        return BuildError(
            f"NVRTC does not know the GPU {architecture}",
            where="target",
            hint="it may be too new or too old for it; sm_90 is a usual one",
            details=error.details,
        )
    place = re.search(r"([\w./-]+)[(:](\d+)\)?: (?:catastrophic )?error", text)
    where = f"{os.path.normpath(place[1])}:{place[2]}" if place else sources[0]
    what = f"{place[1] if place else sources[0]} does not compile for the GPU"
    return BuildError(what, where=where, details=error.details)
