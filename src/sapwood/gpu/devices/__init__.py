"""Devices that kernels run on: GPUs by CUDA or OpenCL, and the processor itself."""
