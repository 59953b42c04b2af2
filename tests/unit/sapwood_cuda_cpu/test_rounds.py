from __future__ import annotations

import pytest

from sapwood_cuda_cpu.rounds import Round, attribute_macros

MACROS = {b"HD": frozenset({b"__host__", b"__device__"})}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (b"__global__ void f() { x; }", "device"),
        (b"static __device__ int f() { x; }", "device"),
        (b"__host__ __device__ int f() { x; }", "both"),
        (b"HD int f() { x; }", "both"),
        (b"int f() { x; }", "host"),
        (b"template <class T> __device__ T f(T a) { x; }", "device"),
        (b"struct S { __device__ int f() { x; } };", "device"),
    ],
)
def test_functions_are_for_host_device_or_both(text: bytes, kind: str) -> None:
    seen = Round(text, MACROS)
    at = text.index(b"x;")
    body = seen.around(at, at + 2)
    assert body is not None
    assert body.kind == kind


def test_what_is_only_for_the_device_can_be_left_out() -> None:
    text = b"int a;\n__device__ int f();\ntemplate <int N> __device__ int g() { return N; }\nint b;"
    seen = Round(text, {})
    assert seen.without_device_code(0, len(text)).split() == [b"int", b"a;", b"int", b"b;"]


def test_attribute_macros_are_those_with_attributes() -> None:
    found = attribute_macros(b"#define A 1\n#define B inline __device__\n#define B __host__\n")
    assert found == {b"B": frozenset({b"__device__", b"__host__"})}
