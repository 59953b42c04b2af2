"""Which threads of a row do anything is computed from the condition that says it."""

from __future__ import annotations

import pytest

from sapwood_cuda_cpu.parse import read_sources
from sapwood_cuda_cpu.patch import Mode, patch_sources


def cut(body: str) -> str:
    code = f"__global__ void k(float *x, int n, int m, const bool *mask) {{\n{body}\n}}\n"
    patched = patch_sources(read_sources({"a.cu": code.encode()}))["a.cu"]
    assert patched.kernels[0].mode is Mode.BLOCK
    return patched.text.decode()


INDICES = (
    "int i = blockIdx.x * blockDim.x + threadIdx.x; int j = blockIdx.y * blockDim.y + threadIdx.y; "
)
KEEP = "::sapwood_cuda::keep<::sapwood_cuda::Is::"
ROW = "::sapwood_cuda::keep_row(sapwood_k, "


def kept(kind: str, sides: str) -> str:
    return f"{KEEP}{kind}>(sapwood_k, sapwood_b.sx, {sides})"


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("i < n", [kept("below", "i, n")]),
        ("n > i", [kept("below", "i, n")]),
        ("i <= n", [kept("at_most", "i, n")]),
        ("0 <= i - 1", [kept("at_least", "i - 1, 0")]),
        ("threadIdx.x == n", [kept("equal", "::sapwood_cuda::coordinate(sapwood_x), n")]),
        ("i > 0 && i < n - 1", [kept("above", "i, 0"), kept("below", "i, n - 1")]),
        ("(i > 0 && j < n) && i < m", [kept("above", "i, 0"), f"{ROW}((j) < (n)))"]),
        ("j != n && i < m", [f"{ROW}((j) != (n)))", kept("below", "i, m")]),
    ],
)
@pytest.mark.slow
def test_a_condition_at_the_end_of_a_part_says_how_far_its_loop_goes(
    condition: str, expected: list[str]
) -> None:
    text = cut(f"{INDICES}if ({condition}) x[j * n + i] = 1;")
    for each in expected:
        assert each in text
    assert "sapwood_x < sapwood_u.end" in text
    assert "true || (" in text
    assert "sapwood_g1" not in text


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("i >= n", [kept("below", "i, n")]),
        ("i < 1 || i >= n - 1", [kept("at_least", "i, 1"), kept("below", "i, n - 1")]),
        ("i != n", [kept("equal", "i, n")]),
        ("j >= n || n <= i", [f"{ROW}!((j) >= (n)))", kept("below", "i, n")]),
    ],
)
def test_threads_that_return_first_are_left_out(condition: str, expected: list[str]) -> None:
    text = cut(f"{INDICES}if ({condition}) return; x[j * n + i] = 1; x[i] += 2;")
    for each in expected:
        assert each in text
    assert "false && (" in text


def test_what_stands_behind_what_is_not_known_is_asked_thread_by_thread() -> None:
    text = cut(f"{INDICES}if (i > 0 && x[i] > 1 && i < n) x[i] = 1;")
    assert kept("above", "i, 0") in text
    assert KEEP + "below" not in text
    assert "x[i] > 1 && i < n" in text


@pytest.mark.parametrize(
    "body",
    [
        "if (2 * i < n) x[i] = 1;",  # every second thread
        "if (n - i < m) x[i] = 1;",  # counts the other way
        "if (i < j + i) x[i] = 1;",
        "if (i != n) x[i] = 1;",  # two runs
        "int k = x[i]; if (i < k) x[i] = 1;",
        "if (i < n) x[i] = 1; x[i] = 2;",
        "if (i >= n) return; x[i] = 1; __syncthreads(); x[i] = x[i + 1];",  # they are gone later
        "if (n < m) x[i] = 1;",  # decided by the compiler
    ],
)
@pytest.mark.slow
def test_other_conditions_are_no_limits(body: str) -> None:
    text = cut(INDICES + body)
    assert "first_run" not in text


def test_a_part_with_other_guards_is_compiled_for_threads_for_which_they_are_proved() -> None:
    text = cut(f"{INDICES}if (i >= n) return; if (i > 0 && j < m) x[i] = 1; else x[i] = 2;")
    assert "const bool sapwood_g1 = decltype(sapwood_s)::value || sapwood_a1;" in text
    assert kept("above", "i, 0") in text
    assert f"{ROW}((j) < (m)))" in text
    assert "::sapwood_cuda::do_part(sapwood_u, sapwood_i, sapwood_p);" in text


def test_a_kernel_whose_assertions_name_it_is_compiled_once() -> None:
    text = cut(f"{INDICES}assert(n); if (i > 0 && j < m) x[i] = 1; else x[i] = 2;")
    assert "const bool sapwood_g1 = sapwood_a1;" in text
    assert "do_part" not in text


@pytest.mark.parametrize(
    ("statement", "asked"),
    [
        ("if (i < n && mask[i]) x[i] = 1;", "(true || (i < n)) && mask[i]"),
        ("if (mask[i] && i < n) x[i] = 1;", "mask[i] && i < n"),
        ("if (i >= n || mask[i]) return; x[i] = 1;", "(false && (i >= n)) || mask[i]"),
    ],
)
def test_what_is_not_decided_is_still_asked(statement: str, asked: str) -> None:
    text = cut(f"{INDICES}{statement}")
    assert asked in text
