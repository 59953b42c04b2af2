"""Native functions called with Python values."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from sapwood.code.cache import BuildCache
from sapwood.code.image import OpenProgram
from sapwood.core.errors import ArgumentError, FunctionMissingError

SOURCE = r"""
#include <stdbool.h>
#include <stdint.h>
typedef struct { float x, y; int32_t id; } point;

// @array x[n], y[n]
double dot(const double *x, const double *y, int64_t n) {
  double s = 0;
  for (int64_t i = 0; i < n; i++) s += x[i] * y[i];
  return s;
}
// @array x[n], y[2*n]
void twice(const float *x, int n, float factor, float *y) {
  for (int i = 0; i < n; i++) y[2 * i] = y[2 * i + 1] = x[i] * factor;
}
// @array x[n]
void extremes(const int64_t *x, int64_t n, int64_t *lowest, int64_t *highest) {
  *lowest = *highest = x[0];
  for (int64_t i = 1; i < n; i++) {
    if (x[i] < *lowest) *lowest = x[i];
    if (x[i] > *highest) *highest = x[i];
  }
}
// @inout x[n]
int negate(double *x, int n) { for (int i = 0; i < n; i++) x[i] = -x[i]; return n; }
// @array points[n]
float total(const point *points, int n) {
  float s = 0;
  for (int i = 0; i < n; i++) s += points[i].y;
  return s;
}
// @inout p
void move(point *p, float by) { p->x += by; }
int length(const char *text) { int n = 0; while (text[n]) n++; return n; }
uint8_t byte(uint8_t x) { return x; }
bool not_(bool x) { return !x; }
int scaled(int x, int k) { return x * k; }
// @array a[n][k]
double first(const double *a, int n) { return a[n - 1]; }
// @array out[n/d]
void divide(int n, int d, double *out) { out[0] = n; }
enum { COLUMNS = 3 };
// @array m[n][COLUMNS]
double corner(const double m[][COLUMNS], int n) { return m[n - 1][COLUMNS - 1]; }
void plain(const double *x, double *y) { *y = x[0]; }
void overruns(int n, int *y) { for (int i = 0; i < n; i++) y[i] = i + 1; }
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> BuildCache:
    """A cache for all tests of this module: they compile the same source."""
    return BuildCache(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def native(opened: Any) -> OpenProgram:
    return opened(SOURCE, k="parameter(10)")  # type: ignore[no-any-return]  # a fixture's function


X = np.arange(4.0)


def call(native: OpenProgram, name: str, *args: Any, **kwargs: Any) -> Any:
    return native.call(name, args, kwargs)


def test_lengths_are_filled_in_and_may_be_given(native: OpenProgram) -> None:
    assert call(native, "dot", X, X) == 14.0
    assert call(native, "dot", y=X, x=X, n=4) == 14.0
    assert call(native, "dot", np.empty(0), np.empty(0)) == 0.0


def test_outputs_are_allocated_and_returned_by_name(native: OpenProgram) -> None:
    outputs = call(native, "twice", np.array([1, 2], "f4"), 1.5)
    assert list(outputs) == ["y"]
    assert outputs["y"].tolist() == [1.5, 1.5, 3.0, 3.0]
    outputs = call(native, "extremes", np.array([3, -1, 7]))
    assert outputs == {"lowest": -1, "highest": 7}
    assert type(outputs["lowest"]) is np.int64


def test_an_output_may_be_given(native: OpenProgram) -> None:
    y = np.empty(4, "f4")
    outputs = call(native, "twice", np.array([1, 2], "f4"), 1, y=y)
    assert outputs["y"] is y
    assert y.tolist() == [1, 1, 2, 2]


def test_an_inout_array_is_changed_in_place(native: OpenProgram) -> None:
    x = X.copy()
    outputs = call(native, "negate", x)
    assert outputs["x"] is x
    assert outputs["return"] == 4
    assert x.tolist() == [0, -1, -2, -3]


POINT = np.dtype([("x", "f4"), ("y", "f4"), ("id", "i4")])


def test_structs_are_structured_arrays(native: OpenProgram) -> None:
    points = np.zeros(3, POINT)
    points["y"] = [1, 2, 3]
    assert call(native, "total", points) == 6.0
    one = np.zeros((), POINT)
    call(native, "move", one, 2.0)
    assert one["x"] == 2.0
    assert call(native, "total", points[:1]) == 1.0


def test_structs_may_be_ctypes(native: OpenProgram) -> None:
    class Point(ctypes.Structure):
        _fields_ = (("x", ctypes.c_float), ("y", ctypes.c_float), ("id", ctypes.c_int32))

    one = Point(1, 2, 3)
    call(native, "move", one, 0.5)
    assert one.x == 1.5
    assert call(native, "total", (Point * 2)(one, one)) == 4.0
    with pytest.raises(ArgumentError, match="of 4 bytes"):
        call(native, "move", (ctypes.c_float * 1)(), 0.5)


def test_text_is_passed_as_c_strings(native: OpenProgram) -> None:
    assert call(native, "length", "four") == 4
    assert call(native, "length", b"12345") == 5
    assert call(native, "length", np.array([65, 66, 0], "u1")) == 2


def test_numbers_are_converted_only_where_nothing_is_lost(native: OpenProgram) -> None:
    assert call(native, "byte", np.int64(255)) == 255
    assert call(native, "byte", True) == 1
    assert call(native, "byte", np.array(7)) == 7
    assert call(native, "not_", np.True_) is False
    for value in (256, -1, 1.0, "1", None, np.float64(1)):
        with pytest.raises(ArgumentError, match="byte: parameter x "):
            call(native, "byte", value)
    with pytest.raises(ArgumentError, match="not_: parameter x wants"):
        call(native, "not_", 1)
    with pytest.raises(ArgumentError, match="twice: parameter factor wants float"):
        call(native, "twice", np.zeros(1, "f4"), "2")
    with pytest.raises(ArgumentError, match=r"factor is 1e\+300, which float cannot hold"):
        call(native, "twice", np.zeros(1, "f4"), 1e300)
    call(native, "twice", np.zeros(1, "f4"), float("inf"))


def test_a_program_parameter_is_the_default_of_its_name(native: OpenProgram) -> None:
    assert call(native, "scaled", 2) == 20
    assert call(native, "scaled", 2, k=3) == 6
    assert call(native, "first", np.zeros((2, 10))) == 0.0
    with pytest.raises(ArgumentError, match=r"k is 10"):
        call(native, "first", np.zeros((2, 9)))


def test_arrays_of_fixed_extent_keep_it(native: OpenProgram) -> None:
    assert call(native, "corner", np.arange(6.0).reshape(2, 3)) == 5.0
    with pytest.raises(ArgumentError, match="3 is 3"):
        call(native, "corner", np.zeros((3, 2)))


@pytest.mark.parametrize(
    ("name", "args", "parameter", "what"),
    [
        ("dot", (X, X[:3]), "y", r"has shape \(3,\), but in \[n\] n is 4"),
        ("dot", (X, X.reshape(2, 2)), "y", r"wants 1 dimension \[n\], got shape \(2, 2\)"),
        ("dot", (X, X.astype("f4")), "y", "wants an array of float64, got float32"),
        ("dot", (X.astype(">f8"), X), "x", "of other byte order"),
        ("dot", (X[::2], X[:2]), "x", "not contiguous"),
        ("dot", ([1.0], X), "x", "got list"),
        ("dot", (None, X), "x", "got NoneType"),
        ("total", (np.zeros(3),), "points", "wants an array of point, got float64"),
        ("dot", (X,), "y", "is missing"),
        ("dot", (), "x", "is missing"),
        ("twice", (np.zeros(2, "f4"), X), "factor", "got an array.*y is an output"),
    ],
)
def test_a_wrong_argument_is_named_before_the_call(
    native: OpenProgram, name: str, args: tuple[Any, ...], parameter: str, what: str
) -> None:
    with pytest.raises(ArgumentError, match=f"^{name}: parameter {parameter} .*{what}") as caught:
        call(native, name, *args)
    assert caught.value.where.startswith("a.c:")


def test_what_may_not_be_written_is_copied_for_another_process_only(native: OpenProgram) -> None:
    array = np.arange(4.0)
    array.flags.writeable = False
    changed = call(native, "negate", array)["x"]
    assert changed.tolist() == [0, -1, -2, -3]
    assert array.tolist() == [0, 1, 2, 3]
    with pytest.raises(ArgumentError, match="x is written to, but the array is read-only"):
        native.function("negate")(array)


def test_given_lengths_and_outputs_are_checked(native: OpenProgram) -> None:
    with pytest.raises(ArgumentError, match="n is 5"):
        call(native, "dot", X, X, n=5)
    with pytest.raises(ArgumentError, match=r"parameter y has shape \(3,\), but in \[2\*n\]"):
        call(native, "twice", np.zeros(2, "f4"), 1.0, y=np.zeros(3, "f4"))
    with pytest.raises(ArgumentError, match="divides by zero"):
        call(native, "divide", 4, 0)
    with pytest.raises(ArgumentError, match="cannot be allocated"):
        call(native, "divide", -4, 1)
    with pytest.raises(ArgumentError, match="nothing says that it is more than one"):
        call(native, "plain", X, y=np.zeros(3))


def test_the_call_itself_is_checked(native: OpenProgram) -> None:
    with pytest.raises(ArgumentError, match="takes 2 arguments by position, got 3"):
        call(native, "dot", X, X, 4)
    with pytest.raises(ArgumentError, match="given twice"):
        call(native, "dot", X, X, x=X)
    with pytest.raises(ArgumentError) as caught:
        call(native, "scaled", 1, kk=2)
    assert "k" in caught.value.hint
    with pytest.raises(FunctionMissingError) as missing:
        call(native, "dott", X, X)
    assert "did you mean dot" in missing.value.hint


def test_an_array_that_nobody_annotated_is_found_out(native: OpenProgram) -> None:
    assert call(native, "overruns", 1) == {"y": 1}
    with pytest.raises(ArgumentError, match="overruns: parameter y was written past its end"):
        call(native, "overruns", 2)


def test_annotations_in_a_header_count(opened: Any) -> None:
    program = opened(
        {
            "a.c": '#include "a.h"\nvoid f(int *x, int n) { x[n - 1] = 1; }\n',
            "a.h": "// @inout x[n]\nvoid f(int *x, int n);\n",
        }
    )
    assert call(program, "f", np.zeros(3, "i4"))["x"].tolist() == [0, 0, 1]


def test_arrays_are_not_copied(native: OpenProgram) -> None:
    big = np.ones(1 << 20)
    view = big[: 1 << 19]
    assert call(native, "dot", view, view) == 1 << 19
    call(native, "negate", view)
    assert big[0] == -1.0
    assert big[-1] == 1.0


def test_read_only_inputs_are_fine(native: OpenProgram) -> None:
    array = np.arange(4.0)
    array.flags.writeable = False
    assert call(native, "dot", array, array) == 14.0
