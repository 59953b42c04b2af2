"""NVIDIA GPUs as NVML sees them, without making a context: what discovery shows."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
from collections.abc import Callable
from typing import Any, Final

from sapwood.gpu.devices.base import DeviceFacts

_LIBRARY: Final = "libnvidia-ml.so.1"
"""The driver's part of NVML; ``pynvml`` loads it by the same name."""


def nvml_devices(nvml: Any = None) -> tuple[DeviceFacts, ...]:
    """Return the GPUs; none without ``nvidia-ml-py``, without a driver or without a GPU.

    Args:
        nvml: The module; by default ``pynvml``, which ``sapwood[cuda]`` brings.
    """
    if nvml is None and not _driver_is_here():
        return ()
    try:
        library = nvml if nvml is not None else importlib.import_module("pynvml")
        library.nvmlInit()
    except Exception:  # noqa: BLE001 - whatever keeps it from starting means that there is none
        return ()
    try:
        driver = _text(_ask(library.nvmlSystemGetDriverVersion, default=""))
        count = int(_ask(library.nvmlDeviceGetCount, default=0))
        return tuple(_facts(library, index, driver) for index in range(count))
    finally:
        with contextlib.suppress(Exception):
            library.nvmlShutdown()


def _driver_is_here() -> bool:
    """Say whether NVML's library can be loaded: its Python module takes long to import for a no."""
    try:
        ctypes.CDLL(_LIBRARY)
    except OSError:
        return False
    return True


def _facts(nvml: Any, index: int, driver: str) -> DeviceFacts:
    handle = _ask(nvml.nvmlDeviceGetHandleByIndex, index)
    memory = _ask(nvml.nvmlDeviceGetMemoryInfo, handle)
    major, minor = _ask(nvml.nvmlDeviceGetCudaComputeCapability, handle, default=(0, 0))
    return DeviceFacts(
        backend="cuda",
        index=index,
        name=_text(_ask(nvml.nvmlDeviceGetName, handle, default="NVIDIA GPU")),
        memory=int(memory.total) if memory is not None else 0,
        free_memory=int(memory.free) if memory is not None else None,
        architecture=f"sm_{major}{minor}" if major else "",
        driver=driver,
        max_block=1024,
        warp=32,
    )


def _ask(function: Callable[..., Any], *arguments: Any, default: Any = None) -> Any:
    """Return an answer; the default where a GPU or a container does not give it."""
    try:
        return function(*arguments)
    except Exception:  # noqa: BLE001 - NVML's errors are one class each; all mean: no answer
        return default


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
