from __future__ import annotations

import pytest

from sapwood_cuda_cpu.conditions import Conditions
from sapwood_cuda_cpu.macros import expand_on_device, kernel_bodies

LOOP = b"#define LOOP(i, n) for (int i = threadIdx.x; i < (n); i += blockDim.x)\n"


def test_the_head_of_a_loop_is_expanded() -> None:
    code = LOOP + b"__global__ void k(int *x, int m) { LOOP(j, min(m, 3)) x[j] = 0; }\n"
    assert expand_on_device(code).endswith(
        b"{ for (int j = threadIdx.x; j < (min(m, 3)); j += blockDim.x) x[j] = 0; }\n"
    )


def test_macros_in_macros_and_only_in_kernels() -> None:
    code = (
        b"#define SYNC __syncthreads()\n#define STEP(x) SYNC; x += 1; \\\n  SYNC\n"
        b"void host() { SYNC; }\n__global__ void k(int y) { STEP(y); }\n"
    )
    expanded = expand_on_device(code)
    assert b"void host() { SYNC; }" in expanded
    assert b"{ __syncthreads(); y += 1; __syncthreads(); }" in expanded
    assert expanded.count(b"\n") == code.count(b"\n")


@pytest.mark.parametrize(
    "body", [b'printf("LOOP(i, n)");', b"// LOOP(i, n)\n", b"LOOP(i);", b"int LOOP;"]
)
def test_what_is_no_use_of_a_macro_stays(body: bytes) -> None:
    code = LOOP + b"__global__ void k() { " + body + b" }"
    assert expand_on_device(code) == code


def test_bodies_of_kernels() -> None:
    code = b"__global__ void a(int (*f)(int));\n__global__ void b(int x = f(1))"
    code += b' { "}"; if (x) {} } int y;'
    ((start, end),) = kernel_bodies(code)
    assert code[start:end] == b'{ "}"; if (x) {} }'


def test_macros_without_arguments_and_with_pieces() -> None:
    code = (
        b"#define SYNC() __syncthreads()\n#define STEP(a, ...) f(a, __VA_ARGS__); SYNC( )\n"
        b"__global__ void k(int y) { STEP(y, 1, g(2, 3)); }\n"
    )
    assert b"{ f(y, 1, g(2, 3)); __syncthreads(); }" in expand_on_device(code)


def test_a_macro_means_what_was_last_defined_before() -> None:
    code = b"#define A 1\n__device__ int f() { return A; }\n#undef A\n#define A 2\n"
    code += b"__global__ void k(int *x) { x[A] = f(); }\n"
    expanded = expand_on_device(code)
    assert b"{ return 1; }" in expanded
    assert b"{ x[2] = f(); }" in expanded


@pytest.mark.parametrize(
    "unclear",
    [
        b"#ifdef __FAST\n#define A 1\n#else\n#define A 2\n#endif",
        b"#define A 1\n#ifdef __FAST\n#undef A\n#endif",
        b"#define A B + 1\n#define B A",
        b"#define A 1\n#undef A",
    ],
)
def test_a_macro_stays_whose_meaning_only_the_preprocessor_knows(unclear: bytes) -> None:
    code = unclear + b"\n__global__ void k(int *x) { x[0] = A; }\n"
    assert b"x[0] = A;" in expand_on_device(code)


def test_conditions_that_leave_a_definition_out() -> None:
    code = b"#define A 1\n#if 0\n#define A 2\n#endif\n__global__ void k(int *x) { x[0] = A; }\n"
    assert b"x[0] = 1;" in expand_on_device(code, Conditions({}, ()).leave_out)


def test_named_arguments_and_letters() -> None:
    code = b"#define LOG(f, a...) { g(f, ##a); char b = 'a'; }\n"
    code += b'__global__ void k() { LOG("a %d", 3) LOG("") }\n'
    expanded = expand_on_device(code)
    assert b"""{ g("a %d", 3); char b = 'a'; } { g(""); char b = 'a'; }""" in expanded
