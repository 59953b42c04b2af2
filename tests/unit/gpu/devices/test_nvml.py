"""How NVML's answers are read; a module with its functions stands in its place."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sapwood.gpu.devices.nvml import nvml_devices


class NvmlError(Exception):
    pass


def fails(*_arguments: Any) -> Any:
    raise NvmlError("Not Supported")


def stub(**changes: Any) -> Any:
    functions = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: b"570.86.15",
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: f"handle {index}",
        "nvmlDeviceGetMemoryInfo": lambda _handle: SimpleNamespace(total=1000, free=600),
        "nvmlDeviceGetCudaComputeCapability": lambda _handle: (9, 0),
        "nvmlDeviceGetName": lambda handle: f"NVIDIA H200 {handle}",
    }
    return SimpleNamespace(**{**functions, **changes})


@pytest.mark.row("A-GPU-1")
def test_every_fact_is_read() -> None:
    first, second = nvml_devices(stub())
    assert (first.backend, first.index, first.driver) == ("cuda", 0, "570.86.15")
    assert (second.name, second.architecture) == ("NVIDIA H200 handle 1", "sm_90")
    assert (second.memory, second.free_memory) == (1000, 600)


def test_what_a_gpu_does_not_tell_is_left_out() -> None:
    nvml = stub(nvmlDeviceGetMemoryInfo=fails, nvmlDeviceGetCudaComputeCapability=fails)
    first = nvml_devices(nvml)[0]
    assert (first.memory, first.free_memory, first.architecture) == (0, None, "")


@pytest.mark.parametrize("function", ["nvmlInit", "nvmlDeviceGetCount"])
def test_no_driver_means_no_devices(function: str) -> None:
    assert nvml_devices(stub(**{function: fails})) == ()


@pytest.mark.row("A-GPU-1")
def test_the_gpus_of_this_machine() -> None:
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    found = nvml_devices()
    if not found:
        pytest.skip("this machine has no NVIDIA GPU")
    assert all(facts.memory > 0 and facts.architecture for facts in found)
