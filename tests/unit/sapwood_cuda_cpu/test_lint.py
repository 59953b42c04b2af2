from __future__ import annotations

from sapwood_cuda_cpu.lint import find_traps
from sapwood_cuda_cpu.parse import CudaSource


def traps(text: str) -> list[tuple[int, str]]:
    return [(each.line, each.what) for each in find_traps(CudaSource("a.cu", text.encode()))]


def test_host_access_of_device_memory() -> None:
    code = "void f() {\n float *d, *h;\n cudaMalloc((void **)&d, 4);\n h[0] = 1;\n d[0] = *d;\n}"
    found = traps(code)
    assert found == [(5, "the host uses d, which is memory of the device")] * 2


def test_an_address_is_no_access() -> None:
    assert traps("void f() { float *d; cudaMalloc(&d, 4); g(&d[1]); }") == []


def test_a_launch_that_nobody_checks() -> None:
    assert traps("void f() {\n k<<<1, 1>>>();\n}") == [
        (2, "no code checks whether the launch failed")
    ]
    assert traps("void f() { k<<<1, 1>>>(); CHECK(cudaDeviceSynchronize()); }") == []


def test_shared_memory_over_the_limit_with_macros() -> None:
    code = "#define N (64 + 64)\n__global__ void k() {\n __shared__ float a[N][N];\n {} }"
    (found,) = traps(code.replace("{}", ""))
    assert found[0] == 3
    assert found[1].startswith("65536 bytes of shared memory")
    assert traps(code.replace("64 + 64", "64").replace("{}", "")) == []
