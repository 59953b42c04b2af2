from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapwood_cuda_cpu.conditions import Conditions, defined_names


def left(text: str, macros: dict[str, str] | None = None, elsewhere: tuple[str, ...] = ()) -> str:
    data = text.encode()
    seen = Conditions(macros or {}, elsewhere).leave_out(data)
    assert len(seen) == len(data)
    assert seen.count(b"\n") == data.count(b"\n")
    return " ".join(seen.decode().split())


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("#ifdef A\na\n#endif\nb", "b"),
        ("#ifndef A\na\n#else\nb\n#endif", "a"),
        ("#if 0\na\n#elif 1\nb\n#else\nc\n#endif", "b"),
        ("#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 600\na\n#else\nb\n#endif", "a"),
        ("#if __CUDA_ARCH__ < 600\na\n#endif", "a"),
        ("#ifdef CUBLAS_API_H_\ncublasStatus_t\n#endif", ""),
        ("#if CUDART_VERSION >= 11000\na\n#else\nb\n#endif", "a"),
        ("#ifdef A\n#if B\na\n#else\nb\n#endif\n#else\nc\n#endif", "c"),
        ("#if defined A && \\\n B\na\n#endif\nb", "b"),
        ("/* begin\n#if 0\n*/ a", "/* begin #if 0 */ a"),
    ],
)
def test_what_is_known_is_left_out(text: str, wanted: str) -> None:
    assert left(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "#ifdef _OPENMP\na\n#endif",
        "#ifdef M_PI\na\n#else\nb\n#endif",
        "#if FOO(3) > 2\na\n#endif",
        "#if sizeof(int)\na\n#endif",
        "#if SIZE > 3\na\n#else\nb\n#endif",
    ],
)
def test_what_is_not_known_stays(text: str) -> None:
    assert left(text, elsewhere=("SIZE",)) == " ".join(text.split())


def test_definitions_count_from_their_line_on() -> None:
    text = "#ifdef A\na\n#endif\n#define A 2\n#if A == 2\nb\n#endif\n#undef A\n#ifdef A\nc\n#endif"
    assert left(text) == "#define A 2 b #undef A"


def test_a_definition_under_an_unknown_condition_is_unknown() -> None:
    text = "#ifdef __FOO\n#define A\n#endif\n#ifdef A\na\n#endif"
    assert left(text) == " ".join(text.split())


def test_macros_of_the_command_line_win() -> None:
    assert left("#define A 1\n#if A == 3\na\n#endif", {"A": "3"}) == "#define A 1 a"


def test_an_unknown_branch_after_a_known_one_is_an_if() -> None:
    text = "#if 0\na\n#elif defined(__FOO)\nb\n#else\nc\n#endif"
    assert left(text) == "#if defined(__FOO) b #else c #endif"


def test_names_that_a_file_defines() -> None:
    assert defined_names(b"#define A 1\n# undef B\n/*\n#define C\n*/") == {"A", "B"}


_LINES = st.lists(
    st.sampled_from(
        ["#if A", "#ifdef A", "#ifndef B", "#if A > 1 || !defined(C)", "#elif B == 2", "#else",
         "#endif", "#define A 2", "#define B", "#undef A", "#define C 0", "#if C == A - 2"]
    ),
    max_size=12,
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(_LINES)
@pytest.mark.slow
def test_it_agrees_with_a_compiler(lines: list[str]) -> None:
    text = "".join(f"{line}\nline{n}\n" for n, line in enumerate(lines))
    command = ["c++", "-x", "c++", "-E", "-P", "-w", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        seen = Conditions({}, ()).leave_out(text.encode()).decode()
        lines_left = [line for line in seen.split() if line.startswith("line")]
        assert lines_left == done.stdout.split()
