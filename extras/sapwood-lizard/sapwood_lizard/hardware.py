"""The GPUs of this machine, asked of the driver; none is normal."""

from __future__ import annotations

import ctypes
from typing import Any, Final

import msgspec

DRIVER: Final = "libcuda.so.1"

_MAX_THREADS_PER_BLOCK, _MULTIPROCESSORS, _THREADS_PER_MULTIPROCESSOR = 1, 16, 39
_MAJOR, _MINOR = 75, 76
_NAME_BYTES = 256

_BLOCKS_OF_NEW: Final = 32
_BLOCKS_OF_KEPLER: Final = 16
_BLOCKS_OF_OLD: Final = 8


class DeviceAttributes(msgspec.Struct, frozen=True):
    """A GPU.

    Attributes:
        name: For people.
        max_block: Threads of the largest block.
        max_threads: Threads of a multiprocessor.
        major: First number of the compute capability.
        minor: Second number.
        multiprocessors: How many there are.
        memory: Bytes.
    """

    name: str
    max_block: int
    max_threads: int
    major: int
    minor: int
    multiprocessors: int = 0
    memory: int = 0

    @property
    def max_blocks(self) -> int:
        """Blocks that a multiprocessor takes, by the rule of lizard-slayer."""
        if self.major > 5:
            return _BLOCKS_OF_NEW
        return _BLOCKS_OF_KEPLER if self.major > 3 else _BLOCKS_OF_OLD


def find_devices(driver: str = DRIVER) -> list[DeviceAttributes]:
    """Return the GPUs that this process may use; none without a driver.

    Args:
        driver: Library of the driver.
    """
    try:
        library = ctypes.CDLL(driver)
        if library.cuInit(0) != 0:
            return []
    except (OSError, AttributeError):
        return []
    count = ctypes.c_int()
    if library.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return []
    return [_facts(library, number) for number in range(count.value)]


def first_device() -> DeviceAttributes | None:
    """Return the GPU that kernels of this process run on, or None."""
    found = find_devices()
    return found[0] if found else None


def _facts(library: Any, number: int) -> DeviceAttributes:
    device = ctypes.c_int()
    library.cuDeviceGet(ctypes.byref(device), number)
    name = ctypes.create_string_buffer(_NAME_BYTES)
    library.cuDeviceGetName(name, _NAME_BYTES, device)
    memory = ctypes.c_size_t()
    library.cuDeviceTotalMem_v2(ctypes.byref(memory), device)

    def attribute(key: int) -> int:
        value = ctypes.c_int()
        library.cuDeviceGetAttribute(ctypes.byref(value), key, device)
        return value.value

    return DeviceAttributes(
        name=name.value.decode("utf-8", "replace"),
        max_block=attribute(_MAX_THREADS_PER_BLOCK),
        max_threads=attribute(_THREADS_PER_MULTIPROCESSOR),
        major=attribute(_MAJOR),
        minor=attribute(_MINOR),
        multiprocessors=attribute(_MULTIPROCESSORS),
        memory=memory.value,
    )
