"""The default number of agents of a machine."""

from __future__ import annotations

import os

from sapwood.environment.cores import usable_cores
from sapwood.gpu.devices.nvml import nvml_devices


def agents_by_default(gpus: int | None = None, visible: str | None = None) -> int:
    """Return one agent for each GPU where there are several, else one for each core.

    Args:
        gpus: NVIDIA GPUs of the machine; by default those that NVML tells of.
        visible: Which of them may be used; by default what ``CUDA_VISIBLE_DEVICES`` says.

    Example:
        >>> agents_by_default(gpus=4), agents_by_default(gpus=4, visible="0,2,3")
        (4, 3)
    """
    count = len(nvml_devices()) if gpus is None else gpus
    seen = os.environ.get("CUDA_VISIBLE_DEVICES") if visible is None else visible
    if seen is not None:
        count = min(count, len([name for name in seen.split(",") if name.strip()]))
    return count if count > 1 else usable_cores()
