"""Kernels as functions of a program: arrays stay on the device between calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar, Final

import numpy as np

from sapwood.code.interface import FunctionSignature, Role
from sapwood.code.native_binding import NativeFunction
from sapwood.core.errors import ArgumentError
from sapwood.gpu.devices.base import Array, Buffer, Device, Module

MAX_SHADOW: Final = 64 * 1024 * 1024
"""Bytes of an array up to which its last content is kept, to see whether it changed."""


class Resident:
    """One parameter's memory on a device, and what is in it.

    A read-only array that is the same object as in the last call, like a slice of a run, is
    not sent again. Other arrays are compared with a copy of what was sent last, in memory from
    which copies to the device are fast, and sent only if they differ.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._buffer: Buffer | None = None
        self._sent: Array | None = None
        self._staging: Array | None = None
        self._staged = 0

    def holds(self, array: Array) -> Buffer:
        """Return device memory with the content of an array."""
        buffer = self.sized(array.nbytes)
        if array is self._sent:
            self._device.statistics.reused += 1
            return buffer
        self._sent = None
        if not array.flags.writeable and array.nbytes > MAX_SHADOW:
            self._device.write(buffer, array)
        elif array.nbytes > MAX_SHADOW:
            self._device.write(buffer, array)
            return buffer
        elif not self._differs(array):
            self._device.statistics.reused += 1
        else:
            self._device.write(buffer, self._stage(array))
        if not array.flags.writeable:
            self._sent = array  # kept, so that no other array gets its identity
        return buffer

    def cleared(self, nbytes: int) -> Buffer:
        """Return device memory full of zeros."""
        buffer = self.sized(nbytes)
        self._sent, self._staged = None, 0
        self._device.clear(buffer)
        return buffer

    def sized(self, nbytes: int) -> Buffer:
        """Return device memory of a size; its content stays when the size does."""
        if self._buffer is not None and self._buffer.nbytes == nbytes:
            return self._buffer
        if self._buffer is not None:
            self._device.free(self._buffer)
        self._buffer, self._sent, self._staged = None, None, 0
        self._buffer = self._device.allocate(nbytes)
        return self._buffer

    def forget(self) -> None:
        """Say that a kernel changed the memory: its content has to be sent again."""
        self._sent, self._staged = None, 0

    def _differs(self, array: Array) -> bool:
        flat = array.reshape(-1).view(np.uint8)
        if self._staging is None or self._staged != len(flat):
            return True
        return not np.array_equal(self._staging[: self._staged], flat)

    def _stage(self, array: Array) -> Array:
        flat = array.reshape(-1).view(np.uint8)
        if self._staging is None or len(self._staging) < len(flat):
            self._staging = self._device.staging(len(flat))
        self._staged = len(flat)
        self._staging[: len(flat)] = flat
        staged: Array = self._staging[: len(flat)]
        return staged


class KernelFunction(NativeFunction):
    """A kernel that is called as native functions are.

    It runs with one thread for each item: the first extent of its first array that is read, or
    of its first array if it reads none. Where a block is required, the number of threads is
    rounded up to whole blocks.

    Args:
        signature: The kernel.
        device: Where it runs.
        module: Holds it.
        constants: Parameters of the program.
        block: Threads of a block; empty for what the device likes.
    """

    takes_addresses: ClassVar[bool] = (
        False  # it has to know the arrays, to leave them where they are
    )

    def __init__(
        self,
        signature: FunctionSignature,
        device: Device,
        module: Module,
        constants: Mapping[str, Any],
        block: Sequence[int] = (),
    ) -> None:
        super().__init__(signature, SimpleNamespace(), constants)
        self._device = device
        self._module = module
        self._block = tuple(block)
        self._residents = {index: Resident(device) for index, _ in self._arrays}
        arrays = [(i, a) for i, a in self._arrays if a.signature.role is not Role.OUTPUT]
        first = arrays or list(self._arrays)
        if not first:
            raise ArgumentError(
                f"kernel {signature.name} has no array, so its number of threads is unknown",
                where=signature.where,
                hint="give it the array whose items it works on",
            )
        self._items = first[0][0]

    def call_native(self, values: list[Any]) -> None:
        """Bring arrays to the device, launch, and bring outputs back."""
        device = self._device
        arguments: list[Any] = []
        for index, parameter in enumerate(self.signature.parameters):
            value = values[index]
            if parameter.role is Role.SCALAR:
                arguments.append(np.dtype(parameter.element.dtype).type(value))
            elif parameter.role is Role.OUTPUT:
                arguments.append(self._residents[index].cleared(value.nbytes))
            else:
                arguments.append(self._residents[index].holds(value))
        items = int(values[self._items].shape[0]) if values[self._items].ndim else 1
        if items:
            device.launch(
                self._module, self.signature.name, arguments, self._size(items), self._block
            )
        for index, _ in self._outputs:
            device.read(arguments[index], values[index])
            self._residents[index].forget()

    def _size(self, items: int) -> tuple[int, ...]:
        if not self._block:
            return (items,)
        first, *others = self._block
        return (-(-items // first) * first, *others)
