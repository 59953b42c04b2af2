"""Code that relies on lanes in step is found, and nothing else is."""

from __future__ import annotations

import pytest

from sapwood_cuda_cpu.calls import IN_STEP, CallGraph
from sapwood_cuda_cpu.lint import find_traps
from sapwood_cuda_cpu.parse import CudaSource
from sapwood_cuda_cpu.patch import patch_sources
from sapwood_cuda_cpu.steps import find_computed, find_steps, with_steps

KERNEL = "__global__ void k(int *out, int n) {{ __shared__ {} s[256]; int tid = threadIdx.x; {} }}"


def found(body: str, kind: str = "int") -> list[str]:
    source = CudaSource("a.cu", KERNEL.format(kind, body).encode())
    return [step.text for step in find_steps(source, CallGraph([source]))]


@pytest.mark.row("A-GPU-3")
@pytest.mark.parametrize(
    "body",
    [
        "s[tid] += s[tid + 16]; s[tid] += s[tid + 8];",
        "s[tid] = n; out[tid] = s[tid ^ 1];",
        "s[tid] = n; int v = s[(tid + 1)];",
        "s[tid] += s[tid ^ 4];",
        "if (tid < 16) s[tid] += s[tid ^ 8];",
        "if (tid >= 2) s[tid] += s[tid - 2];",
        "int v = s[tid - 1]; s[tid] = v;",
        "for (int d = 16; d > 0; d /= 2) s[tid] += s[tid ^ d];",
        "const int lane = tid & 31; s[lane] = n; out[tid] = s[lane + 1];",
        "s[tid] = n; if (n) __syncthreads(); else n++; s[tid] = 1; out[0] = s[1 + tid];",
    ],
)
def test_found(body: str) -> None:
    assert found(body)


@pytest.mark.parametrize(
    "body",
    [
        "for (int d = 16; d > 0; d /= 2) { s[tid] += s[tid + d]; }",
        "s[tid] = n; out[tid] = s[tid + n];",
        "volatile int *v = s; v[tid] += v[tid + 2]; v[tid] += v[tid + 1];",
    ],
)
def test_found_in_volatile_memory(body: str) -> None:
    assert found(body, "volatile int")


@pytest.mark.parametrize(
    "body",
    [
        "if (tid < n) s[tid] += s[tid + n]; __syncthreads(); if (tid < 2) s[tid] += s[tid + 2];",
        "for (int d = 128; d > 0; d /= 2) { if (tid < d) s[tid] += s[tid + d]; __syncthreads(); }",
        "for (int d = 1; d < n; d++) { if (tid % 8 == 0) s[tid] += s[tid - d]; __syncthreads(); }",
        "int v = s[tid ^ 1]; __syncthreads(); s[tid] = v;",
        "int v = s[tid - 1]; __syncwarp(); s[tid] = v;",
        "s[tid] = 1; s[tid + 128] = 2; out[tid] = s[tid] + s[tid + 128];",
        "s[tid] = 1; if (tid == 0) out[0] = s[0];",
        "s[tid * 4] = 1; out[tid] = s[tid * 4 + 1];",
        "int v = s[tid + 1]; s[tid] = v;",
        "out[tid] = n; n = out[tid + 1];",
        "s[tid] = n; int v = __shfl_xor_sync(~0u, n, 1); out[0] = s[tid ^ 1];",
        "int t[4]; t[0] = 1; t[1] = t[0];",
    ],
)
def test_not_found(body: str) -> None:
    assert not found(body)


def test_a_device_function_with_a_volatile_pointer() -> None:
    text = "__device__ void f(volatile T *s, unsigned t) { s[t] += s[t + 2]; s[t] += s[t + 1]; }"
    source = CudaSource("a.cu", f"template <class T> {text}".encode())
    changed = with_steps(source, CallGraph([source])).data.decode()
    assert changed.count(IN_STEP) == 4
    assert "T sapwood_s" in changed
    assert not find_steps(CudaSource("b.cu", changed.encode()), CallGraph([source]))


def test_a_write_without_a_read_waits_before_and_after() -> None:
    body = "s[tid] = n; out[tid] = s[tid ^ 1]; ++s[tid];"
    source = CudaSource("a.cu", KERNEL.format("int", body).encode())
    text = with_steps(source, CallGraph([source])).data.decode()
    assert text.count(IN_STEP) == 4
    assert "auto" not in text


@pytest.mark.row("A-GPU-4")
def test_it_is_a_lint_and_the_kernel_is_cut_there() -> None:
    body = "if (tid < 32) { s[tid] += s[tid + 2]; s[tid] += s[tid + 1]; } out[tid] = s[tid];"
    source = CudaSource("a.cu", KERNEL.format("volatile int", body).encode())
    (trap,) = [each for each in find_traps(source) if "step" in each.what]
    assert str(trap).startswith("a.cu:1: may go wrong on a GPU: relies on the lanes of a warp")
    (kernel,) = patch_sources({"a.cu": source})["a.cu"].kernels
    assert kernel.mode.value == "block"


