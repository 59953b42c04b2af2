from __future__ import annotations

import pytest

from sapwood.core.errors import BuildError
from sapwood_cuda_cpu.check import refuse_unsupported, unsupported
from sapwood_cuda_cpu.parse import CudaSource, read_sources

KERNEL = "__global__ void k(float *x) {{ {} }}\n"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (KERNEL.format("x[0] = texCubemap<float>(t, 1, 2, 3);"), "cube maps, gathers and mipmaps"),
        (KERNEL.format('asm("bar.sync 1, 64;");'), "inline PTX"),
        (KERNEL.format('asm volatile("mov.u32 %0, 1;" : "=r"(y));'), "inline PTX"),
        ("using namespace nvcuda;", "tensor cores"),
        (KERNEL.format("k<<<1, 1>>>(x);"), "dynamic parallelism"),
        ("void f() { cudaGraphLaunch(g, s); }", "CUDA graphs"),
        ("void f() { cuModuleLoad(&m, n); }", "the driver API"),
        ("void f() { cudaLaunchKernelExC(&c, k, a); }", "launches by function"),
        ("void f() { cudaLaunchCooperativeKernelMultiDevice(l, 2); }", "launches by function"),
        ("void f() { cudaIpcGetMemHandle(&h, p); }", "CUDA IPC"),
        (KERNEL.format("if (__isShared(x)) x[0] = 1;"), "asking in which memory a pointer is"),
        (KERNEL.format("__builtin_assume(__isGlobal(x));"), "asking in which memory a pointer is"),
        (
            "cublasLtMatrixTransformDesc_t d;",
            "parts of cuBLASLt: transforms, chosen algorithms, scales of matrices",
        ),
        ("void f() { cufftXtSetCallback(p, &f, k, 0); }", "callbacks and several devices of cuFFT"),
        ("int type = CURAND_RNG_QUASI_SOBOL32;", "generators other than XORWOW and Philox"),
        ("curandStateMtgp32_t s;", "generators other than XORWOW and Philox"),
        ("cudnnHandle_t h;", "cuDNN"),
        ("void f() { ncclAllReduce(); }", "NCCL"),
        (
            KERNEL.format("cuda::pipeline<cuda::thread_scope_thread> p;"),
            "parts of libcu++: barriers, pipelines and their like",
        ),
        (KERNEL.format("cg::block_tile_memory<4, 64> m;"), "tiles of more than one warp"),
        ("cudaMemPoolPtrExportData data;", "memory pools of several processes"),
        (KERNEL.format("wmma::load_matrix_sync(a, x, 16);"), "tensor cores"),
        (
            KERNEL.format("cuda::barrier<cuda::thread_scope_block> b;"),
            "parts of libcu++: barriers, pipelines and their like",
        ),
        ("cudlaDevHandle h;", "an NVIDIA library"),
        ("NppiSize size;", "an NVIDIA library"),
        ("void f() { cuptiSubscribe(&s, 0, 0); }", "an NVIDIA library"),
        ("cusparseLtHandle_t h;", "an NVIDIA library"),
        ("cusolverDnHandle_t h;", "an NVIDIA library"),
        ("CUdeviceptr p;", "the driver API"),
        ("void f() { cuLaunchKernel(f); }", "the driver API"),
        ("void f() { cudaStreamBeginCapture(s, m); }", "CUDA graphs"),
        (KERNEL.format("cooperative_groups::memcpy_async(b, s, x, 4);"), "asynchronous copies"),
        (
            KERNEL.format("auto c = cooperative_groups::this_cluster();"),
            "groups of more than one block",
        ),
        ("__nv_fp4_e2m1 x;", "floats of fewer than 8 bits, and E8M0"),
        ("__nv_fp8_e8m0 x;", "floats of fewer than 8 bits, and E8M0"),
        ("void f() { cudaGraphicsMapResources(1, &r); }", "graphics"),
        ("void f() { cudaGLSetGLDevice(0); }", "graphics"),
        ("void f() { cudaGraphicsGLRegisterBuffer(&r, b, 0); }", "graphics"),
        ("void f() { cudaEGLStreamConsumerConnect(&c, s); }", "graphics"),
        ("cudaEglFrame frame;", "graphics"),
        ("void f() { cudaD3D11GetDevice(&d, a); }", "graphics"),
        ("void f() { optixLaunch(p, s, a, n, &t, 1, 1, 1); }", "OptiX"),
        ("OptixDeviceContext context;", "OptiX"),
        ("cudaExternalMemory_t memory;", "external memory"),
        ("cudaExternalSemaphore_t semaphore;", "external memory"),
        ("void f() { cudaImportExternalMemory(&m, &d); }", "external memory"),
        ("void f() { cudaExternalMemoryGetMappedBuffer(&p, m, &d); }", "external memory"),
        ("void f() { cudaWaitExternalSemaphoresAsync(&s, &p, 1, 0); }", "external memory"),
        ("void f() { nvrtcCompileProgram(p, 0, 0); }", "NVRTC"),
        ("void f() { nvmlInit_v2(); }", "NVML"),
        ("void f() { nvjpegDecode(h, s, d, n, f, &o, 0); }", "nvJPEG"),
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
        "#include <cutlass/gemm.h>\n#include <npp.h>\n#include <cudnn.h>\n#include <mma.h>",
        "#include <cuda_gl_interop.h>\n#include <nvrtc.h>\n#include <cuda/barrier>",
        "__half x; half2 y; __nv_bfloat16 z;",
        "void f() { thrust::sort(thrust::cuda::par.on(s), a, b); cub::DeviceScan::Sum(); }",
        "namespace cuda { int x; }",
        "curandState s; cublasHandle_t h; cusparseHandle_t p;",
        KERNEL.format("auto g = cg::this_grid(); x[g.thread_rank()] = 1; b.sync(); w.sync();"),
        "void f() { cudaDeviceCanAccessPeer(&can, 0, 1); cudaLaunchHostFunc(s, f, 0); }",
        "void f() { int optixity = 1, nvmls = optixity; f(nvmls); }",
        "texture<float, 2> image; cudaTextureObject_t t; cudaArray *a;",
        "void f() { int texture = 1, half = texture / 2; cudaMalloc(&half, 4); }",
        "int cuMemory(int x) { return cuMemory(x); }",
        "// thrust::sort and asm are only talked about",
        'const char *s = "cudaGraph_t";',
    ],
)
def test_what_only_looks_like_it_is_not_refused(text: str) -> None:
    assert unsupported(CudaSource("a.cu", text.encode())) == []


