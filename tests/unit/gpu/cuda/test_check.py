from __future__ import annotations

import pytest

from sapwood.core.errors import BuildError
from sapwood.gpu.cuda.check import refuse_unsupported, unsupported
from sapwood.gpu.cuda.parse import CudaSource, read_sources

KERNEL = "__global__ void k(float *x) {{ {} }}\n"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("texture<float, 2> image;", "textures"),
        ("cudaTextureObject_t image;", "textures"),
        (KERNEL.format("x[0] = tex2D<float>(t, 1, 2);"), "textures"),
        (KERNEL.format("surf2Dwrite(1.0f, s, 1, 2);"), "surfaces and CUDA arrays"),
        (KERNEL.format('asm("membar.gl;");'), "inline PTX"),
        (KERNEL.format('asm volatile("mov.u32 %0, 1;" : "=r"(y));'), "inline PTX"),
        ("using namespace nvcuda;", "tensor cores"),
        (KERNEL.format("k<<<1, 1>>>(x);"), "dynamic parallelism"),
        ("void f() { cudaGraphLaunch(g, s); }", "CUDA graphs"),
        ("void f() { cuModuleLoad(&m, n); }", "the driver API"),
        ("void f() { cudaLaunchKernel(k, g, b, a, 0, 0); }", "launches by function"),
        ("void f() { cudaLaunchCooperativeKernel(k, g, b, a); }", "launches by function"),
        ("void f() { cudaIpcGetMemHandle(&h, p); }", "CUDA IPC"),
        ("cublasHandle_t h;", "cuBLAS"),
        ("void f() { cufftExecC2C(p, a, b, 1); }", "cuFFT"),
        ("curandState_t s;", "cuRAND"),
        ("cudnnHandle_t h;", "cuDNN"),
        ("void f() { ncclAllReduce(); }", "NCCL"),
        ("void f() { thrust::sort(a, b); }", "Thrust"),
        ("void f() { cub::DeviceScan::Sum(); }", "CUB"),
        ("#include <thrust/sort.h>", "a CUDA C++ library"),
        ("#include <cublas_v2.h>", "an NVIDIA library"),
        ("#include <cuda_fp16.h>", "small floats"),
        ("__half x;", "16-bit floats"),
        (
            KERNEL.format("auto g = cooperative_groups::this_grid();"),
            "groups of more than one block",
        ),
        ("cudaMemPool_t pool;", "memory pools"),
        ("void f() { cudaDeviceEnablePeerAccess(1, 0); }", "access to other GPUs"),
    ],
)
def test_each_construct_is_refused_with_its_line(text: str, what: str) -> None:
    found = unsupported(CudaSource("a.cu", b"\n\n" + text.encode()))
    assert [(each.line, each.what) for each in found] == [(3, what)]
    assert found[0].advice
    assert str(found[0]).startswith(f"a.cu:3: not supported on a CPU node: {what}: ")


@pytest.mark.parametrize(
    "text",
    [
        "#include <cuda.h>",
        "void f() { int texture = 1, half = texture / 2; cudaMalloc(&half, 4); }",
        "int cuMemory(int x) { return cuMemory(x); }",
        "// thrust::sort and asm are only talked about",
        'const char *s = "cudaGraph_t";',
    ],
)
def test_what_only_looks_like_it_is_not_refused(text: str) -> None:
    assert unsupported(CudaSource("a.cu", text.encode())) == []


def test_all_places_are_in_one_error() -> None:
    sources = read_sources({"a.cu": b"cudaGraph_t g;\n", "b.cuh": b"\n__half h;\n"})
    with pytest.raises(BuildError) as caught:
        refuse_unsupported(sources)
    assert caught.value.where == "a.cu:1"
    assert caught.value.details["not supported"].splitlines() == [
        "a.cu:1: not supported on a CPU node: CUDA graphs: cudaGraph_t g;",
        "b.cuh:2: not supported on a CPU node: 16-bit floats: __half h;",
    ]