def test_nothing_changes_without_it() -> None:
    source = CudaSource("a.cu", KERNEL.format("int", "s[tid] = 1;").encode())
    assert with_steps(source, CallGraph([source])) is source


def computed(body: str, kind: str = "int") -> list[int]:
    source = CudaSource("a.cu", KERNEL.format(kind, body).encode())
    return [step.line for step in find_computed(source, CallGraph([source]))]


@pytest.mark.parametrize("kind", ["int", "volatile int"])
@pytest.mark.parametrize(
    "body",
    [
        "s[tid] = n; int other = out[tid]; n = s[other];",
        "s[tid] = n; n = s[31 - tid];",
        "s[tid] = n; n = s[tid / 2];",
        "s[tid] = n; if (tid < 16) n = s[2 * tid];",
        "s[tid + n] = n; n = s[out[tid] & 31];",
    ],
)
def test_an_index_that_was_computed_is_told(body: str, kind: str) -> None:
    assert computed(body, kind) == [1]
    assert not computed(body.replace("n; ", "n; __syncthreads(); ", 1), kind)
    assert not computed(body.replace("n; ", "n; __syncwarp(); ", 1), kind)


@pytest.mark.parametrize(
    "body",
    [
        "s[2 * tid] = n; n = s[2 * tid];",
        "s[2 * tid] = n; n = s[2 * tid + 1];",  # a separate part
        "for (int j = 0; j < n; j++) out[tid] += s[j];",
        "if (tid == 0) { s[tid] = n; n = s[out[tid]]; }",
        "n = s[out[tid]]; __syncthreads(); s[tid] = n;",
        "for (;;) { s[tid] = n; __syncthreads(); n = s[31 - tid]; __syncthreads(); }",
    ],
)
def test_what_is_no_such_index(body: str) -> None:
    assert not computed(body)


SWITCH = "switch ({}) {{ case 0: s[tid] = 1; {} case 1: out[tid] = s[31 - tid]; break; }}"


@pytest.mark.parametrize(
    "body",
    [
        SWITCH.format("n", "break;"),
        SWITCH.format("n", "return;"),
        SWITCH.format("n & 3", "{ n; break; }"),
        SWITCH.format("blockIdx.x", "break;"),
        f"for (;;) {{ {SWITCH.format('n', 'break;')} }}",
        "switch (n) { case 0: s[tid] = 1; __syncthreads(); out[tid] = s[31 - tid]; break; }",
        "switch (n) { case 0: s[tid] = 1; __syncthreads(); } out[tid] = s[31 - tid];",
        "switch (n) { case 0: s[tid] = 1; } switch (n) { case 1: case 2: out[tid] = s[31 - tid]; }",
        "if (n > 2) s[tid] = 1; else out[tid] = s[31 - tid];",
    ],
)
def test_cases_that_no_block_does_both_are_apart(body: str) -> None:
    assert not computed(body)
    assert not found(body)


@pytest.mark.parametrize(
    "body",
    [
        SWITCH.format("n", ""),  # continues in the next case
        SWITCH.format("tid & 1", "break;"),  # other threads take the other case
        SWITCH.format("out[0]", "break;"),
        f"for (;; n++) {{ {SWITCH.format('n', 'break;')} }}",
        "switch (n) { case 0: s[tid] = 1; } switch (n) { case ZERO: out[tid] = s[31 - tid]; }",
        "switch (n) { case 0: s[tid] = 1; } switch (n) { default: out[tid] = s[31 - tid]; }",
        "if (n) s[tid] = 1; switch (n) { case 1: out[tid] = s[31 - tid]; }",
        "switch (n) { case 0: s[tid] = 1; break; } out[tid] = s[31 - tid];",
    ],
)
def test_cases_that_threads_of_a_block_do_both_are_told(body: str) -> None:
    assert computed(body) == [1]


def test_memory_of_one_thread_in_a_device_function_is_none() -> None:
    text = "__device__ int f(int *a, int i) { a[i] = 1; return a[a[i]]; }"
    source = CudaSource("a.cu", text.encode())
    assert not find_computed(source, CallGraph([source]))


def test_values_that_come_from_each_other_are_followed_once() -> None:
    body = "unsigned a0 = n; "
    body += " ".join(
        f"unsigned a{i} = (a{i - 1} << 3) ^ (a{i - 1} >> 5) ^ a{i - 1};" for i in range(1, 60)
    )
    code = (
        f"__global__ void k(int *x, unsigned n) {{ __shared__ int s[64]; {body} s[a59 & 63] = 7; }}"
    )
    source = CudaSource("a.cu", code.encode())
    assert find_steps(source, CallGraph([source])) == []


def test_an_index_that_counts_by_several_terms_and_is_moved() -> None:
    code = (
        "__device__ int scan(int v, volatile int *s) {\n"
        "int i = 2 * threadIdx.x - (threadIdx.x & 31); s[i] = 0; i += 32; s[i] = v;\n"
        "s[i] += s[i - 1];\ns[i] += s[i - 2];\nreturn s[i]; }"
    )
    source = CudaSource("a.cu", code.encode())
    assert [each.line for each in find_steps(source, CallGraph([source]))] == [3, 4]
