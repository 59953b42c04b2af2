"""What every device back-end has to keep: subclass :class:`DeviceSuite` in a test module.

::

    class TestMine(DeviceSuite):
        def backend(self):
            return MyBackend()
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pytest

from sapwood.core.errors import BuildError, FunctionMissingError, InputError, ResourceError
from sapwood.gpu.devices.base import Backend, Device

SCALE: Final = {
    "c": "void scale(long items, const float *x, float *y, float a, int n) {\n"
    "  for (long i = 0; i < items && i < n; i++) y[i] = a * x[i];\n}\n",
    "opencl": "__kernel void scale(__global const float *x, __global float *y, float a, int n) {\n"
    "  int i = get_global_id(0);\n  if (i < n) y[i] = a * x[i];\n}\n",
    "cuda": 'extern "C" __global__ void scale(const float *x, float *y, float a, int n) {\n'
    "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n) y[i] = a * x[i];\n}\n",
}
"""The kernel of the suite in each language: ``y = a * x`` for ``n`` items."""


class DeviceSuite:
    """The suite; a back-end without a device here skips it."""

    def backend(self) -> Backend:
        """Return the back-end to test."""
        raise NotImplementedError

    @pytest.fixture
    def device(self) -> Iterator[Device]:
        """Open the first device."""
        backend = self.backend()
        if not backend.discover():
            pytest.skip(f"this machine has no device of the back-end {backend.name}")
        opened = backend.open(0)
        yield opened
        opened.close()

    def test_discovery_is_never_an_error_and_numbers_its_devices(self) -> None:
        backend = self.backend()
        for index, facts in enumerate(backend.discover()):
            assert (facts.backend, facts.index) == (backend.name, index)
            assert facts.name
            assert facts.kind in {"gpu", "cpu", "accelerator"}
            assert facts.max_block >= 1

    def test_a_device_that_is_not_there(self) -> None:
        with pytest.raises(ResourceError):
            self.backend().open(999)

    @pytest.mark.parametrize("dtype", ["u1", "i4", "f4", "f8"])
    @pytest.mark.parametrize("size", [0, 1, 1000])
    def test_what_is_written_is_read_and_counted(
        self, device: Device, dtype: str, size: int
    ) -> None:
        sent = np.arange(size).astype(dtype)
        buffer = device.allocate(sent.nbytes)
        device.write(buffer, sent)
        back = np.zeros_like(sent)
        device.read(buffer, back)
        np.testing.assert_array_equal(back, sent)
        counts = device.statistics
        assert (counts.copies_in, counts.bytes_in) == (1, sent.nbytes)
        assert (counts.copies_out, counts.bytes_out) == (1, sent.nbytes)
        assert counts.seconds_in > 0
        assert counts.seconds_out > 0
        device.free(buffer)
        device.free(buffer)

    def test_clearing_copies_nothing(self, device: Device) -> None:
        buffer = device.allocate(400)
        device.clear(buffer)
        assert device.statistics.copies_in == 0
        back = np.ones(100, np.float32)
        device.read(buffer, back)
        assert not back.any()

    def test_copies_over_the_end_are_refused(self, device: Device) -> None:
        buffer = device.allocate(8)
        with pytest.raises(InputError):
            device.write(buffer, np.zeros(3, np.float32))
        with pytest.raises(InputError):
            device.read(buffer, np.zeros((4, 4), np.float32)[:, 1])
        device.free(buffer)
        with pytest.raises(InputError):
            device.write(buffer, np.zeros(1, np.float32))

    def test_staging_memory_is_memory(self, device: Device) -> None:
        memory = device.staging(4000)
        assert memory.nbytes == 4000
        memory[:] = 7
        assert memory.sum() == 28000

    @pytest.mark.parametrize("size", [1, 37, 1000])
    def test_a_kernel(self, device: Device, size: int) -> None:
        x = np.arange(size, dtype=np.float32)
        module = self._built(device)
        assert list(module.names()) == ["scale"]
        source, target = device.allocate(x.nbytes), device.allocate(x.nbytes)
        device.write(source, x)
        device.clear(target)
        scalars: list[np.generic] = [np.float32(3.0), np.int32(size)]
        device.launch(module, "scale", [source, target, *scalars], (size,))
        device.launch(module, "scale", [source, target, *scalars], (size,))
        device.synchronise()
        y = np.zeros_like(x)
        device.read(target, y)
        np.testing.assert_array_equal(y, 3 * x)
        assert device.statistics.launches == 2
        assert device.statistics.copies_in == 1
        assert device.statistics.launch_seconds > 0

    def test_an_unknown_kernel_and_a_wrong_size(self, device: Device) -> None:
        module = self._built(device)
        with pytest.raises(FunctionMissingError):
            device.launch(module, "scales", [], (1,))
        for size, block in (((0,), ()), ((1, 1, 1, 1), ()), ((10,), (3,)), ((4,), (2, 2))):
            with pytest.raises(InputError):
                device.launch(module, "scale", [], size, block)

    def test_a_kernel_that_does_not_compile(self, device: Device) -> None:
        language = self.backend().language
        with pytest.raises(BuildError) as caught:
            device.build(SCALE[language].replace("a *", "nothing *"))
        assert "nothing" in caught.value.details["compiler output"]

    def _built(self, device: Device) -> Any:
        return device.build(SCALE[self.backend().language])
