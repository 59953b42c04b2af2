"""What tells compilers how to vectorise."""

from __future__ import annotations

import pytest

from sapwood_cuda_cpu.parse import read_sources
from sapwood_cuda_cpu.patch import patch_sources

LONG = "for (int j = 0; j < DIMS; j++) s += x[j];"


def patched(body: str, before: str = "") -> str:
    code = (
        f"#define DIMS (WIDE)\n#define WIDE 32\n{before}\n"
        f"__global__ void k(float *x, int *c, int n) {{ float s = 0;\n{body}\natomicAdd(c, 1); }}\n"
    )
    return patch_sources(read_sources({"a.cu": code.encode()}))["a.cu"].text.decode()


@pytest.mark.parametrize("bound", ["DIMS", "16", "WIDE"])
def test_long_sums_stay_loops_where_threads_are_not_vectorised(bound: str) -> None:
    assert "SAPWOOD_ROLLED for" in patched(LONG.replace("DIMS", bound))


@pytest.mark.parametrize(
    "body",
    [
        "for (int j = 0; j < 3; j++) s += x[j];",
        "for (int j = 0; j < n; j++) s += x[j];",
        "#pragma unroll\nfor (int j = 0; j < DIMS; j++) s += x[j];",
        "for (int j = 0; j < DIMS; j++) { float t = 0; t += x[j]; x[j] = t; }",
        "for (int j = 0; j < DIMS; j++) for (int i = 0; i < n; i++) s += x[j];",
        "for (int j = 0; j < DIMS; j++) x[j] += 1;",
    ],
)
@pytest.mark.slow
def test_other_loops_are_the_compilers(body: str) -> None:
    assert "SAPWOOD_ROLLED" not in patched(body)


def test_loops_of_threads_that_are_vectorised_are_left_alone() -> None:
    code = f"__global__ void k(float *x) {{ float s = 0; {LONG} x[threadIdx.x] = s; }}"
    code = code.replace("DIMS", "32")
    text = patch_sources(read_sources({"a.cu": code.encode()}))["a.cu"].text.decode()
    assert "SAPWOOD_VECTORS" in text
    assert "SAPWOOD_ROLLED" not in text


def test_a_guard_of_a_conditional_expression_makes_two_loops() -> None:
    text = patched(
        "int i = threadIdx.x; x[i] = i < n ? x[i + 1] : 0.0f; __syncthreads(); x[i] = 1;"
    )
    assert "sapwood_g1 ? (x[i + 1]) : (i < n) ? x[i + 1] : 0.0f" in text


def test_a_kept_number_is_changed_in_a_copy() -> None:
    text = patched(
        "float v = x[n]; __syncthreads(); if (threadIdx.x > 3) v += 1; __syncthreads(); x[n] = v;"
    )
    assert "auto v = sapwood_v_v[sapwood_t];" in text
    assert "sapwood_v_v[sapwood_t] = v; }" in text


def test_a_kept_number_whose_address_is_taken_is_changed_where_it_is() -> None:
    text = patched(
        "float v = x[n]; __syncthreads(); if (threadIdx.x > 3) f(&v); v += 1; "
        "__syncthreads(); x[n] = v;"
    )
    assert "auto v =" not in text
