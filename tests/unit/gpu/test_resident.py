"""What stays on a device between calls, shown with the host as the device."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from sapwood.code.interface import ElementType, FunctionSignature, ParameterSignature, Role
from sapwood.gpu.devices.host import HostBackend, HostDevice
from sapwood.gpu.resident import KernelFunction, Resident

pytestmark = pytest.mark.row("A-GPU-2")

FLOAT = ElementType(c="float", dtype="<f4", size=4)
INT = ElementType(c="int", dtype="<i4", size=4)
SCALE = "void scale(long items, const float *x, float *y, int n, float a)"
SOURCE = f"{SCALE} {{ for (long i = 0; i < items && i < n; i++) y[i] = a * x[i]; }}"
SIGNATURE = FunctionSignature(
    name="scale",
    parameters=(
        ParameterSignature("x", "const float *", FLOAT, Role.INPUT, ("n",)),
        ParameterSignature("y", "float *", FLOAT, Role.OUTPUT, ("n",)),
        ParameterSignature("n", "int", INT),
        ParameterSignature("a", "float", FLOAT),
    ),
)


@pytest.fixture
def device() -> Iterator[HostDevice]:
    opened = HostBackend().open()
    yield opened
    opened.close()


def test_an_array_that_does_not_change_is_sent_once(device: HostDevice) -> None:
    scale = KernelFunction(SIGNATURE, device, device.build(SOURCE), {})
    x = np.arange(10, dtype=np.float32)
    x.flags.writeable = False
    for factor in (1.0, 2.0, 3.0):
        np.testing.assert_array_equal(scale(x, factor)["y"], factor * x)
    counts = device.statistics
    assert (counts.copies_in, counts.reused, counts.copies_out) == (1, 2, 3)


def test_a_changed_array_is_sent_again(device: HostDevice) -> None:
    scale = KernelFunction(SIGNATURE, device, device.build(SOURCE), {})
    x = np.arange(10, dtype=np.float32)
    scale(x, 1.0)
    scale(x, 1.0)
    assert device.statistics.copies_in == 1
    x[3] = 77
    np.testing.assert_array_equal(scale(x, 1.0)["y"], x)
    assert device.statistics.copies_in == 2


def test_another_size_is_sent_again(device: HostDevice) -> None:
    scale = KernelFunction(SIGNATURE, device, device.build(SOURCE), {})
    for size in (4, 9, 4, 0):
        x = np.ones(size, np.float32)
        np.testing.assert_array_equal(scale(x, 2.0)["y"], 2 * x)
    assert device.statistics.bytes_in == 4 * (4 + 9 + 4 + 0)


def test_what_a_kernel_changed_is_sent_again(device: HostDevice) -> None:
    resident = Resident(device)
    x = np.ones(3, np.float32)
    resident.holds(x)
    resident.forget()
    resident.holds(x)
    assert device.statistics.copies_in == 2


def test_blocks_are_filled_up(device: HostDevice) -> None:
    scale = KernelFunction(SIGNATURE, device, device.build(SOURCE), {}, block=(64, 1, 1))
    x = np.ones(70, np.float32)
    np.testing.assert_array_equal(scale(x, 2.0)["y"], 2 * x)
