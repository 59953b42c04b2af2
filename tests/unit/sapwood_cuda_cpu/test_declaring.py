from __future__ import annotations

import pytest

from sapwood.core.errors import BuildError
from sapwood_cuda_cpu.check import refuse_unsupported
from sapwood_cuda_cpu.parse import read_sources


def kernels(**files: str) -> list[str]:
    sources = read_sources({name.replace("_", "."): text.encode() for name, text in files.items()})
    refuse_unsupported(sources)
    return [kernel.name for source in sources.values() for kernel in source.kernels]


def test_macros_of_another_file_hide_a_kernel() -> None:
    head = '#define EXPORT extern "C"\n#define KERNEL(name) EXPORT __global__ void name\n'
    assert kernels(a_h=head, a_cu='#include "a.h"\nKERNEL(k)(int *x) { x[0] = 1; }') == ["k"]


def test_a_macro_writes_kernels() -> None:
    code = """#define DEFINE(name, op, ...) __global__ void name##_k(int *x, ##__VA_ARGS__) { \\
  x[threadIdx.x] = 3 op 4; \\
  use(#op); \\
}
DEFINE(add, +)
DEFINE(twice, *, int y, int z)
"""
    source = read_sources({"a.cu": code.encode()})["a.cu"]
    assert [(k.name, k.line) for k in source.kernels] == [("add_k", 5), ("twice_k", 6)]
    assert [each.name for each in source.kernels[1].parameters] == ["x", "y", "z"]
    assert b'x[threadIdx.x] = 3 + 4; use("+"); }' in source.data


def test_shared_memory_and_device_functions_behind_macros() -> None:
    code = b"""#define LOCAL __shared__
#define DEVICE __device__
DEVICE int f() { return 1; }
__global__ void k(int *x) { LOCAL int s[4]; x[0] = s[0] + f(); }
"""
    source = read_sources({"a.cu": code})["a.cu"]
    assert [sorted(each.attributes) for each in source.functions] == [
        ["__device__"],
        ["__global__"],
    ]
    assert len(source.shared) == 1


def test_a_header_keeps_what_may_be_nothing_for_the_host() -> None:
    text = b"#ifdef __CUDACC__\n#define HD __device__\n#endif\nHD int f() { return 1; }\n"
    assert b"\nHD int f()" in read_sources({"a.h": text})["a.h"].data


def test_a_launch_from_pieces() -> None:
    code = b"""#define RUN(name, ...) name##_kernel<<<1, 32>>>(__VA_ARGS__)
#define ON(k, n) k<<<n, 32>>>
void host(int *x) { RUN(add, x, 1); ON(all, 2)(x); }
"""
    launches = read_sources({"a.cu": code})["a.cu"].launches
    assert {"add_kernel", "all"} <= {each.kernel for each in launches if each.line == 3}


def test_the_last_definition_counts_and_one_that_is_unclear_is_refused() -> None:
    code = "#define K(n) __global__ void n##1()\nK(a) {}\n#undef K\n"
    code += "#define K(n) __global__ void n##2()\nK(b) {}\n"
    assert kernels(a_cu=code) == ["a1", "b2"]
    with pytest.raises(BuildError, match="K, a macro for declarations that is defined") as raised:
        kernels(
            a_h="#define K __global__\n",
            b_h="#define K static __global__\n",
            c_cu="\nK void k() {}",
        )
    assert raised.value.where == "c.cu:2"
