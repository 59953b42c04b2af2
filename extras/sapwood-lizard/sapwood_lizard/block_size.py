"""How many threads a block of a kernel gets: the number that ``run_iteration`` receives."""

from __future__ import annotations

from typing import Final

from sapwood_lizard.hardware import DeviceAttributes

WARP: Final = 32
"""Threads that a GPU runs in step; block sizes are multiples of it."""

CPU_BLOCK: Final = 512
"""Threads of a block where there is no GPU: what most GPUs get, so programs behave the same."""


def recommended_block(device: DeviceAttributes | None) -> int:
    """Return the size of a block for a device; for None, a node without a GPU.

    Example:
        >>> recommended_block(DeviceAttributes("H200", 1024, 2048, 9, 0)), recommended_block(None)
        (544, 512)
    """
    if device is None:
        return CPU_BLOCK
    mean = (device.max_block + device.max_threads / device.max_blocks) / 2
    return max(WARP, int(mean / WARP) * WARP)


def block_for(items: int, recommended: int) -> int:
    """Return the size of a block for a slice.

    Kernels often let the first threads of a block work for all of it. In a last block of only a
    few items such threads are missing, so the largest size is taken, in steps of a warp, that
    leaves the last block full or with a warp of items at least.

    Example:
        >>> block_for(1000, 512), block_for(1025, 512), block_for(7, 512)
        (512, 480, 512)
    """
    if items <= recommended:
        return recommended
    for size in range(recommended, 0, -WARP):
        rest = items % size
        if rest == 0 or rest >= WARP:
            return size
    return recommended
