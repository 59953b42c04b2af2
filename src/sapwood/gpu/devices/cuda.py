"""NVIDIA GPUs by the driver API, discovered by NVML."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from ctypes import byref, c_size_t, c_uint64, c_void_p
from typing import Any, Final

import numpy as np

from sapwood.core.errors import ResourceError
from sapwood.gpu.devices import cuda_driver
from sapwood.gpu.devices.base import Array, Buffer, DeviceFacts, DeviceStatistics, Module
from sapwood.gpu.devices.checks import c_value, require_fit, require_kernel, require_size
from sapwood.gpu.devices.cuda_compiler import compile_kernels, kernel_names
from sapwood.gpu.devices.cuda_driver import CudaDriver, find_driver
from sapwood.gpu.devices.nvml import nvml_devices

USUAL_BLOCK: Final = 256
"""Threads of a block where a launch does not say: full multiprocessors on every GPU."""


class CudaModule:
    """Machine code that is loaded on a GPU."""

    def __init__(self, driver: CudaDriver, code: bytes, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self.handle = c_void_p()
        driver.call("cuModuleLoadData", byref(self.handle), code)
        self.functions: dict[str, c_void_p] = {}
        for name in self._names:
            function = c_void_p()
            driver.call("cuModuleGetFunction", byref(function), self.handle, name.encode())
            self.functions[name] = function

    def names(self) -> Sequence[str]:
        """Return the names of its kernels."""
        return self._names


class CudaDevice:
    """A GPU, in the context that the runtime API of the same process uses too."""

    def __init__(self, driver: CudaDriver, facts: DeviceFacts) -> None:
        self.facts = facts
        self.statistics: DeviceStatistics = DeviceStatistics()
        self._driver = driver
        self._modules: list[CudaModule] = []
        self._pinned: list[c_void_p] = []
        context = c_void_p()
        driver.call("cuDevicePrimaryCtxRetain", byref(context), facts.index)
        driver.call("cuCtxSetCurrent", context)

    def allocate(self, nbytes: int) -> Buffer:
        """Return memory of the GPU."""
        pointer = c_uint64()
        self._driver.call("cuMemAlloc_v2", byref(pointer), max(nbytes, 1))
        return Buffer(pointer.value, nbytes)

    def free(self, buffer: Buffer) -> None:
        """Give memory back."""
        if buffer.handle is not None:
            self._driver.call("cuMemFree_v2", buffer.handle)
            buffer.handle = None

    def write(self, buffer: Buffer, array: Array) -> None:
        """Copy an array to the GPU; fast from :meth:`staging`."""
        require_fit(buffer, array)
        began = time.perf_counter()
        if array.nbytes:
            self._driver.call("cuMemcpyHtoD_v2", buffer.handle, _address(array), array.nbytes)
        self.statistics.copied_in(array.nbytes, time.perf_counter() - began)

    def read(self, buffer: Buffer, array: Array) -> None:
        """Copy a buffer to the host."""
        require_fit(buffer, array)
        self.synchronise()
        began = time.perf_counter()
        if array.nbytes:
            self._driver.call("cuMemcpyDtoH_v2", _address(array), buffer.handle, array.nbytes)
        self.statistics.copied_out(array.nbytes, time.perf_counter() - began)

    def clear(self, buffer: Buffer) -> None:
        """Fill a buffer with zeros."""
        if buffer.nbytes:
            self._driver.call("cuMemsetD8_v2", buffer.handle, 0, buffer.nbytes)

    def staging(self, nbytes: int) -> Array:
        """Return pinned memory, from which the GPU copies directly."""
        pointer = c_void_p()
        self._driver.call("cuMemAllocHost_v2", byref(pointer), max(nbytes, 1))
        self._pinned.append(pointer)
        memory = (ctypes.c_ubyte * max(nbytes, 1)).from_address(pointer.value or 0)
        return np.ctypeslib.as_array(memory)[:nbytes]

    def build(self, source: str) -> Module:
        """Compile kernels with C names, and load them."""
        return self.load(compile_kernels(source, self.facts.architecture), kernel_names(source))

    def load(self, code: bytes, names: Sequence[str]) -> Module:
        """Load machine code with kernels of these names."""
        module = CudaModule(self._driver, code, names)
        self._modules.append(module)
        return module

    def launch(
        self,
        module: Module,
        name: str,
        arguments: Sequence[Buffer | np.generic],
        size: Sequence[int],
        block: Sequence[int] = (),
    ) -> None:
        """Launch a kernel and wait for its end; without a block, the last one may be ragged."""
        assert isinstance(module, CudaModule)  # noqa: S101 - modules belong to their back-end
        require_kernel(name, module.names())
        require_size(size, block)
        if not block:
            block = (min(USUAL_BLOCK, self.facts.max_block), *(1 for _ in size[1:]))
        grid = [-(-extent // part) for extent, part in zip(size, block, strict=True)]
        values = [_value(each) for each in arguments]
        pointers = (c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        three = (*grid, 1, 1)[:3] + (*block, 1, 1)[:3]
        began = time.perf_counter()
        self._driver.call("cuLaunchKernel", module.functions[name], *three, 0, None, pointers, None)
        self._driver.call("cuCtxSynchronize")
        self.statistics.launched(time.perf_counter() - began)

    def free_memory(self) -> int:
        """Return the bytes that are free now."""
        free, total = c_size_t(), c_size_t()
        self._driver.call("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value

    def synchronise(self) -> None:
        """Wait for the GPU."""
        self._driver.call("cuCtxSynchronize")

    def close(self) -> None:
        """Unload modules, free pinned memory, leave the context."""
        while self._modules:
            self._driver.call("cuModuleUnload", self._modules.pop().handle)
        while self._pinned:
            self._driver.call("cuMemFreeHost", self._pinned.pop())
        self._driver.call("cuDevicePrimaryCtxRelease_v2", self.facts.index)


def _address(array: Array) -> c_void_p:
    return c_void_p(array.ctypes.data)


def _value(argument: Buffer | np.generic) -> Any:
    if isinstance(argument, Buffer):
        return c_uint64(argument.handle)
    return c_value(argument)


class CudaBackend:
    """NVIDIA GPUs."""

    name = "cuda"
    language = "cuda"

    def discover(self) -> Sequence[DeviceFacts]:
        """Return the GPUs: by NVML, else by the driver; none is a normal answer."""
        found = nvml_devices()
        if found:
            return found
        driver = find_driver()
        if driver is None:
            return ()
        return tuple(driver_facts(driver, index) for index in range(driver.count()))

    def open(self, index: int = 0) -> CudaDevice:
        """Open a GPU."""
        driver = find_driver()
        if driver is None or not 0 <= index < driver.count():
            count = driver.count() if driver is not None else 0
            raise ResourceError(
                f"there is no CUDA device {index}: this process sees {count}",
                where="cuda",
                hint="" if count else "install NVIDIA's driver, or use another back-end",
            )
        return CudaDevice(driver, driver_facts(driver, index))


def driver_facts(driver: CudaDriver, index: int) -> DeviceFacts:
    """Return what the driver says of a device."""
    major = driver.attribute(cuda_driver.MAJOR, index)
    minor = driver.attribute(cuda_driver.MINOR, index)
    return DeviceFacts(
        backend="cuda",
        index=index,
        name=driver.name(index),
        memory=driver.memory(index),
        architecture=f"sm_{major}{minor}",
        driver=driver.version(),
        units=driver.attribute(cuda_driver.MULTIPROCESSORS, index),
        max_block=driver.attribute(cuda_driver.MAX_THREADS, index),
        warp=driver.attribute(cuda_driver.WARP_SIZE, index),
    )
