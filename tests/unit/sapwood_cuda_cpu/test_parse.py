from __future__ import annotations

import pytest

from sapwood.core.errors import BuildError
from sapwood_cuda_cpu.parse import CudaSource, read_sources
from sapwood_cuda_cpu.patch import patch_sources

CODE = b"""#include <cuda_runtime.h>
#include "own.cuh"
#define RUN(k, n) k<<<1, \\
    n>>>(n)
__constant__ float table[4];
__device__ int next(int x);
template <class T> __global__ void __launch_bounds__(64) first(const T *in, T out[], int n) {
    __shared__ T s[64];
    out[0] = in[n];
}
static __device__ __noinline__ int helper(float x) { return x; }
struct S { __device__ int get() const { return 1; } };
void host(cudaStream_t stream) {
    first<float><<<dim3(1, 2), 64, 0, stream>>>(a, b, 3);
    RUN(first<int>, 3);
}
"""


def test_functions_with_attributes_and_parameters() -> None:
    source = CudaSource("a.cu", CODE)
    assert [function.name for function in source.functions] == ["first", "helper", "get", "host"]
    (kernel,) = source.kernels
    assert (kernel.name, kernel.line) == ("first", 7)
    assert (kernel.parameters[0].name, kernel.parameters[0].type) == ("in", "const T *")
    assert [p.name for p in kernel.parameters] == ["in", "out", "n"]
    assert source.functions[1].attributes == {"__device__"}


def test_launches_are_found_in_macros_too() -> None:
    source = CudaSource("a.cu", CODE)
    assert [(launch.kernel, launch.line) for launch in source.launches] == [
        ("k", 3),
        ("first<float>", 14),
    ]


def test_variables_and_macros() -> None:
    source = CudaSource("a.cu", CODE)
    assert source.device_variables == {"table", "next"}
    assert source.declared == {"next"}
    assert len(source.shared) == 1
    assert source.macros["RUN"] == "k<<<1, n>>>(n)"


def test_words_that_cpp_compilers_do_not_take_are_blank_and_nothing_moves() -> None:
    source = CudaSource("a.cu", CODE)
    assert b"__noinline__" not in source.data
    assert len(source.data) == len(CODE)


def test_only_files_with_cuda_are_read() -> None:
    files = {"a.cu": b"", "plain.h": b"int x;", "device.h": b"__device__ int f();"}
    assert list(read_sources(files)) == ["a.cu", "device.h"]


def test_each_variable_of_a_kernel_gets_a_declaration_of_its_own_on_its_line() -> None:
    code = b"__global__ void k() {\n const float *a = x, // one\n  b[2], *c;\n}\nint p, q;\n"
    data = CudaSource("a.cu", code).data
    assert b"const float *a = x; const float" in data
    assert data.splitlines()[2] == b"b[2]; const float *c;"
    assert data.splitlines()[4] == b"int p, q;"


def test_a_byte_order_mark_is_left_out() -> None:
    source = CudaSource("a.cu", b"\xef\xbb\xbf__global__ void k() {}\n")
    assert source.data == b"__global__ void k() {}\n"


LOST = b"""__global__ void k(int *x) {
  if (x[0]) x[1] = 1; x[2]--; else { int v(int(x[0] & 63)); x[3] = v; }
  x[4] = 2;
}
"""
"""A kernel that the grammar ends two lines too early: it is not C++."""


def test_a_kernel_whose_end_is_unclear_is_refused() -> None:
    source = CudaSource("a.cu", LOST)
    assert [each.is_whole for each in source.kernels] == [False]
    with pytest.raises(BuildError, match="where it ends is unclear"):
        patch_sources({"a.cu": source})


def test_a_kernel_that_the_grammar_does_not_see_is_refused() -> None:
    source = CudaSource("a.cu", b"int a;\n__global__ void k(int *x) ANY(3) ! { x[0] = 1; }")
    assert source.unread_kernels == [2]
    with pytest.raises(BuildError, match="cannot be read"):
        patch_sources({"a.cu": source})


def test_ends_of_functions_are_those_of_their_braces() -> None:
    code = b"__global__ void k(char *x) { x[0] = '{'; /* } */ if (x[1]) { x[2] = 3; } }"
    source = CudaSource("a.cu", code)
    assert source.kernels[0].is_whole
    assert not source.unread_kernels
