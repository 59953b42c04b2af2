from __future__ import annotations

import pytest

from sapwood_cuda_cpu.rewriting import rewritten


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("__any(p)", "__any_sync(0xffffffffu, p)"),
        ("__shared__ static int s;", "__shared__        int s;"),
        ("__shared__ alignas(8) T s[4];", "__shared__ __attribute__((aligned(8))) T s[4];"),
        ("thread_block_tile<32> t = f();", "auto                  t = f();"),
        ("(unsigned(n) >> 4)", "(+unsigned(n) >> 4)"),
        ("T v{unsigned((char)a)};", "T v{+unsigned((char)a)};"),
        ("T v{{unsigned(a), 3}};", "T v{{+unsigned(a), 3}};"),
        ("if (unsigned(a) == 3) x;", "if (+unsigned(a) == 3) x;"),
        ("if (a) { unsigned (v) = 3; }", "if (a) { unsigned (v) = 3; }"),
        ("if (a) { { long (v); v = 3; } }", "if (a) { { long (v); v = 3; } }"),
        ("for (unsigned (i) = 0; i < 3; i++);", "for (unsigned (i) = 0; i < 3; i++);"),
        ("void f(unsigned (*g)(int), long (&h)[2]);", "void f(unsigned (*g)(int), long (&h)[2]);"),
        ("int a = b;", "int a = b;"),
        ('#include <cudnn.h>\n# include "nvml.h"\nint a;', "int a;"),
        ("#include <mma.h>\n#include <my_mma.h>", "#include <my_mma.h>"),
        ("#include <cuda_fp16.h>", "#include <cuda_fp16.h>"),
    ],
)
def test_words_that_compilers_take(text: str, wanted: str) -> None:
    assert rewritten(text.encode()).decode().split() == wanted.split()


def test_lines_stay() -> None:
    text = b"static\n__shared__ int s;\n__noinline__ void f();"
    assert rewritten(text).count(b"\n") == text.count(b"\n")


def test_operations_that_a_source_defines_for_itself_stay() -> None:
    code = b"#define __shfl(v, d) __shfl_sync(0xffffffff, v, d)\nx = __shfl(v, 3) + __any(w);"
    assert rewritten(code) == code.replace(b"__any(", b"__any_sync(0xffffffffu, ")
