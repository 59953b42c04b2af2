"""Devices that kernels run on: what a package registers as ``sapwood.devices``.

``sapwood.testing.devices`` has the suite that a back-end must pass.
"""

from sapwood.gpu.devices.base import Backend, Buffer, Device, DeviceFacts, DeviceStatistics, Module
from sapwood.gpu.resident import KernelFunction

__all__ = [
    "Backend",
    "Buffer",
    "Device",
    "DeviceFacts",
    "DeviceStatistics",
    "KernelFunction",
    "Module",
]
