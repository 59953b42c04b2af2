"""The devices of this machine, for people and for who spreads agents over them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from sapwood.code.installed_tools import Found
from sapwood.environment.units import describe_size
from sapwood.gpu.devices.base import DeviceFacts
from sapwood.gpu.devices.registry import discover_devices

USUAL_BLOCK: Final = 256
"""Threads of a block that suit most kernels on most GPUs."""

_INSTALL: Final = "pip install 'sapwood[cuda]' shows its GPUs; or the driver does not work"


def device_items(
    devices: Sequence[DeviceFacts] | None = None, root: Path = Path("/")
) -> Iterator[Found]:
    """Yield the devices beside the processor; none is a normal answer.

    Args:
        devices: The devices to check; by default all devices of this machine.
        root: The folder that holds ``/proc`` (tests give another one).
    """
    found = discover_devices() if devices is None else devices
    shown = [facts for facts in found if facts.backend != "host"]
    for facts in shown:
        yield Found(f"{facts.backend} {facts.index}", describe_device(facts))
    if not any(facts.backend == "cuda" for facts in shown):
        cards = root / "proc/driver/nvidia/gpus"
        count = len(list(cards.iterdir())) if cards.is_dir() else 0
        if count:
            yield Found("NVIDIA", f"{count} that cannot be used here", "warning", _INSTALL)
        elif not shown:
            yield Found("GPU", "none")


def describe_device(facts: DeviceFacts) -> str:
    """Return a device in one line.

    Example:
        >>> describe_device(DeviceFacts(backend="cuda", index=0, name="NVIDIA H200",
        ...                             memory=2**37, free_memory=2**36, architecture="sm_90",
        ...                             driver="570.86"))
        'NVIDIA H200, 128 GiB (64 GiB free), sm_90, driver 570.86'
    """
    parts = [facts.name]
    if facts.memory:
        free = "" if facts.free_memory is None else f" ({describe_size(facts.free_memory)} free)"
        parts.append(f"{describe_size(facts.memory)}{free}")
    if facts.architecture:
        parts.append(facts.architecture)
    if facts.driver:
        parts.append(f"driver {facts.driver}")
    if facts.kind != "gpu":
        parts.append(f"a {facts.kind}")
    return ", ".join(parts)


def suggest_block(facts: DeviceFacts, items: int) -> int:
    """Return a sensible number of threads of a block for a kernel over some items.

    A multiple of the warp, no more than the device allows, and so few that every
    multiprocessor gets a block where there are enough items.

    Example:
        >>> gpu = DeviceFacts(backend="cuda", index=0, name="", units=100, max_block=1024, warp=32)
        >>> suggest_block(gpu, 10_000_000), suggest_block(gpu, 5000), suggest_block(gpu, 10)
        (256, 64, 32)
    """
    warp = max(facts.warp, 1)
    most = max(min(USUAL_BLOCK, facts.max_block or USUAL_BLOCK) // warp * warp, 1)
    share = -(-items // max(facts.units, 1))
    return max(min(most, -(-share // warp) * warp), min(warp, most))


def choose_device(devices: Sequence[DeviceFacts], ordinal: int) -> DeviceFacts:
    """Return the device that an agent uses: agents of a machine take its GPUs in turn.

    Other devices are only used where there is no GPU.

    Args:
        devices: Of one back-end; at least one.
        ordinal: Which of the machine's agents it is, from 0 on.

    Example:
        >>> gpus = [DeviceFacts(backend="cuda", index=i, name="") for i in range(2)]
        >>> [choose_device(gpus, ordinal).index for ordinal in range(3)]
        [0, 1, 0]
    """
    chosen = [facts for facts in devices if facts.kind == "gpu"] or list(devices)
    return chosen[ordinal % len(chosen)]


def visible_gpus(visible: str | None, count: int, ordinal: int) -> str:
    """Return the value of CUDA_VISIBLE_DEVICES for an agent: its own GPU.

    Args:
        visible: What it says so far; None when it is not set.
        count: GPUs of the machine.
        ordinal: Which of the machine's agents it is, from 0 on.

    Example:
        >>> visible_gpus(None, 4, 6), visible_gpus("GPU-1f,GPU-2e", 4, 1)
        ('2', 'GPU-2e')
    """
    listed = [str(index) for index in range(count)]
    if visible is not None:
        listed = [name.strip() for name in visible.split(",") if name.strip()]
    return listed[ordinal % len(listed)] if listed else ""
