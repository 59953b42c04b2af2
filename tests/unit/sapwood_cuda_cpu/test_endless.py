from __future__ import annotations

import pytest

from sapwood_cuda_cpu.parse import read_sources
from sapwood_cuda_cpu.patch import patch_sources

KEPT = '__asm__ volatile("");'


def patched(body: str) -> str:
    code = f"__global__ void k(int *x) {{\n{body}\n}}\n".encode()
    found = patch_sources(read_sources({"a.cu": code}))["a.cu"].text.decode()
    assert found.count("\n") == code.count(b"\n") + 1  # the line directive
    return found


@pytest.mark.parametrize(
    ("loop", "becomes"),
    [
        ("while (1) {}", f"while (1) {{ {KEPT}}}"),
        ("while (true) x[0]++;", f"while (true) {{ {KEPT} x[0]++;}}"),
        ("for (;;);", f"for (;;){{ {KEPT} ;}}"),
        ("do { x[0]++; } while (1);", f"do {{ {KEPT} x[0]++; }} while (1);"),
    ],
)
def test_a_loop_that_never_ends_is_kept(loop: str, becomes: str) -> None:
    assert becomes in patched(loop)


@pytest.mark.parametrize(
    "loop",
    [
        "while (1) { if (x[0]) break; }",
        "for (;;) { x[0]++; __syncthreads(); }",
        "for (int i = 0; i < 3; i++) {}",
        "while (0) {}",
        "while (x[0]) {}",
        "for (;;) { if (x[0]) return; }",
    ],
)
@pytest.mark.slow
def test_other_loops_are_as_they_were(loop: str) -> None:
    assert KEPT not in patched(loop)


def test_the_host_s_loops_are_kept_as_well() -> None:
    text = patch_sources(read_sources({"a.cu": b"void f() { for (;;) ; }"}))["a.cu"].text
    assert KEPT in text.decode()
