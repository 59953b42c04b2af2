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

UNKNOWN: Final = "unknown"
"""The name of a processor that the system does not name."""

_GPUS = Path("/proc/driver/nvidia/gpus")


@functools.cache
def machine_kind() -> str:
    """Return architecture, processor, cores and NVIDIA GPUs of this machine, as one text.

    It is text for people and the key of rates that were measured; no two machines that differ in
    one of these have the same.
    """
    model = " ".join(processor_model().split())
    named = [] if model == UNKNOWN else [model]
    parts = [os.uname().machine, *named, f"{os.cpu_count() or 1} cores", *_gpus()]
    return ", ".join(parts)[:MAX_KIND]


def processor_model(root: Path = Path("/")) -> str:
    """Return the name of the processor as its maker writes it, or ``unknown``.

    Args:
        root: The folder that holds ``/proc`` (tests give another one).
    """
    try:
        lines = (root / "proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return UNKNOWN
    for wanted in ("model name", "Model", "cpu model", "Processor", "Hardware"):
        for line in lines:
            name, _colon, value = line.partition(":")
            if name.strip() == wanted and value.strip():
                return value.strip()
    return UNKNOWN


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
