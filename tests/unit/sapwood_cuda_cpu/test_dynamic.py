from __future__ import annotations

from sapwood_cuda_cpu.parse import read_sources
from sapwood_cuda_cpu.patch import patch_sources

POINTER = "char *s; s = ::sapwood_cuda::dynamic_shared<char>();"


def patched(code: str) -> str:
    return patch_sources(read_sources({"a.cu": code.encode()}))["a.cu"].text.decode()


def test_every_function_that_uses_outer_dynamic_memory_has_a_pointer_to_it() -> None:
    text = patched("""extern __shared__ char s[];
__device__ int f(int i) { return reinterpret_cast<int *>(s)[i]; }
__global__ void cut(int *x) { x[0] = f(((int *)s)[0]); }
__global__ void stacks(int *x) { [] {}(); x[0] = ((int *)s)[1]; }
""")
    assert text.count(POINTER) == 3
    assert "[=]() mutable -> void { " + POINTER in text


def test_of_a_namespace_too_but_not_where_the_name_is_another_thing() -> None:
    text = patched("""namespace n { extern __shared__ __align__(16) char s[];
__device__ int f(char *s) { return s[0]; }
__device__ int g() { int s = 1; return s; }
__device__ int h() { return *(int *)s; } }
""")
    assert text.count(POINTER) == 1
