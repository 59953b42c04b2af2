"""Guards are decided for a block by bounds of their values; others are evaluated by thread."""

from __future__ import annotations

import pytest

from sapwood_cuda_cpu.parse import read_sources
from sapwood_cuda_cpu.patch import Mode, patch_sources


def cut(body: str) -> str:
    code = f"__global__ void k(float *x, int n, int m) {{\n{body}\n}}\n"
    patched = patch_sources(read_sources({"a.cu": code.encode()}))["a.cu"]
    assert patched.kernels[0].mode is Mode.BLOCK
    return patched.text.decode()


INDEX = "blockIdx.x * blockDim.x + threadIdx.x"


@pytest.mark.parametrize(
    "condition",
    ["i < n && i >= 0", "i * 2 + m > n", "n - i > 0", "-i < n", "i < n / 2", "i < n / blockDim.x"],
)
@pytest.mark.slow
def test_sums_and_products_are_bounded(condition: str) -> None:
    text = cut(f"int i = {INDEX}; if ({condition}) {{ x[i] = 1; }} else x[i] = 2;")
    assert "const bool sapwood_g1" in text
    assert "(sapwood_g1 || (" in text
    assert "const auto sapwood_x = ::sapwood_cuda::span_of(sapwood_b.sx);" in text
    assert "auto const i = ::sapwood_cuda::as<int>(" in text


@pytest.mark.parametrize(
    "condition",
    [
        "!i < n",  # no sum or product
        "~i < n",
        "i / 2 < n",
        "(i, n) < m",
        "i < n / m",  # m may be zero where no thread comes
        "i < n % (m - 1)",
        "x[i] < n",
    ],
)
@pytest.mark.slow
def test_what_is_no_sum_or_product_is_asked_thread_by_thread(condition: str) -> None:
    text = cut(f"int i = {INDEX}; if ({condition}) {{ x[i] = 1; }} else x[i] = 2;")
    assert "sapwood_g1" not in text


def test_a_division_by_what_may_be_zero_is_not_done_before_threads_come_to_it() -> None:
    text = cut(f"int i = {INDEX}; if (m == 0) return; int k = n / m; if (i < k) x[i] = 1;")
    assert "always" not in text
    assert "first_run" not in text


def test_both_sides_of_a_choice_keep_their_order() -> None:
    text = cut(
        f"int i = {INDEX}; x[i] = 0; if (i < 0 || i >= n) return; x[i] = n > 0 && i < m ? 1 : 2;"
    )
    assert (
        "!(::sapwood_cuda::sometimes((i) < (0)) || ::sapwood_cuda::sometimes((i) >= (n)))" in text
    )
    assert "(::sapwood_cuda::always((n) > (0)) && ::sapwood_cuda::always((i) < (m)))" in text


def test_rounds_are_run_together_only_where_that_is_proved() -> None:
    text = cut(f"for (int i = {INDEX}; i < n; i += blockDim.x * gridDim.x) x[i] = 1;")
    assert "const bool sapwood_p = " in text
    assert "::sapwood_cuda::first_turn(sapwood_b, sapwood_p)" in text


def test_a_sum_with_a_large_number_stays_unsigned() -> None:
    assert "signed_part(" in cut("int i = 16 * blockIdx.x + threadIdx.x; x[i] = 1;")
    assert "signed_part(" not in cut("int i = 2147483640u + threadIdx.x; x[i] = 1;")
