"""The processor as a device: kernels are C functions over a number of items."""

from __future__ import annotations

import _ctypes
import ctypes
import os
import re
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from sapwood.code import floating_point
from sapwood.code.languages.base import BuildRequest
from sapwood.code.languages.compiled import run_compiler
from sapwood.code.machine_kind import processor_model
from sapwood.code.target import host_target
from sapwood.code.toolchain import find_compiler, processor_flags
from sapwood.core.errors import ResourceError
from sapwood.environment.cores import usable_cores
from sapwood.environment.memory import available_memory, total_memory
from sapwood.gpu.devices.base import Array, Buffer, DeviceFacts, DeviceStatistics, Module
from sapwood.gpu.devices.checks import c_value, require_fit, require_kernel, require_size

_FUNCTION: Final = re.compile(r"^\s*void\s+(\w+)\s*\(", re.MULTILINE)


class HostModule:
    """A loaded library of C functions."""

    def __init__(self, library: ctypes.CDLL, names: Sequence[str]) -> None:
        self.library = library
        self._names = tuple(names)

    def names(self) -> Sequence[str]:
        """Return the names of its functions."""
        return self._names


class HostDevice:
    """The processor: memory of the device is memory of this process.

    A kernel is a C function ``void name(long items, …)``; ``items`` is the product of the
    launch's sizes.
    """

    def __init__(self, facts: DeviceFacts) -> None:
        self.facts = facts
        self.statistics = DeviceStatistics()
        self._libraries: list[ctypes.CDLL] = []

    def allocate(self, nbytes: int) -> Buffer:
        """Return memory."""
        try:
            return Buffer(np.empty(nbytes, np.uint8), nbytes)
        except MemoryError as error:
            raise ResourceError(f"no {nbytes} bytes of memory") from error

    def free(self, buffer: Buffer) -> None:
        """Give memory back."""
        buffer.handle = None

    def write(self, buffer: Buffer, array: Array) -> None:
        """Copy an array into a buffer."""
        require_fit(buffer, array)
        began = time.perf_counter()
        buffer.handle[: array.nbytes] = array.reshape(-1).view(np.uint8)
        self.statistics.copied_in(array.nbytes, time.perf_counter() - began)

    def read(self, buffer: Buffer, array: Array) -> None:
        """Copy a buffer into an array."""
        require_fit(buffer, array)
        began = time.perf_counter()
        array.reshape(-1).view(np.uint8)[:] = buffer.handle[: array.nbytes]
        self.statistics.copied_out(array.nbytes, time.perf_counter() - began)

    def clear(self, buffer: Buffer) -> None:
        """Fill a buffer with zeros."""
        buffer.handle[:] = 0

    def staging(self, nbytes: int) -> Array:
        """Return bytes of this process."""
        return np.empty(nbytes, np.uint8)

    def build(self, source: str) -> Module:
        """Compile C functions by this machine's compiler."""
        compiler = find_compiler("c", os.environ)
        with tempfile.TemporaryDirectory(prefix="sapwood-host-") as folder:
            path = Path(folder)
            (path / "kernels.c").write_text(source)
            request = BuildRequest(
                folder=path,
                sources=("kernels.c",),
                output=path,
                target=host_target(),
                environment=dict(os.environ),
            )
            flags = ("-O3", *processor_flags(compiler, request.target), "-fPIC", "-shared", "-lm")
            command = [*compiler.command, "kernels.c", *flags, "-o", "kernels.so"]
            run_compiler(command, request, what="the kernels do not compile")
            with floating_point.preserved():
                library = ctypes.CDLL(str(path / "kernels.so"))
        self._libraries.append(library)
        return HostModule(library, _FUNCTION.findall(source))

    def launch(
        self,
        module: Module,
        name: str,
        arguments: Sequence[Buffer | np.generic],
        size: Sequence[int],
        block: Sequence[int] = (),
    ) -> None:
        """Call a function for all items."""
        assert isinstance(module, HostModule)  # noqa: S101 - modules belong to their back-end
        require_kernel(name, module.names())
        require_size(size, block)
        passed: list[Any] = [ctypes.c_long(int(np.prod(size, dtype=np.int64)))]
        for each in arguments:
            if isinstance(each, Buffer):
                passed.append(ctypes.c_void_p(each.handle.ctypes.data))
            else:
                passed.append(c_value(each))
        function = module.library[name]
        function.restype = None
        began = time.perf_counter()
        with floating_point.preserved():
            function(*passed)
        self.statistics.launched(time.perf_counter() - began)

    def synchronise(self) -> None:
        """Do nothing: a call ends when its work is done."""

    def close(self) -> None:
        """Unload the libraries."""
        while self._libraries:
            _ctypes.dlclose(self._libraries.pop()._handle)  # noqa: SLF001 - ctypes has no public name for it


class HostBackend:
    """The processor of this machine, always there."""

    name = "host"
    language = "c"

    def discover(self) -> Sequence[DeviceFacts]:
        """Return the processor."""
        return (
            DeviceFacts(
                backend=self.name,
                index=0,
                name=processor_model(),
                kind="cpu",
                memory=total_memory(),
                free_memory=available_memory(),
                architecture=os.uname().machine,
                driver=f"{os.uname().sysname} {os.uname().release}",
                units=usable_cores(),
                max_block=1,
            ),
        )

    def open(self, index: int = 0) -> HostDevice:
        """Open the processor."""
        if index != 0:
            raise ResourceError(f"unknown device {index}: the host has one", where="host")
        return HostDevice(self.discover()[0])
