from __future__ import annotations

import pytest

from sapwood_cuda_cpu.by_address import edit_calls
from sapwood_cuda_cpu.edits import Edits
from sapwood_cuda_cpu.parse import CudaSource


@pytest.mark.row("A-GPU-3")
@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("(void *)k, g, b, a, 0, 0", 'k, g, b, a, 0, 0, "k"'),
        ("(const void *)&k, g, b, a, 0, s", 'k, g, b, a, 0, s, "k"'),
        ("k<float>, g, b, a", 'k<float>, g, b, a, 0, nullptr, "k<float>"'),
        ("reinterpret_cast<void *>(k), g, b, a, 64", 'k, g, b, a, 64, nullptr, "k"'),
        ("(void *)(k), dim3(1, 2), dim3(3), a, 0, 0", 'k, dim3(1, 2), dim3(3), a, 0, 0, "k"'),
    ],
)
@pytest.mark.parametrize("function", ["cudaLaunchKernel", "cudaLaunchCooperativeKernel"])
def test_casts_go_and_the_name_comes(function: str, given: str, wanted: str) -> None:
    source = CudaSource("a.cu", f"void f() {{ check({function}({given})); }}".encode())
    edits = Edits(source.data)
    edit_calls(source, edits)
    assert edits.apply().decode() == f"void f() {{ check({function}({wanted})); }}"


def test_other_calls_stay() -> None:
    source = CudaSource("a.cu", b"void f() { cudaLaunchKernel(k); launch((void *)k, g, b, a); }")
    edits = Edits(source.data)
    edit_calls(source, edits)
    assert not edits
