"""What every device back-end provides, and what is counted on a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

ENTRY_POINT_GROUP: Final = "sapwood.devices"
"""Entry points of plug-ins: a :class:`Backend`, or a class that makes one."""

Array = npt.NDArray[Any]


class DeviceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about a device.

    Attributes:
        backend: The back-end that found it: ``cuda``, ``opencl``, ``host``, or a plug-in's name.
        index: Its number within the back-end.
        name: As its maker calls it.
        kind: ``gpu``, ``cpu`` or ``accelerator``.
        memory: Bytes it has; 0 when unknown.
        free_memory: Bytes that are free; None when it does not say.
        architecture: What code is built for, for example ``sm_90``; empty when unknown.
        driver: Version of the driver or platform.
        units: Multiprocessors or compute units.
        max_block: Threads that a block may have.
        warp: Threads that run in step; 1 on a processor.
    """

    backend: str
    index: int
    name: str
    kind: str = "gpu"
    memory: int = 0
    free_memory: int | None = None
    architecture: str = ""
    driver: str = ""
    units: int = 0
    max_block: int = 0
    warp: int = 1


class DeviceStatistics(msgspec.Struct, kw_only=True):
    """Copies and launches on a device since it was opened.

    Attributes:
        copies_in: Copies from the host to the device.
        bytes_in: Their bytes.
        seconds_in: Their time.
        copies_out: Copies from the device to the host.
        bytes_out: Their bytes.
        seconds_out: Their time.
        reused: Arrays that a call found on the device already.
        launches: Kernels that were launched.
        launch_seconds: Their time, from the launch to the end.
    """

    copies_in: int = 0
    bytes_in: int = 0
    seconds_in: float = 0.0
    copies_out: int = 0
    bytes_out: int = 0
    seconds_out: float = 0.0
    reused: int = 0
    launches: int = 0
    launch_seconds: float = 0.0

    def copied_in(self, nbytes: int, seconds: float) -> None:
        """Count a copy to the device."""
        self.copies_in += 1
        self.bytes_in += nbytes
        self.seconds_in += seconds

    def copied_out(self, nbytes: int, seconds: float) -> None:
        """Count a copy from the device."""
        self.copies_out += 1
        self.bytes_out += nbytes
        self.seconds_out += seconds

    def launched(self, seconds: float) -> None:
        """Count a launch."""
        self.launches += 1
        self.launch_seconds += seconds


class Buffer:
    """Memory of a device.

    Attributes:
        handle: What the back-end knows it by; None once it is freed.
        nbytes: Its size.
    """

    __slots__ = ("handle", "nbytes")

    def __init__(self, handle: Any, nbytes: int) -> None:
        self.handle: Any = handle
        self.nbytes: int = nbytes


class Module(Protocol):
    """Kernels that were built for a device."""

    def names(self) -> Sequence[str]:
        """Return the names of its kernels."""
        ...


class Device(Protocol):
    """An opened device; used by one thread at a time."""

    facts: DeviceFacts
    statistics: DeviceStatistics

    def allocate(self, nbytes: int) -> Buffer:
        """Return memory of the device; its content is not defined.

        Raises:
            ResourceError: There is not enough.
        """
        ...

    def free(self, buffer: Buffer) -> None:
        """Give memory back; freeing twice does nothing."""
        ...

    def write(self, buffer: Buffer, array: Array) -> None:
        """Copy a contiguous array to the beginning of a buffer.

        Raises:
            InputError: It does not fit.
        """
        ...

    def read(self, buffer: Buffer, array: Array) -> None:
        """Fill a contiguous array from the beginning of a buffer.

        Raises:
            InputError: The buffer is smaller.
        """
        ...

    def clear(self, buffer: Buffer) -> None:
        """Fill a buffer with zeros; nothing is copied."""
        ...

    def staging(self, nbytes: int) -> Array:
        """Return bytes of the host from which copies to this device are fast."""
        ...

    def build(self, source: str) -> Module:
        """Build kernels of the back-end's language.

        Raises:
            BuildError: They do not compile; the details have the compiler's text.
        """
        ...

    def launch(
        self,
        module: Module,
        name: str,
        arguments: Sequence[Buffer | np.generic],
        size: Sequence[int],
        block: Sequence[int] = (),
    ) -> None:
        """Launch a kernel over ``size`` threads; what follows on this device waits for it.

        Args:
            module: Holds the kernel.
            name: Its name.
            arguments: Buffers, and numbers of the exact numpy type.
            size: Threads per axis, one to three; a multiple of ``block`` where that is given.
            block: Threads of a block per axis; by default the back-end decides.

        Raises:
            FunctionMissingError: The module has no such kernel.
            UserCodeError: The launch failed.
        """
        ...

    def synchronise(self) -> None:
        """Wait until everything is done.

        Raises:
            UserCodeError: A kernel failed.
        """
        ...

    def close(self) -> None:
        """Give everything back."""
        ...


class Backend(Protocol):
    """A kind of devices."""

    name: str
    language: str
    """What :meth:`Device.build` takes: ``opencl``, ``cuda`` or ``c``."""

    def discover(self) -> Sequence[DeviceFacts]:
        """Return the devices of this machine; none is a normal answer, and never an error."""
        ...

    def open(self, index: int = 0) -> Device:
        """Open a device.

        Raises:
            ResourceError: There is no such device, or it cannot be used.
        """
        ...
