"""The kernels of ``benchmarks/cuda/work.cu`` on a GPU, against the same kernels on the CPU.

::

    python benchmarks/gpu/kernels.py            # prints a table
    python benchmarks/gpu/kernels.py --write    # and writes it to benchmarks/gpu/table.md
    python benchmarks/gpu/kernels.py --back-end opencl   # the map kernel in OpenCL C only

Each kernel runs on the GPU and, patched, on the CPU; both results are compared. Written down are
the time of the kernel, the times of the copies, and the share of the memory bandwidth: the bytes
that the kernel has to read and write once, by its time, by what the memory could do. Without a
GPU the table has no figures.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import sys
import tempfile
from ctypes import byref, c_float, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # where the other benchmarks are

from cuda_on_cpu import SOURCE, data_of, load
from sapwood.gpu.devices import cuda_driver
from sapwood.gpu.devices.base import Device
from sapwood.gpu.devices.cuda import CudaBackend
from sapwood.gpu.devices.cuda_driver import CudaDriver, find_driver
from sapwood.gpu.devices.opencl import OpenClBackend
from sapwood.gpu.discovery import describe_device

TABLE = Path(__file__).parent / "table.md"
RUNS = 10
HEAD = ("kernel", "size", "kernel ms", "copies in ms", "copies out ms", "GB/s", "share", "equal")
SUMS = 16 * 33
"""Elements of the result of the k-means step."""


@dataclass(frozen=True)
class Case:
    """One kernel: its size, its grid and block, and the arrays it moves at least once."""

    name: str
    size: int
    grid: tuple[int, ...]
    block: tuple[int, ...]
    elements: int


def cases(*, quick: bool) -> list[Case]:
    """Return the kernels with their launches, as ``work.cu`` launches them."""
    n = 1_000_000 if quick else 10_000_000
    blocks = -(-n // 256)
    points = 65_536
    return [
        Case("map", n, (blocks,), (256,), 3 * n),
        Case("stride", n, (256,), (256,), 3 * n),
        Case("tree", n, (blocks,), (256,), n),
        Case("shuffle", n, (64,), (256,), n),
        Case("matmul", 1024, (64, 64), (16, 16), 3 * 1024**2),
        Case("kmeans", points, (points // 256,), (256,), 32 * points),
    ]


def device_source() -> str:
    """Return the kernels alone, with C names."""
    text = SOURCE.read_text().split('extern "C" {', maxsplit=1)[0]
    text = re.sub(r"^#include <cuda_runtime.h>$", "", text, flags=re.MULTILINE)
    return text.replace("__global__ void", 'extern "C" __global__ void')


def peak_bandwidth(driver: CudaDriver, index: int) -> float:
    """Return bytes a second that the memory could move: two transfers a clock."""
    clock = driver.attribute(cuda_driver.MEMORY_CLOCK, index) * 1e3
    return 2 * clock * driver.attribute(cuda_driver.MEMORY_BUS, index) / 8


class Stopwatch:
    """Times on the GPU, by events."""

    def __init__(self, driver: CudaDriver) -> None:
        self._driver = driver
        self._events = (c_void_p(), c_void_p())
        for event in self._events:
            driver.call("cuEventCreate", byref(event), 0)

    def record(self, which: int) -> None:
        """Record the beginning (0) or the end (1)."""
        self._driver.call("cuEventRecord", self._events[which], None)

    def milliseconds(self) -> float:
        """Return the time between the two."""
        self._driver.call("cuEventSynchronize", self._events[1])
        found = c_float()
        self._driver.call("cuEventElapsedTime", byref(found), *self._events)
        return found.value


def on_cpu(library: ctypes.CDLL, case: Case, arrays: tuple[Any, ...]) -> Any:
    """Return the result of the patched kernel."""
    out = np.zeros_like(arrays[2])
    pointers = [c_void_p(array.ctypes.data) for array in (*arrays[:2], out)]
    library[f"{case.name}_cuda"](*pointers, ctypes.c_int(case.size))
    return out


def measure(
    device: Device, module: Any, watch: Stopwatch, case: Case, arrays: tuple[Any, ...]
) -> tuple[Any, float]:
    """Run a kernel on the GPU; return its result and the least time of some runs."""
    a, b, out = arrays
    buffers = [device.allocate(array.nbytes) for array in (a, b, out)]
    for buffer, array in zip(buffers[:2], (a, b), strict=True):
        device.write(buffer, array)
    arguments: list[Any] = [*buffers, np.int32(case.size)]
    if case.name in {"tree", "shuffle"}:
        arguments = [buffers[0], buffers[2], np.int32(case.size)]
    elif case.name == "kmeans":
        counts = device.allocate(16 * 4)
        arguments = [*buffers, counts, np.int32(case.size)]
        buffers.append(counts)
    threads = tuple(g * b for g, b in zip(case.grid, case.block, strict=True))
    times = []
    for _ in range(RUNS):
        for buffer in buffers[2:]:
            device.clear(buffer)
        watch.record(0)
        device.launch(module, f"{case.name}_kernel", arguments, threads, case.block)
        watch.record(1)
        times.append(watch.milliseconds())
    found = np.zeros_like(out)
    device.read(buffers[2], found)
    if case.name == "kmeans":
        count = np.zeros(16, np.int32)
        device.read(buffers[3], count)
        found[512:] = count.view(np.float32)
    for buffer in buffers:
        device.free(buffer)
    return found, min(times)


def equal(case: Case, gpu: Any, cpu: Any) -> bool:
    """Compare results; sums of floats come in another order."""
    if case.name in {"map", "stride"}:
        return bool(np.array_equal(gpu, cpu))
    if case.name == "kmeans":
        counts = np.abs(gpu[512:].view(np.int32) - cpu[512:].view(np.int32)).max()
        return bool(counts <= 2 and np.allclose(gpu[:512], cpu[:512], rtol=1e-2, atol=1.0))
    if case.name in {"tree", "shuffle"}:
        return bool(np.isclose(gpu[0], cpu[0], rtol=1e-4))
    return bool(np.allclose(gpu, cpu, rtol=1e-4))


def rows_of_cuda(*, quick: bool) -> tuple[str, list[tuple[str, ...]]]:
    """Return the name of the GPU, and a row for each kernel."""
    driver = find_driver()
    found = CudaBackend().discover()
    if driver is None or not found:
        empty = [
            (case.name, f"{case.size}", *("-" for _ in HEAD[2:])) for case in cases(quick=quick)
        ]
        return "not measured: this machine has no CUDA device", empty
    device = CudaBackend().open()
    watch, peak = Stopwatch(driver), peak_bandwidth(driver, 0)
    module = device.build(device_source())
    rows: list[tuple[str, ...]] = []
    with tempfile.TemporaryDirectory() as folder:
        patched = load(Path(folder) / "patched", os.environ.get("CXX", ""))
        for case in cases(quick=quick):
            arrays = data_of(case.name, case.size)
            before = (device.statistics.seconds_in, device.statistics.seconds_out)
            gpu, time = measure(device, module, watch, case, arrays)
            inward = (device.statistics.seconds_in - before[0]) * 1e3
            outward = (device.statistics.seconds_out - before[1]) * 1e3
            rate = 4 * case.elements / (time * 1e-3)
            same = equal(case, gpu, on_cpu(patched, case, arrays))
            figures = (f"{time:.3f}", f"{inward:.2f}", f"{outward:.2f}", f"{rate / 1e9:.0f}")
            share = f"{100 * rate / peak:.0f} %" if peak else "-"
            rows.append((case.name, f"{case.size}", *figures, share, "yes" if same else "NO"))
    device.close()
    return describe_device(found[0]), rows


def rows_of_opencl(*, quick: bool) -> tuple[str, list[tuple[str, ...]]]:
    """Return the name of the first OpenCL device, and a row for the map kernel."""
    n = 1_000_000 if quick else 10_000_000
    if not OpenClBackend().discover():
        return "not measured: this machine has no OpenCL device", [("map", f"{n}", *"-" * 6)]
    device = OpenClBackend().open()
    module = device.build(
        "__kernel void map(__global const float *a, __global const float *b, __global float *c,"
        " int n) { int i = get_global_id(0); if (i < n) c[i] = a[i] + b[i]; }"
    )
    a, b, out = data_of("map", n)
    buffers = [device.allocate(array.nbytes) for array in (a, b, out)]
    device.write(buffers[0], a)
    device.write(buffers[1], b)
    times = []
    for _ in range(RUNS):
        before = device.statistics.launch_seconds
        device.launch(module, "map", [*buffers, np.int32(n)], (n,))
        times.append(device.statistics.launch_seconds - before)
    device.read(buffers[2], out)
    counts, rate = device.statistics, 12 * n / min(times)
    copies = (f"{counts.seconds_in * 1e3:.2f}", f"{counts.seconds_out * 1e3:.2f}")
    figures = (f"{min(times) * 1e3:.3f}", *copies, f"{rate / 1e9:.0f}")
    same = "yes" if np.array_equal(out, a + b) else "NO"
    return describe_device(device.facts), [("map", f"{n}", *figures, "-", same)]


def table(title: str, rows: list[tuple[str, ...]]) -> str:
    """Return a table in Markdown."""
    lines = [f"# Kernels on a GPU\n\n{title}\n", "| " + " | ".join(HEAD) + " |"]
    lines.append("|" + "---|" * len(HEAD))
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, print, and write the table if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke test, not a measurement")
    parser.add_argument("--write", action="store_true", help=f"write {TABLE.name}")
    parser.add_argument("--back-end", choices=("cuda", "opencl"), default="cuda")
    given = parser.parse_args()
    rows = rows_of_cuda if given.back_end == "cuda" else rows_of_opencl
    text = table(*rows(quick=given.quick))
    print(text)
    if given.write:
        TABLE.write_text(text)
    if "| NO |" in text:
        sys.exit("a result on the GPU differs from the CPU's")


if __name__ == "__main__":
    main()
