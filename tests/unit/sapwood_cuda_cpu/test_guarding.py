"""Which declared arrays get guards, and which are left as they are."""

from __future__ import annotations

import pytest

from sapwood_cuda_cpu.parse import read_sources
from sapwood_cuda_cpu.patch import patch_sources


def patched(code: str, **more: str) -> str:
    files = {"a.cu": code.encode(), **{f"{name}.cu": text.encode() for name, text in more.items()}}
    text = patch_sources(read_sources(files))["a.cu"].text.decode()
    assert text.count("\n") == code.count("\n") + 1  # the #line in front
    return text


def guarded(code: str, **more: str) -> bool:
    return "::sapwood_cuda::Guarded<" in patched(code, **more)


@pytest.mark.parametrize(
    "declaration",
    [
        "__shared__ float s[64];",
        "__shared__ float s[8][9];",
        "__shared__ __align__(16) float s[64];",
        "__shared__ volatile int s[2 * 32];",
        "__shared__ float r[32], s[64];",
    ],
)
@pytest.mark.parametrize("cut", ["__syncthreads();", "if (threadIdx.x) __syncthreads();"])
@pytest.mark.slow
def test_shared_arrays(declaration: str, cut: str) -> None:
    body = f"{declaration}\n*(float *)s = 1; {cut} x[0] = *(float *)s;"
    code = f"__global__ void k(float *x) {{ {body} }}"
    text = patched(code)
    assert text.count("::sapwood_cuda::Guarded<") >= 1
    on_stack = "if" not in cut
    assert ("::sapwood_cuda::Watch<" in text) == on_stack
    assert ("::sapwood_cuda::watch_shared(" in text) != on_stack


def test_shared_arrays_of_device_functions_and_inner_scopes() -> None:
    assert guarded("__device__ float f(int i) { __shared__ float s[4]; return s[i]; }")
    text = patched(
        "__global__ void k(int *x) { { __shared__ int s[4]; s[0] = 1; __syncthreads(); "
        "x[0] = s[0]; } }"
    )
    assert "static thread_local ::sapwood_cuda::Guarded" in text


@pytest.mark.parametrize(
    "declaration",
    [
        "__shared__ float s;",
        "__shared__ __align__(128) float s[64];",
        "extern __shared__ float s[];",
    ],
)
def test_what_is_left_of_shared_memory(declaration: str) -> None:
    assert not guarded(f"__global__ void k(float *x) {{ {declaration}\n x[0] = 1; }}")


@pytest.mark.parametrize(
    "body",
    [
        "{} auto f = [=](int i) {{ return s[i]; }}; s[0] = 1; __syncthreads(); x[0] = f(0);",
        "if (x == nullptr) goto end; {} s[0] = 1; __syncthreads(); x[0] = s[1]; end: return;",
        "switch (x[0]) {{ case 1: {} s[0] = 1; __syncthreads(); x[0] = s[1]; default: break; }}",
        "{} struct F {{ int f() {{ return s[0]; }} }}; if (x) __syncthreads(); *x = F().f();",
    ],
)
@pytest.mark.slow
def test_no_reference_is_copied_into_lambdas_or_jumped_over(body: str) -> None:
    code = f"__global__ void k(int *x) {{ {body.format('__shared__ int s[4];')} }}"
    assert "auto &s =" not in patched(code)
    dynamic = patched(
        f"__global__ void k(int *x) {{ {body.format('extern __shared__ int s[];')} }}"
    )
    assert "int *s; s = ::sapwood_cuda::dynamic_shared<int>();" in dynamic


@pytest.mark.parametrize(
    "declaration",
    [
        "__device__ float t[10];",
        "__device__ int t[2][3];",
        "__constant__ float t[3] = {1,\n 2, 3};",
        "static __device__ int t[4];",
        "__device__ __managed__ int t[4];",
        "namespace a { __device__ int t[4]; }",
    ],
)
def test_device_arrays(declaration: str) -> None:
    assert "::sapwood_cuda::Known sapwood_k_t" in patched(declaration)


@pytest.mark.parametrize(
    "declaration",
    [
        "__device__ float t;",
        "__device__ const float t[2] = {1, 2};",
        "extern __device__ float t[10];",
        "__device__ int t[] = {1, 2};",
        '__device__ char t[4] = "abc";',
    ],
)
def test_what_is_left_of_device_memory(declaration: str) -> None:
    assert not guarded(declaration)


def test_an_array_that_another_source_uses_keeps_its_symbol() -> None:
    code = "__device__ float t[10];"
    assert guarded(code, b="__device__ float u[10];")
    assert not guarded(code, b="extern __device__ float t[10];")


@pytest.mark.parametrize(
    ("declaration", "wanted"),
    [
        ("__constant__ float c;", "static __constant__ float c;"),
        ("__constant__ short q[] = {1, 2};", "static __constant__ short q[] = {1, 2};"),
        ("__device__ int a, b = 3;", "static __device__ int a, b = 3;"),
        ("alignas(16) __device__ int a;", "alignas(16) static __device__ int a;"),
        ("namespace n { __device__ int a; }", "namespace n { static __device__ int a; }"),
        ("static __device__ int a;", "static __device__ int a;"),
        ("extern __constant__ float c;", "extern __constant__ float c;"),
        ("__device__ int f(int x);", "__device__ int f(int x);"),
        ("struct S { __device__ int f(); };", "struct S { __device__ int f(); };"),
    ],
)
def test_each_source_has_its_own_device_variables(declaration: str, wanted: str) -> None:
    assert patched(declaration).splitlines()[1] == wanted


def test_device_variables_that_another_source_names_are_shared() -> None:
    other = "extern __device__ int a;"
    assert patched("__device__ int a;", b=other).splitlines()[1] == "__device__ int a;"
