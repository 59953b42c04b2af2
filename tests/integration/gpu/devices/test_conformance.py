from __future__ import annotations

import pytest

from sapwood.gpu.devices.base import Backend
from sapwood.gpu.devices.registry import backend
from sapwood.testing.devices import DeviceSuite

pytestmark = pytest.mark.row("A-GPU-4")


class TestHost(DeviceSuite):
    def backend(self) -> Backend:
        return backend("host")


class TestOpenCl(DeviceSuite):
    def backend(self) -> Backend:
        return backend("opencl")


class TestCuda(DeviceSuite):
    def backend(self) -> Backend:
        return backend("cuda")
