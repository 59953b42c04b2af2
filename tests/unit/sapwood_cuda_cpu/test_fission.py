from __future__ import annotations

import pytest

from sapwood_cuda_cpu.parse import read_sources
from sapwood_cuda_cpu.patch import KernelMode, Mode, patch_sources


def kernel(body: str, before: str = "") -> tuple[KernelMode, str]:
    code = f"{before}\n__global__ void k(float *x, int n) {{\n{body}\n}}\n"
    patched = patch_sources(read_sources({"a.cu": code.encode()}))["a.cu"]
    text = patched.text.decode()
    assert text.count("\n") == code.count("\n") + 1  # the #line in front
    return patched.kernels[-1], text


@pytest.mark.parametrize(
    "body",
    [
        "int i = threadIdx.x; if (i < n) x[i] = 1;",
        "x[threadIdx.x] = 1;\n__syncthreads();\nx[threadIdx.x + 1] = 2;",
        "for (int d = 1; d < n; d *= 2) { x[threadIdx.x] += d; __syncthreads(); }",
        "int s = n; while (s > 0) { __syncthreads(); s /= 2; }",
        "if (blockIdx.x == 0) { __syncthreads(); }",
        "for (int d = n; ; d /= 2) { if (d == 0) break; __syncthreads(); }",
        "float a, b; a = 0.2f; b = 1; if (threadIdx.x < n && n > 0) x[threadIdx.x] = a * x[0] + b;",
        "auto v = x[threadIdx.x]; __syncthreads(); x[0] = v;",
        "int v[2] = {n, 1}; __syncthreads(); x[0] = v[n & 1];",
    ],
)
@pytest.mark.slow
def test_kernels_that_are_cut(body: str) -> None:
    mode, text = kernel(body)
    assert (mode.mode, mode.reason) == (Mode.BLOCK, "")
    assert "run_fibers" not in text


MEET = "__device__ int meet() { if (threadIdx.x) return 1; __syncthreads(); return 2; }"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("if (threadIdx.x < 3) { __syncthreads(); }", "a barrier where not all threads may come"),
        ("for (int i = threadIdx.x; i < n; i++) __syncthreads();", "not all threads may come"),
        ("x[0] = __shfl_sync(~0u, x[0], 0);", "__shfl_sync brings threads together"),
        ("while (n) { if (x[threadIdx.x]) break; __syncthreads(); }", "some threads leave"),
        ("again:\n__syncthreads(); if (n) goto again;", "goto"),
        ("auto &v = x[threadIdx.x]; __syncthreads(); x[0] = v;", "v lives across a barrier"),
        ("char a[5000]; a[n] = 1; __syncthreads(); x[0] = a[n];", "a is too large to be kept"),
        ("if (n) n = meet();", "meet waits for other threads (__syncthreads)"),
    ],
)
@pytest.mark.slow
def test_kernels_that_need_a_stack_per_thread(body: str, reason: str) -> None:
    mode, text = kernel(body, MEET)
    assert mode.mode is Mode.FIBER
    assert reason in mode.reason
    assert "run_fibers" in text


def test_vectors_are_not_asked_for_with_atomics_or_own_arrays() -> None:
    assert "SAPWOOD_VECTORS" in kernel("x[threadIdx.x] = 1;")[1]
    assert "SAPWOOD_VECTORS" not in kernel("atomicAdd(&x[threadIdx.x % 2], 1);")[1]
    assert "SAPWOOD_VECTORS" not in kernel("float a[2]; a[0] = 1; x[threadIdx.x] = a[0];")[1]
    hidden = "__device__ void add(float *x) { atomicAdd(x, 1.0f); }"
    assert "SAPWOOD_VECTORS" not in kernel("add(x);", hidden)[1]
    macro = "#define ADD(p) atomicAdd(p, 1.0f)"
    assert "SAPWOOD_VECTORS" not in kernel("ADD(x);", macro)[1]


