from __future__ import annotations

import pytest

from sapwood.code.comments import FunctionNotes, read_annotations
from sapwood.core.errors import BuildError


def notes(text: str, *, cpp: bool = False) -> dict[str, FunctionNotes]:
    return read_annotations("a.c", text.encode(), cpp=cpp)


@pytest.mark.parametrize(
    "comment",
    [
        "// Adds.\n// More of it.\n// @array x[n][2*d], y[n]\n// @inout y\n",
        "/* Adds.\n * More of it.\n * @array x[n][2*d] y[n]\n * @inout y\n */\n",
        "/** Adds.\n    More of it.\n @array x [n] [2*d]\n @inout y[n] */\n",
        "/* Adds.\n * More of it. @array x[n][2*d] @array y[n] @inout y */\n",
        "/// Adds.\n/// More of it.\n///@array x[n][ 2*d ]\n///@array y[n]\n///@inout y\n",
    ],
)
def test_every_form_of_comment_is_read(comment: str) -> None:
    found = notes(f"#include <x.h>\n{comment}void f(const int *x, int *y, int n) {{}}\n")["f"]
    assert found.doc == "Adds.\nMore of it."
    assert found.shapes["x"] == ("n", "2*d")
    assert found.shapes["y"] == ("n",)
    assert found.inout == {"y"}


def test_annotations_may_stand_among_the_parameters() -> None:
    text = "void f(const int *x, // @array x[n]\n  int *y /* @array y[n] */, int n)\n{\n}\n"
    assert notes(text)["f"].shapes == {"x": ("n",), "y": ("n",)}


def test_lines_are_those_of_the_source() -> None:
    found = notes("\n\n// @array x[n]\nvoid f(int *x) {}\n")["f"]
    assert found.line == 4
    assert found.lines == {"x": 3}


@pytest.mark.parametrize(
    "text",
    [
        "// other\n\nvoid f(int x) {}\n",
        "int y; // other\nvoid f(int x) {}\n",
        "// other\nint y;\nvoid f(int x) {}\n",
    ],
)
def test_a_comment_of_something_else_is_not_taken(text: str) -> None:
    assert notes(text)["f"].doc == ""


@pytest.mark.parametrize(
    "text",
    [
        '// Doc.\nextern "C" void f(int x) {}\n',
        'extern "C" {\n// Doc.\nvoid f(int x) {}\n}\n',
        'namespace n {\n// Doc.\nextern "C" void f(int x) {}\n}\n',
        "#if 1\n// Doc.\nvoid f(int x) {}\n#endif\n",
        "// Doc.\nint *f(int x) { return 0; }\n",
    ],
)
def test_functions_are_found_in_every_scope(text: str) -> None:
    assert notes(text, cpp=True)["f"].doc == "Doc."


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("// @arary x[n]", "@array"),
        ("// @array x[n", "@array points[n][d]"),
        ("// @array", "NAME"),
        ("// @array x[n%2]", "+ - * /"),
        ("// @array x[n]\n", "directly above"),
        ("// @array x[n]\nint y;", "directly above"),
    ],
)
def test_a_wrong_annotation_is_an_error_with_its_line(line: str, text: str) -> None:
    with pytest.raises(BuildError) as caught:
        notes(f"\n{line}\nvoid f(int *x) {{}}\n")
    assert caught.value.where == "a.c:2"
    assert text in caught.value.hint


def test_a_declaration_carries_annotations_too() -> None:
    text = "// Doc.\n// @array x[n]\nvoid f(int *x, int n);\nvoid f(int *x, int n) {}\n"
    assert notes(text)["f"].shapes == {"x": ("n",)}
    assert notes(text)["f"].doc == "Doc."


def test_words_of_other_tools_are_part_of_the_doc() -> None:
    assert notes("/// @brief Adds.\nvoid f(int x) {}\n")["f"].doc == "@brief Adds."
