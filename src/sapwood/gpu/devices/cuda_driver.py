"""The CUDA driver API by ctypes: the few calls that memory and launches need.

The driver's library comes with the driver, so nothing has to be installed for it.
"""

from __future__ import annotations

import ctypes
import functools
import os
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any, Final

from sapwood.core.errors import ResourceError, SapwoodError, UserCodeError

LIBRARIES: Final = ("libcuda.so.1", "libcuda.so")

_Pointer = c_uint64
_SIGNATURES: Final[dict[str, tuple[Any, ...]]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (POINTER(c_int),),
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDeviceGetName": (c_char_p, c_int, c_int),
    "cuDeviceTotalMem_v2": (POINTER(c_size_t), c_int),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuDevicePrimaryCtxRetain": (POINTER(c_void_p), c_int),
    "cuDevicePrimaryCtxRelease_v2": (c_int,),
    "cuCtxSetCurrent": (c_void_p,),
    "cuCtxSynchronize": (),
    "cuMemGetInfo_v2": (POINTER(c_size_t), POINTER(c_size_t)),
    "cuMemAlloc_v2": (POINTER(_Pointer), c_size_t),
    "cuMemFree_v2": (_Pointer,),
    "cuMemAllocHost_v2": (POINTER(c_void_p), c_size_t),
    "cuMemFreeHost": (c_void_p,),
    "cuMemcpyHtoD_v2": (_Pointer, c_void_p, c_size_t),
    "cuMemcpyDtoH_v2": (c_void_p, _Pointer, c_size_t),
    "cuMemsetD8_v2": (_Pointer, ctypes.c_ubyte, c_size_t),
    "cuModuleLoadData": (POINTER(c_void_p), c_char_p),
    "cuModuleUnload": (c_void_p,),
    "cuModuleGetFunction": (POINTER(c_void_p), c_void_p, c_char_p),
    "cuLaunchKernel": (
        *(c_void_p, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint),
        *(c_void_p, POINTER(c_void_p), POINTER(c_void_p)),
    ),
    "cuEventCreate": (POINTER(c_void_p), c_uint),
    "cuEventRecord": (c_void_p, c_void_p),
    "cuEventSynchronize": (c_void_p,),
    "cuEventElapsedTime": (POINTER(c_float), c_void_p, c_void_p),
    "cuEventDestroy_v2": (c_void_p,),
}

MAX_THREADS, WARP_SIZE, MULTIPROCESSORS = 1, 10, 16
MEMORY_CLOCK, MEMORY_BUS, MAJOR, MINOR = 36, 37, 75, 76
"""Numbers of the attributes that are asked for."""

_OUT_OF_MEMORY: Final = 2
_OF_KERNELS: Final = 700  # from here on errors are those of kernels


class CudaDriver:
    """The driver's functions; each raises an error when the driver gives one.

    Args:
        library: The loaded library.

    Raises:
        ResourceError: The driver does not start.
    """

    def __init__(self, library: Any) -> None:
        self._library = library
        for name, arguments in _SIGNATURES.items():
            function = getattr(library, name)
            function.argtypes = arguments
            function.restype = c_int
        library.cuGetErrorString.argtypes = (c_int, POINTER(c_char_p))
        # The same order as NVML's, which discovery shows.
        os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
        self.call("cuInit", 0)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the driver.

        Raises:
            ResourceError: There is not enough memory, or the driver cannot be used.
            UserCodeError: A kernel failed.
        """
        status = getattr(self._library, name)(*arguments)
        if status:
            raise self._error(name, status)

    def _error(self, name: str, status: int) -> SapwoodError:
        text = c_char_p()
        self._library.cuGetErrorString(status, byref(text))
        what = f"{name}: {(text.value or b'unknown error').decode()} ({status})"
        if status == _OUT_OF_MEMORY:
            return ResourceError(what, where="cuda", hint="use more agents: slices get smaller")
        if name in {"cuLaunchKernel", "cuCtxSynchronize"} or status >= _OF_KERNELS:
            return UserCodeError(what, where="cuda")
        return ResourceError(what, where="cuda")

    def count(self) -> int:
        """Return the number of devices."""
        found = c_int()
        self.call("cuDeviceGetCount", byref(found))
        return found.value

    def attribute(self, which: int, device: int) -> int:
        """Return an attribute of a device."""
        found = c_int()
        self.call("cuDeviceGetAttribute", byref(found), which, device)
        return found.value

    def name(self, device: int) -> str:
        """Return the name of a device."""
        text = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", text, len(text), device)
        return text.value.decode("utf-8", "replace")

    def memory(self, device: int) -> int:
        """Return the bytes of a device."""
        found = c_size_t()
        self.call("cuDeviceTotalMem_v2", byref(found), device)
        return found.value

    def version(self) -> str:
        """Return the version of CUDA that the driver supports."""
        found = c_int()
        self.call("cuDriverGetVersion", byref(found))
        return f"CUDA {found.value // 1000}.{found.value % 1000 // 10}"


@functools.cache
def find_driver() -> CudaDriver | None:
    """Return the driver, or None on a machine that has none or no device for it."""
    for name in LIBRARIES:
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        try:
            return CudaDriver(library)
        except (ResourceError, AttributeError):
            return None
    return None
