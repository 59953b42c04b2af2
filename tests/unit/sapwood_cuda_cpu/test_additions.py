"""Which atomic operations of kernels are made less of."""

from __future__ import annotations

import pytest

from sapwood_cuda_cpu.parse import read_sources
from sapwood_cuda_cpu.patch import patch_sources


def patched(body: str, parameters: str = "int *x, const int *y, int n") -> str:
    code = f"__global__ void k({parameters}) {{\n{body}\n}}\n"
    return patch_sources(read_sources({"a.cu": code.encode()}))["a.cu"].text.decode()


@pytest.mark.parametrize(
    "body",
    [
        "atomicAdd(&x[y[threadIdx.x]], 1);",
        "atomicAdd(x + threadIdx.x % n, 1); atomicAdd(&x[n], 2);",
        "if (n > 3) atomicAdd(&x[0], y[0]);",
        "for (int i = threadIdx.x; i < n; i += blockDim.x) atomicAdd(&(x[y[i]]), 1);",
    ],
)
@pytest.mark.slow
def test_arrays_that_are_only_added_to_wait_for_the_end(body: str) -> None:
    text = patched(body)
    assert "const auto sapwood_l_x = ::sapwood_cuda::later(x, y);" in text
    assert "atomicAdd" not in text


@pytest.mark.parametrize(
    "body",
    [
        "int old = atomicAdd(&x[0], 1);",
        "atomicAdd(&x[0], 1); if (x[0] > 3) x[1] = 2;",
        "atomicAdd(&x[0], x[1]);",
        "atomicAdd(&x[0], 1); use(x);",
        "x += n; atomicAdd(&x[0], 1);",
        "atomicAdd(&x[0], 1); atomicMax(&x[1], n);",
        "atomicAdd(&x[0], 1); __threadfence();",
        "int *p = x; atomicAdd(p, 1); atomicAdd(&x[1], 1);",
        "while (atomicAdd(&x[0], 1) < n) ;",
    ],
)
@pytest.mark.slow
def test_arrays_that_are_used_otherwise_do_not(body: str) -> None:
    text = patched(body)
    assert "sapwood_l_x" not in text
    assert "atomicAdd(" in text


@pytest.mark.slow
def test_what_others_may_change_at_once_does_not_wait() -> None:
    assert "sapwood_l_x" not in patched("atomicAdd(&x[0], 1);", "volatile int *x, int n")


def test_shared_memory_needs_no_atomic_operations() -> None:
    text = patched(
        "__shared__ int s[8]; extern __shared__ int d[];\n"
        "atomicAdd(&s[0], 1); atomicMax(d + 1, n); int o = atomicSub(&s[1], 1); atomicCAS(s, 1, o);"
    )
    assert "::sapwood_cuda::own::atomicAdd(&s[0]" in text
    assert "::sapwood_cuda::own::atomicMax(d + 1" in text
    assert "::sapwood_cuda::own::atomicSub(&s[1]" in text
    assert " atomicCAS(s" in text