def test_values_live_in_arrays_only_where_they_must() -> None:
    _, text = kernel("int i = threadIdx.x; float v = x[i];\n__syncthreads();\nx[i] = v;")
    assert "sapwood_v_v" in text
    assert "sapwood_v_i" not in text


def test_fiber_mode_can_be_asked_for() -> None:
    sources = read_sources({"a.cu": b"__global__ void k(int *x) { x[0] = 1; }"})
    (mode,) = patch_sources(sources, fiber_only="asked for")["a.cu"].kernels
    assert mode.mode is Mode.FIBER


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        ("float a; float *p = &a; __syncthreads(); x[0] = *p;", "a"),
        ("float a[3]; float *p = a + 1; __syncthreads(); x[0] = *p;", "a"),
        ("float a[3][4]; float *p = a[1]; __syncthreads(); x[0] = *p;", "a"),
        ("float a; float &b = a; float *p = &b; __syncthreads(); x[0] = *p;", "a"),
        ("float a; float *p = pick(a); __syncthreads(); x[0] = *p;", "a"),
    ],
)
def test_what_a_pointer_across_a_barrier_may_point_to_is_kept(body: str, kept: str) -> None:
    mode, text = kernel(body, "__device__ float *pick(float &from) { return &from; }")
    assert mode.mode is Mode.BLOCK
    assert f"sapwood_v_{kept}[" in text


def test_an_address_that_nobody_keeps_costs_nothing() -> None:
    _, text = kernel(
        "float s, c; sincosf(x[0], &s, &c); float v = s + c; __syncthreads(); x[1] = v;"
    )
    assert "sapwood_v_v[" in text
    assert "sapwood_v_s[" not in text


@pytest.mark.parametrize(("way", "mode"), [("", Mode.BLOCK), ("[] {}();", Mode.FIBER)])
def test_a_parameter_by_reference_is_the_same_for_all_threads(way: str, mode: Mode) -> None:
    code = f"""struct S {{ int n; }};
__global__ void k(S &s, const int &m) {{ atomicAdd(&s.n, m); {way} }}
void host(S *s) {{ k<<<1, 2>>>(*s, 3); }}
"""
    made = patch_sources(read_sources({"a.cu": code.encode()}))["a.cu"]
    text = made.text.decode()
    assert made.kernels[0].mode is mode
    assert "sapwood_v_s" not in text
    assert ("run_fibers([=, &s]()" in text) is (mode is Mode.FIBER)
    assert "::sapwood_cuda::ByReference{*s}, 3);" in text


def test_a_block_ends_when_all_of_its_threads_have_returned() -> None:
    end = "if (sapwood_dead && ::sapwood_cuda::all_are(sapwood_gone)) return;"
    _, text = kernel("while (1) { if (x[0] > n) return; __syncthreads(); x[threadIdx.x] += 1; }")
    assert text.count(end) == 1
    _, text = kernel(
        "if (!x) return; __syncthreads(); int m = x[0]; "
        "for (int i = 0; i < m; i++) { x[threadIdx.x] += i; __syncthreads(); }"
    )
    assert text.index(end) < text.index("int m = x[0]")


def test_a_time_that_lives_across_a_barrier_is_of_the_clock_of_the_device() -> None:
    mode, text = kernel("clock_t t = clock();\n__syncthreads();\nx[threadIdx.x] = clock() - t;")
    assert mode.mode is Mode.BLOCK
    assert "t = ::sapwood_cuda::device_clock();" in text
    assert "= ::sapwood_cuda::device_clock() - t;" in text


def test_a_declaration_right_behind_the_brace_comes_behind_the_view_of_the_block() -> None:
    code = b"__global__ void k(int *o) {int i = threadIdx.x; o[i] = 1;}\n"
    patched = patch_sources(read_sources({"a.cu": code}))["a.cu"]
    text = patched.text.decode()
    assert patched.kernels[-1].mode is Mode.BLOCK
    assert text.index("BlockView sapwood_b") < text.index("sapwood_b.sz")
