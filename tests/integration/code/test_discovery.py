from __future__ import annotations

import os
import shutil
from typing import Any

import numpy as np
import pytest

from sapwood.code import load_program
from sapwood.code.build import build
from sapwood.code.cache import BuildCache
from sapwood.code.interface import Interface, Role
from sapwood.core.errors import BuildError

C = r"""
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
typedef struct { float x, y; int32_t id; double w[3]; } point;
struct __attribute__((packed)) packed { char c; point p; long long q; };
enum colour { RED, GREEN = -3 };
typedef float vec3[3];
union either { int i; float f; };
struct list { int value; struct list *next; };
struct hidden;

/* Sums the weights.
 * @array points[n] */
double sum(const point *points, int64_t n) {
  double s = 0;
  for (int64_t i = 0; i < n; i++) s += points[i].w[0];
  return s;
}
void many(const struct packed *b, enum colour c, bool flag, unsigned char u, size_t z,
          const vec3 v, double m[][4], const char *restrict text) {
  m[0][0] = b->q + c + flag + u + z + v[0] + *text;
}
int calls_it(const point *p) { return (int)sum(p, 1); }
static int internal(int x) { return x; }
int variadic(int a, ...) { return a; }
long double wide_float(long double x) { return x; }
__int128 wide_int(void) { return 0; }
void rows(double **a) { a[0][0] = 1; }
void anything(void *a) { *(char *)a = 0; }
int callback(int (*f)(int), int x) { return f(x) + internal(x); }
const char *text(void) { return "x"; }
point by_value(point p) { return p; }
void variable(int n, int d, const double a[n][d], double *out) { *out = a[0][0]; }
void with_union(const union either *e, int *o) { *o = e->i; }
void with_list(const struct list *l, int *o) { *o = l->value; }
void with_hidden(const struct hidden *h, int *o) { *o = h != 0; }
"""

CPP = r"""
#include <cstdint>
#include <random>
struct Virtual { virtual void method(); int x; };
void Virtual::method() {}
struct Plain { int x; };
struct Derived : Plain { int y; };
namespace inner {
extern "C" std::int64_t hits(std::int64_t start, std::int64_t stop, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::uniform_real_distribution<double> u;
  std::int64_t count = 0;
  for (auto i = start; i < stop; i++) count += u(generator) < 0.5;
  return count;
}
}
int mangled(int x) { return x; }
template <class T> T generic(T x) { return x; }
template int generic(int);
extern "C" {
void by_reference(int &x) { x = 1; }
void with_virtual(Virtual *v) { v->x = 1; }
void with_base(const Derived *d, int *o) { *o = d->y; }
}
"""

COMPILERS = [("gcc", "g++"), ("clang", "clang++")]


PROGRAM = """
from sapwood import Program

class P(Program):
    sources = ("a.c", "b.cpp")
"""


@pytest.fixture(scope="module", params=COMPILERS, ids=["gcc", "clang"])
def interface(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Interface:
    """The interface discovered in both sources, built once by each compiler."""
    c, cpp = request.param
    if not (shutil.which(c) and shutil.which(cpp)):
        pytest.skip(f"{c} and {cpp} are not on this machine")
    folder = tmp_path_factory.mktemp("discovered")
    for name, text in {"a.c": C, "b.cpp": CPP, "p.py": PROGRAM}.items():
        (folder / name).write_text(text)
    environment = {**os.environ, "CC": c, "CXX": cpp}
    cache = BuildCache(folder / "cache")
    return build(load_program(folder / "p.py"), cache=cache, environment=environment).interface


def test_types_are_exact(interface: Interface) -> None:
    assert [function.name for function in interface.functions] == [
        "sum",
        "many",
        "calls_it",
        "hits",
    ]
    many = interface.function("many")
    assert many is not None
    assert {p.name: (p.role, p.element.numpy().str, p.element.shape) for p in many.parameters} == {
        "b": (Role.INPUT, "|V49", ()),
        "c": (Role.SCALAR, "<i4", ()),
        "flag": (Role.SCALAR, "|b1", ()),
        "u": (Role.SCALAR, "|u1", ()),
        "z": (Role.SCALAR, "<u8", ()),
        "v": (Role.INPUT, "<f4", ()),
        "m": (Role.OUTPUT, "<f8", (4,)),
        "text": (Role.INPUT, "|i1", ()),
    }
    assert "const struct packed *b, enum colour c" in many.declaration
    assert "double (*m)[4]" in many.declaration
    packed = many.parameters[0].element.numpy()
    assert packed.fields is not None
    assert {name: field[1] for name, field in packed.fields.items()} == {"c": 0, "p": 1, "q": 41}
    hits = interface.function("hits")
    assert hits is not None
    assert hits.declaration == "int64_t hits(int64_t start, int64_t stop, uint64_t seed)"
    assert hits.where == "b.cpp:9"


def test_struct_offsets_are_the_compiler_s(interface: Interface) -> None:
    function = interface.function("sum")
    assert function is not None
    assert function.doc == "Sums the weights."
    assert function.parameters[0].shape == ("n",)
    element = function.parameters[0].element.numpy()
    natural = np.dtype([("x", "f4"), ("y", "f4"), ("id", "i4"), ("w", "f8", (3,))], align=True)
    assert element == natural


REASONS = {
    "variadic": "variable number",
    "wide_float": "long double",
    "wide_int": "128 bits",
    "rows": "pointer to a pointer",
    "anything": "void pointer",
    "callback": "pointer to a function",
    "text": "returns a pointer",
    "by_value": "passed by value",
    "variable": "variable extent",
    "with_union": "union",
    "with_list": "the pointer next",
    "with_hidden": "not defined",
    "mangled": "extern",
    "generic": "extern",
    "by_reference": "reference",
    "with_virtual": "virtual functions",
    "with_base": "inherits",
}


def test_what_cannot_be_called_is_listed_with_the_reason(interface: Interface) -> None:
    found = {each.name.partition("<")[0]: each.reason for each in interface.unbound}
    found.pop("method", None)  # of a class: only GCC lists it at the top
    for name, reason in REASONS.items():
        assert reason in found.pop(name)
    assert found == {}
    assert all(each.where for each in interface.unbound)


@pytest.mark.parametrize(
    ("annotation", "what"),
    [
        ("@array y[n]", "not a parameter"),
        ("@array n[3]", "is an array, but it is a int"),
        ("@inout x", "but const"),
        ("@array m[n][5]", "do not end with"),
    ],
)
def test_an_annotation_that_does_not_fit_is_an_error(
    cache: BuildCache, program_of: Any, annotation: str, what: str
) -> None:
    source = f"// {annotation}\nvoid f(const int *x, int n, int m[][4]) {{ m[0][0] = x[n]; }}\n"
    with pytest.raises(BuildError, match=what) as caught:
        build(program_of({"a.c": source}), cache=cache)
    assert caught.value.where == "a.c:1"
