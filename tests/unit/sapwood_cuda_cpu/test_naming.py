"""Variables of one name in one kernel."""

from __future__ import annotations

import pytest

from sapwood_cuda_cpu.naming import with_own_names
from sapwood_cuda_cpu.parse import CudaSource


def renamed(body: str, fixed: tuple[str, ...] = ()) -> str:
    head = "__global__ void k(float *x, int n) { "
    source = CudaSource("a.cu", f"{head}{body} }}".encode())
    edits = with_own_names(source, source.kernels[0], fixed)
    text = source.data if edits is None else edits.apply()
    return text.decode().removeprefix(head).removesuffix(" }")


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (
            "for (int i = 0; i < n; i++) x[i] = 1; for (int i = 1; i < n; i++) x[i] = 2;",
            "for (int i = 0; i < n; i++) x[i] = 1; for (int i_2 = 1; i_2 < n; i_2++) x[i_2] = 2;",
        ),
        (
            "int v = 1; { int v = 2; x[v] = 3; } x[v] = 4;",
            "int v = 1; { int v_2 = 2; x[v_2] = 3; } x[v] = 4;",
        ),
        (
            "int v = 1; if (n) { x[v] = 2; int v = 3; x[v] = 4; }",
            "int v = 1; if (n) { x[v] = 2; int v_2 = 3; x[v_2] = 4; }",
        ),
        (
            "if (n) { int n = 1; x[n] = 2; } x[n] = 3;",
            "if (n) { int n_2 = 1; x[n_2] = 2; } x[n] = 3;",
        ),
        (
            "int i_2 = 0; { int i; } { int i; i = i_2; }",
            "int i_2 = 0; { int i; } { int i_3; i_3 = i_2; }",
        ),
        (
            "{ float a[3]; a[0] = 1; } { float *a; a = x; }",
            "{ float a[3]; a[0] = 1; } { float *a_2; a_2 = x; }",
        ),
    ],
)
def test_each_declaration_gets_a_name_of_its_own(body: str, wanted: str) -> None:
    assert renamed(body) == wanted


@pytest.mark.parametrize(
    "body",
    [
        "int i = 0; x[i] = n;",
        "{ int i; } { int i; auto f = [&] { return i; }; }",
        "\n#ifdef __WIDE\nfloat a[8];\n#else\nfloat a[4];\n#endif\na[0] = x[n];",
        "\n#if __W > 1\nint v = 1;\n#elif __W\nint v = 2;\n#endif\n{ int v = n; x[v] = 1; } n = v;",
    ],
)
def test_what_is_clear_or_hidden_stays(body: str) -> None:
    assert renamed(body) == body


def test_variables_that_macros_speak_of_keep_their_names() -> None:
    body = "{ int i = 0; AT; } { int i = 1; AT; }"
    assert renamed(body, ("i",)) == body
    assert CudaSource("a.cu", b"#define AT(k) x[i + k]\n").macro_words == {"x", "i"}
