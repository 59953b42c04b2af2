"""What depends on __CUDA_ARCH__ is right for kernels and for the host, or refused."""

from __future__ import annotations

import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.core.errors import BuildError
from sapwood_cuda_cpu.architecture import Dependent, dependent_macros, resolve_architecture
from sapwood_cuda_cpu.check import refuse_unsupported, unsupported
from sapwood_cuda_cpu.conditions import Conditions
from sapwood_cuda_cpu.parse import read_sources

NONE = Conditions({}, ())


def resolved(text: str) -> str:
    """Return the source as one line, with nothing that cannot be right."""
    data, troubles = resolve_architecture(text.encode(), NONE)
    assert not troubles
    assert data.count(b"\n") == text.count("\n")
    return " ".join(NONE.leave_out(data).decode().split())


def refused(**files: str) -> list[str]:
    sources = read_sources({f"{name}.cu": text.encode() for name, text in files.items()})
    return [str(each) for source in sources.values() for each in unsupported(source)]


def in_body(head: str, text: str) -> str:
    return f"{head} {{\n{text}\n}}"


ASKS = "#if __CUDA_ARCH__ >= 600\na();\n#else\nb();\n#endif"


@pytest.mark.row("A-GPU-3")
@pytest.mark.parametrize("head", ["__global__ void k()", "__device__ void f()", "__device__ X()"])
def test_device_code_sees_the_architecture(head: str) -> None:
    assert resolved(in_body(head, ASKS)) == in_body(head, "a();").replace("\n", " ")


def test_code_of_the_host_does_not() -> None:
    assert resolved(in_body("void f()", ASKS)) == "void f() { b(); }"


@pytest.mark.parametrize(
    "head", ["__host__ __device__ int f()", "struct S { __device__ __host__ S()"]
)
def test_a_function_for_both_has_both(head: str) -> None:
    text = resolved(in_body(head, ASKS))
    assert text == f"{head} {{ if (::sapwood_cuda::on_device()) {{ a(); }} else {{ b(); }} }}"


def test_attributes_may_be_macros() -> None:
    text = "#define BOTH __host__ __device__\n" + in_body("BOTH void f()", ASKS)
    assert "on_device" in resolved(text)


def test_the_name_is_a_number_in_device_code_but_not_in_texts() -> None:
    text = '__device__ int f() { g("__CUDA_ARCH__"); /* __CUDA_ARCH__ */ return __CUDA_ARCH__; }'
    assert resolved(text) == text.replace("return __CUDA_ARCH__", "return 700")


def test_a_condition_that_is_not_known_asks_for_the_number() -> None:
    text = in_body("__device__ void f()", "#if defined(__CUDA_ARCH__) && __FOO\na();\n#endif")
    assert "#if 1 && __FOO" in resolved(text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("#ifndef __CUDA_ARCH__\nint f() { return 1; }\n#endif", "int f() { return 1; }"),
        ("#if __CUDA_ARCH__ < 600\n__device__ int f() { return 1; }\n#endif", ""),
        ("#if __CUDA_ARCH__ < 600\n__device__ int f();\n#endif", ""),
        ("#if __CUDA_ARCH__ >= 600\n__device__ void f() {}\n#endif", "__device__ void f() {}"),
        ("#ifdef __CUDA_ARCH__\n__device__ void f() {}\n#else\nvoid g() {}\n#endif",
         "__device__ void f() {} void g() {}"),
        ("#if __CUDA_ARCH__ < 600\ntemplate <class T>\n__device__ void f(T x) {}\n#endif", ""),
    ],
)  # fmt: skip
def test_outside_of_functions_both_are_there(text: str, wanted: str) -> None:
    assert resolved(text) == wanted


def test_what_is_declared_in_two_ways_is_refused() -> None:
    text = "int a;\n#ifdef __CUDA_ARCH__\ntypedef int T;\n#else\ntypedef float T;\n#endif\n"
    what = "not supported on a CPU node: declarations that depend on __CUDA_ARCH__"
    assert refused(a=text) == [f"a.cu:2: {what}: #ifdef __CUDA_ARCH__"]


def test_a_body_for_newer_gpus_only_is_refused() -> None:
    text = "__global__ void k(int *x) {\n#if __CUDA_ARCH__ >= 800\nx[0] = 1;\n#endif\n}"
    with pytest.raises(BuildError, match="GPUs of __CUDA_ARCH__ >= 800") as caught:
        refuse_unsupported(read_sources({"a.cu": text.encode()}))
    assert caught.value.where == "a.cu:2"


def test_a_body_for_newer_gpus_with_another_for_older_ones_is_not() -> None:
    text = "#if __CUDA_ARCH__ >= 800\nx[0] = 1;\n#else\nx[0] = 2;\n#endif"
    assert not refused(a=in_body("__global__ void k(int *x)", text))


MACROS = "#ifdef __CUDA_ARCH__\n#define W 1\n#else\n#define W 2\n#endif\n"


def test_macros_of_device_code_have_names_of_their_own() -> None:
    sources = read_sources(
        {
            "a.cu": (
                MACROS + "__global__ void k(int *x) { x[W] = W; }\nint f() { return W; }"
            ).encode(),
            "b.cu": b"__device__ int g() { return W; }\nint h() { return W; }",
        }
    )
    text = sources["a.cu"].data.decode()
    assert "#define sapwood_device_W 1" in text
    assert "#define W 2" in text
    assert "x[1] = 1" in text
    assert "return W;" in text
    assert sources["b.cu"].data.decode().startswith("__device__ int g() { return sapwood_device_W;")
    assert not refused(a=text)


@pytest.mark.parametrize(
    "text",
    [
        "int x[W];",  # a declaration that both would see
        "#define W 3\n",
        "#define V (W + 1)\n__device__ int f() { return V; }",
        "__device__ int f() { return 0; }\n#if W == 1 && __FOO\nint x;\n#endif",
        "constexpr __host__ __device__ int f() { return W; }",
        "#if defined(__CUDA_ARCH__) && __FOO\nint x;\n#endif",
    ],
)
def test_macros_that_cannot_be_told_apart_are_refused(text: str) -> None:
    assert any("__CUDA_ARCH__" in each for each in refused(a=MACROS + text))


def test_dependent_macros_of_a_program_without_any() -> None:
    assert dependent_macros({"a.cu": b"#define W 1"}, {}) == Dependent()


SIGNS = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt,
    ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip


@given(st.integers(0, 1300), st.sampled_from(sorted(SIGNS)))
@pytest.mark.slow
def test_as_two_rounds_of_a_preprocessor_would(number: int, sign: str) -> None:
    text = f"#if __CUDA_ARCH__ {sign} {number}\na();\n#else\nb();\n#endif"
    device, host = ("a();" if SIGNS[sign](value, number) else "b();" for value in (700, 0))
    assert resolved(in_body("__device__ void f()", text)) == f"__device__ void f() {{ {device} }}"
    assert resolved(in_body("void f()", text)) == f"void f() {{ {host} }}"
