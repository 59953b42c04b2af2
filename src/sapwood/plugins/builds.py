"""Builds of programs, and what is read of sources and of debug information."""

from sapwood.code.build import Built, build
from sapwood.code.dwarf_scan import definitions
from sapwood.gpu.opencl.parse import kernel_signatures

__all__ = [
    "Built",
    "build",
    "definitions",
    "kernel_signatures",
]