def test_headers_without_kernels_are_looked_at_too() -> None:
    files = {"a.cu": b'#include "b.h"\n', "b.h": b"nvcuda::wmma::fragment f;\n"}
    with pytest.raises(BuildError) as caught:
        refuse_unsupported(read_sources(files))
    assert caught.value.where == "b.h:1"


def test_texts_that_only_talk_about_it_are_no_sources() -> None:
    files = {
        "a.cu": b"int x;",
        "README.md": b"__global__ and nvcuda::wmma",
        "p.py": b"# cudaGraph_t",
    }
    assert list(read_sources(files)) == ["a.cu"]


def test_what_a_condition_leaves_out_is_not_refused() -> None:
    code = b"#ifdef USE_DNN\ncudnnHandle_t h;\n#endif\n"
    assert unsupported(CudaSource("a.cu", code)) == []


def test_all_places_are_in_one_error() -> None:
    sources = read_sources({"a.cu": b"cudaGraph_t g;\n", "b.cuh": b"\n__nv_fp4_e2m1 h;\n"})
    with pytest.raises(BuildError) as caught:
        refuse_unsupported(sources)
    assert caught.value.where == "a.cu:1"
    assert caught.value.details["not supported"].splitlines() == [
        "a.cu:1: not supported on a CPU node: CUDA graphs: cudaGraph_t g;",
        (
            "b.cuh:2: not supported on a CPU node: floats of fewer than 8 bits, and E8M0:"
            " __nv_fp4_e2m1 h;"
        ),
    ]


@pytest.mark.parametrize(
    ("text", "said", "line"),
    [
        ("__global__ void k(int *x) {\nif (x[0]) {\n}\nvoid go() { k<<<1, 2>>>(0); }\n", "k", 4),
        ("__device__ int f() {\nfor (;;) { return 1;\n}\n__global__ void k() { f(); }\n", "f", 4),
    ],
)
def test_a_missing_brace_is_told_as_that(text: str, said: str, line: int) -> None:
    with pytest.raises(BuildError, match=f"{said} has no end: \\w+ begins inside it") as caught:
        refuse_unsupported(read_sources({"a.cu": text.encode()}))
    assert caught.value.where == f"a.cu:{line}"


def test_functions_in_classes_and_braces_in_macros_are_none_that_are_missing() -> None:
    text = (
        b"#define BEGIN {\n#define END }\n" + b"void f() { struct S { int g() { return 1; } }; }\n"
    )
    refuse_unsupported(read_sources({"a.cu": text}))
