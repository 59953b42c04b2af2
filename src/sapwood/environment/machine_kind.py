"""The kind of a machine: machines of one kind compute the same function about as fast."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

CUDA_CHOICE: Final = "SAPWOOD_CUDA"
"""Environment variable: ``cpu`` or ``gpu`` for CUDA sources, empty for what the machine has."""

CUDA_DEVICE: Final = Path("/dev/nvidiactl")
"""There where the driver of NVIDIA GPUs is."""

MAX_KIND = 120
"""Characters of a kind."""

_FIRST_CORE = 4096
"""Bytes of ``/proc/cpuinfo`` that are read: the first core says what all are."""

_PROCESSORS = Path("/proc/cpuinfo")
_GPUS = Path("/proc/driver/nvidia/gpus")


@functools.cache
def machine_kind() -> str:
    """Return architecture, processor, cores and NVIDIA GPUs of this machine, as one text.

    It is text for people and the key of rates that were measured; no two machines that differ in
    one of these have the same.
    """
    parts = [os.uname().machine, _processor(), f"{os.cpu_count() or 1} cores", *_gpus()]
    return ", ".join(part for part in parts if part)[:MAX_KIND]


def has_cuda_gpu(variables: Mapping[str, str]) -> bool:
    """Whether CUDA sources run on a GPU of this machine.

    Args:
        variables: The environment of the process; ``SAPWOOD_CUDA`` may say ``cpu`` or ``gpu``.

    Example:
        >>> has_cuda_gpu({"SAPWOOD_CUDA": "cpu"})
        False
    """
    choice = variables.get(CUDA_CHOICE, "")
    return choice == "gpu" if choice else CUDA_DEVICE.exists()


def _processor() -> str:
    try:
        with _PROCESSORS.open("rb") as file:
            text = file.read(_FIRST_CORE).decode("utf-8", "replace")
    except OSError:
        return ""
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in {"model name", "Processor", "cpu"}:
            return " ".join(value.split())
    return ""


def _gpus() -> list[str]:
    found: dict[str, int] = {}
    try:
        for folder in sorted(_GPUS.iterdir()):
            for line in (folder / "information").read_text("utf-8", "replace").splitlines():
                name, _, value = line.partition(":")
                if name.strip() == "Model":
                    model = " ".join(value.split())
                    found[model] = found.get(model, 0) + 1
    except OSError:
        return []
    return [f"{count} x {model}" for model, count in sorted(found.items())]
