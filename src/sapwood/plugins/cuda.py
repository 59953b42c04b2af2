"""NVIDIA's GPUs: their devices, and the compilers for them."""

from sapwood.code.machine_kind import CUDA_CHOICE, CUDA_DEVICE
from sapwood.code.nvcc import INSTALL_NVRTC, find_nvcc, find_nvrtc
from sapwood.code.runner.options import ORDINAL
from sapwood.gpu.devices.cuda import CudaBackend, CudaDevice
from sapwood.gpu.devices.cuda_compiler import compile_by_nvrtc
from sapwood.gpu.devices.nvml import nvml_devices
from sapwood.gpu.discovery import visible_gpus

__all__ = [
    "CUDA_CHOICE",
    "CUDA_DEVICE",
    "INSTALL_NVRTC",
    "ORDINAL",
    "CudaBackend",
    "CudaDevice",
    "compile_by_nvrtc",
    "find_nvcc",
    "find_nvrtc",
    "nvml_devices",
    "visible_gpus",
]
