"""Which inline PTX becomes C++, and which is left to be refused."""

from __future__ import annotations

import pytest

from sapwood_cuda_cpu.ptx import without_ptx

RANK = "(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z))"


@pytest.mark.parametrize(
    ("ptx", "made"),
    [
        ('asm("mov.u32 %0, %%laneid;" : "=r"(x[i]))', f"((x[i]) = ({RANK} & 31u))"),
        ('asm volatile ("mov.u32 %0, %%tid.x;\\n" : "=r"(x))', "((x) = threadIdx.x)"),
        ('__asm__("mov.u64 %0, %%globaltimer;" : "=l"(t))', "((t) = clock64())"),
        ('asm volatile("membar.gl;" ::: "memory")', "__threadfence()"),
        ('asm volatile("" ::: "memory")', "__threadfence_block()"),
        ('asm("bar.sync 0;")', "__syncthreads()"),
        (
            'asm("bfe.u32 %0, %1, %2, %3;" : "=r"(y) : "r"((unsigned)x), "r"(b), "r"(n))',
            "((y) = ::sapwood_cuda::bits_of(((unsigned)x), (b), (n)))",
        ),
        (
            'asm("ld.global.nc.f32 %0, [%1];" : "=f"(v) : "l"(p + 1))',
            "((v) = *(const volatile float *)(p + 1))",
        ),
        (
            (
                'asm("ld.global.L1::no_allocate.v2.u32 { %0, %1 }, [%2];" '
                ': "=r"(a), "=r"(b) : "l"(p++))'
            ),
            "::sapwood_cuda::read_registers((const unsigned *)(p++), (a), (b))",
        ),
        (
            (
                'asm("st.global.v4.f32 [%0], {%1,%2,%3,%4};" '
                ':: "l"(p), "f"(a), "f"(b), "f"(c), "f"(d))'
            ),
            "::sapwood_cuda::write_registers((float *)(p), (a), (b), (c), (d))",
        ),
        (
            'asm("ld.global.b32 %0, [%1];" : "=f"(v) : "l"(p))',
            "::sapwood_cuda::read_registers((const unsigned *)(p), (v))",
        ),
        ('asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x))', "((y) = exp2f((x)))"),
        (
            'asm("st.release.sys.global.u8 [%1], %0;" :: "r"(v) "l"(f(a, ")")) : "memory")',
            '::sapwood_cuda::atomic_write((unsigned char *)(f(a, ")")), (unsigned char)(v))',
        ),
    ],
)
def test_one_instruction_becomes_an_expression(ptx: str, made: str) -> None:
    assert without_ptx(f"a; {ptx}; b".encode()).decode() == f"a; {made}; b"


@pytest.mark.parametrize(
    "ptx",
    [
        'asm("mov.u32 %0, %1;" : "=r"(y) : "r"(x));',
        'asm("mov.u32 %0, %%nsmid;" : "=r"(y));',
        'asm("add.cc.u32 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));',
        'asm("bfe.u32 %0, %1, %1, %2;" : "=r"(y) : "r"(b), "r"(n));',
        'asm("{ .reg .pred p; }");',
        'asm volatile("bar.sync 1, 64;");',
        'asm volatile("fence.proxy.async;");',
        'asm("ld.shared.u32 %0, [%1];" : "=r"(y) : "r"(address));',
        'asm("rdtsc" : "=a"(low), "=d"(high));',
        '#define WARP(x) asm("mov.u32 %0, %%warpid;" : "=r"(x))\n',
        "asm(",
        "int asmodeus(int x);",
    ],
)
def test_the_rest_is_left(ptx: str) -> None:
    assert without_ptx(ptx.encode()) == ptx.encode()


def test_lines_stay_in_macros_and_outside() -> None:
    code = b'asm volatile(\n  "mov.u32 %0, %%ctaid.y;"\n  : "=r"(y));'
    assert without_ptx(code) == b"((y) = blockIdx.y)\n\n;"
    macro = b'#define Y(to) \\\n  asm("mov.u32 %0, %%ctaid.y;" \\\n    : "=r"(to))\n'
    assert without_ptx(macro) == b"#define Y(to) \\\n  ((to) = blockIdx.y)\\\n\n"
