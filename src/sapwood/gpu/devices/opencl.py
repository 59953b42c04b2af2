"""OpenCL devices by pyopencl, which the extra ``sapwood[opencl]`` brings."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from sapwood.core.errors import BuildError, ResourceError, UserCodeError
from sapwood.gpu.devices.base import Array, Buffer, DeviceFacts, DeviceStatistics, Module
from sapwood.gpu.devices.checks import require_fit, require_kernel, require_size

INSTALL: Final = "pip install 'sapwood[opencl]', and the OpenCL driver of the device"
"""How to get what OpenCL needs."""


class OpenClModule:
    """A built OpenCL program and its kernels, each made once."""

    def __init__(self, program: Any) -> None:
        self._kernels = {kernel.function_name: kernel for kernel in program.all_kernels()}

    def names(self) -> Sequence[str]:
        """Return the names of its kernels."""
        return tuple(self._kernels)

    def kernel(self, name: str) -> Any:
        """Return a kernel."""
        return self._kernels[name]


class OpenClDevice:
    """A device with one context and one queue in order."""

    def __init__(self, facts: DeviceFacts, device: Any) -> None:
        import pyopencl  # noqa: PLC0415 - an optional package

        self.facts = facts
        self.statistics = DeviceStatistics()
        self._cl = pyopencl
        try:
            self._context = pyopencl.Context([device])
            self._queue = pyopencl.CommandQueue(self._context)
        except pyopencl.Error as error:
            raise ResourceError(
                f"{facts.name} cannot be opened: {error}", where="opencl"
            ) from error
        self._device = device

    def allocate(self, nbytes: int) -> Buffer:
        """Return memory of the device."""
        flags = self._cl.mem_flags.READ_WRITE
        try:
            return Buffer(self._cl.Buffer(self._context, flags, size=max(nbytes, 1)), nbytes)
        except self._cl.Error as error:
            raise ResourceError(
                f"{self.facts.name} has no {nbytes} bytes free: {error}",
                where="opencl",
                hint="use more agents, so that slices are smaller",
            ) from error

    def free(self, buffer: Buffer) -> None:
        """Give memory back."""
        if buffer.handle is not None:
            buffer.handle.release()
            buffer.handle = None

    def write(self, buffer: Buffer, array: Array) -> None:
        """Copy an array to the device."""
        require_fit(buffer, array)
        began = time.perf_counter()
        if array.nbytes:
            self._cl.enqueue_copy(self._queue, buffer.handle, array, is_blocking=True)
        self.statistics.copied_in(array.nbytes, time.perf_counter() - began)

    def read(self, buffer: Buffer, array: Array) -> None:
        """Copy a buffer to the host."""
        require_fit(buffer, array)
        self.synchronise()
        began = time.perf_counter()
        if array.nbytes:
            self._cl.enqueue_copy(self._queue, array, buffer.handle, is_blocking=True)
        self.statistics.copied_out(array.nbytes, time.perf_counter() - began)

    def clear(self, buffer: Buffer) -> None:
        """Fill a buffer with zeros."""
        if buffer.nbytes:
            self._cl.enqueue_fill_buffer(self._queue, buffer.handle, np.uint8(0), 0, buffer.nbytes)

    def staging(self, nbytes: int) -> Array:
        """Return memory that the driver made for copies."""
        if nbytes == 0:
            return np.empty(0, np.uint8)
        flags = self._cl.mem_flags.READ_WRITE | self._cl.mem_flags.ALLOC_HOST_PTR
        memory = self._cl.Buffer(self._context, flags, size=nbytes)
        both = self._cl.map_flags.READ | self._cl.map_flags.WRITE
        array, _event = self._cl.enqueue_map_buffer(
            self._queue, memory, both, 0, (nbytes,), np.uint8, is_blocking=True
        )
        found: Array = array
        return found

    def build(self, source: str) -> Module:
        """Build OpenCL C by the driver's compiler."""
        program = self._cl.Program(self._context, source)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what the compiler says of a good build
                return OpenClModule(program.build(options=["-cl-kernel-arg-info"]))
        except self._cl.RuntimeError as error:
            text = "\n".join(
                program.get_build_info(device, self._cl.program_build_info.LOG)
                for device in self._context.devices
            )
            raise BuildError(
                f"the kernels do not compile for {self.facts.name}",
                details={"compiler output": text.strip() or str(error)},
            ) from None

    def launch(
        self,
        module: Module,
        name: str,
        arguments: Sequence[Buffer | np.generic],
        size: Sequence[int],
        block: Sequence[int] = (),
    ) -> None:
        """Launch a kernel and wait for its end."""
        assert isinstance(module, OpenClModule)  # noqa: S101 - modules belong to their back-end
        require_kernel(name, module.names())
        require_size(size, block)
        passed = [each.handle if isinstance(each, Buffer) else each for each in arguments]
        began = time.perf_counter()
        try:
            kernel = module.kernel(name)
            kernel.set_args(*passed)
            self._cl.enqueue_nd_range_kernel(self._queue, kernel, tuple(size), tuple(block) or None)
            self._queue.finish()
        except (self._cl.Error, TypeError) as error:
            raise UserCodeError(f"kernel {name} cannot be launched: {error}", where=name) from error
        self.statistics.launched(time.perf_counter() - began)

    def synchronise(self) -> None:
        """Wait for the queue."""
        try:
            self._queue.finish()
        except self._cl.Error as error:
            raise UserCodeError(f"a kernel failed: {error}", where=self.facts.name) from error

    def close(self) -> None:
        """Wait for the queue and drop it."""
        self.synchronise()


class OpenClBackend:
    """All devices of all OpenCL platforms, GPUs first."""

    name = "opencl"
    language = "opencl"

    def discover(self) -> Sequence[DeviceFacts]:
        """Return the devices; none without pyopencl or without a platform."""
        return tuple(facts for facts, _ in self._devices())

    def open(self, index: int = 0) -> OpenClDevice:
        """Open a device."""
        found = self._devices()
        if not 0 <= index < len(found):
            raise ResourceError(
                f"there is no OpenCL device {index}: this machine has {len(found)}",
                where="opencl",
                hint=INSTALL if not found else "",
            )
        return OpenClDevice(*found[index])

    def _devices(self) -> list[tuple[DeviceFacts, Any]]:
        # Vendors' files are where the loader of the system looks, also for a loader in a wheel.
        os.environ.setdefault("OCL_ICD_VENDORS", "/etc/OpenCL/vendors")
        try:
            import pyopencl  # noqa: PLC0415 - an optional package
        except ImportError:
            return []
        try:
            platforms = pyopencl.get_platforms()
        except pyopencl.Error:
            return []
        found: list[Any] = []
        for platform in platforms:
            try:
                found += platform.get_devices()
            except pyopencl.Error:
                continue  # a platform without devices
        kinds = pyopencl.device_type
        found.sort(key=lambda device: not device.type & kinds.GPU)
        return [(_facts(index, device, kinds), device) for index, device in enumerate(found)]


def _facts(index: int, device: Any, kinds: Any) -> DeviceFacts:
    kind = "gpu" if device.type & kinds.GPU else "cpu" if device.type & kinds.CPU else "accelerator"
    return DeviceFacts(
        backend="opencl",
        index=index,
        name=device.name.strip(),
        kind=kind,
        memory=device.global_mem_size,
        architecture=device.opencl_c_version.strip(),
        driver=f"{device.platform.name.strip()} {device.driver_version.strip()}",
        units=device.max_compute_units,
        max_block=device.max_work_group_size,
        warp=32 if kind == "gpu" else 1,
    )
